"""Erased addresses. A keyed hash is kept where the person had opted out or was suppressed, so that they stay out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from django.conf import settings
from django.db.models import QuerySet
from django.utils.crypto import salted_hmac

from reminders.imports import Entry, RecipientList
from reminders.models import ErasedAddress, Recipient

SALT = "crier.erased"
#: before its number: the address of a recipient that was erased and whose deliveries are still counted
FACELESS = "erased-"
REFUSED = "This address was erased after it had been opted out or suppressed. It cannot be added again."


def present(rows: QuerySet[Recipient]) -> QuerySet[Recipient]:
    """Return the recipients that were not erased."""
    return rows.exclude(address__startswith=FACELESS)


def is_faceless(address: str) -> bool:
    """Return whether the address is a substitute for one that was erased."""
    return address.startswith(FACELESS)


def digest(address: str, key: str | None = None) -> str:
    return salted_hmac(SALT, address, secret=key, algorithm="sha256").hexdigest()


def digests_of(address: str) -> list[str]:
    """Return the hashes under which an address may be kept: with the present key and with earlier ones."""
    return [digest(address, key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def erased(addresses: Iterable[str]) -> set[str]:
    """Return the addresses that must not come back. Hashes made with an earlier key count too."""
    wanted = list(addresses)
    if not wanted or not ErasedAddress.objects.exists():
        return set()
    by_digest = {one: address for address in wanted for one in digests_of(address)}
    known = ErasedAddress.objects.filter(digest__in=by_digest).values_list("digest", flat=True)
    return {by_digest[row] for row in known}


def without_erased(entries: Sequence[Entry]) -> list[Entry]:
    refused = erased(entry.address for entry in entries)
    return [entry for entry in entries if entry.address not in refused]


def refuse(listed: RecipientList) -> RecipientList:
    """Return the list without erased addresses, each of them as a problem with its line."""
    refused = erased(entry.address for entry in listed.entries)
    problems = [f"line {entry.line}: {REFUSED}" for entry in listed.entries if entry.address in refused]
    entries = [entry for entry in listed.entries if entry.address not in refused]
    return replace(listed, entries=entries, problems=[*listed.problems, *problems])


def remember(address: str, now: datetime) -> None:
    ErasedAddress.objects.get_or_create(digest=digest(address), defaults={"erased_at": now})
