"""Suppressions: addresses that get nothing any more. How one is added, lifted, read from a list, and asked for by the
unsubscribe link of a mail."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime

from django.conf import settings
from django.core import signing
from django.db import connection
from django.db.models import Exists, OuterRef, Q

from accounts.addresses import AddressError, guess_kind, normalise
from reminders import erasure
from reminders.imports import unguarded
from reminders.models import Recipient, Suppression
from reminders.schedule import LATEST

#: rows that one statement writes at most
CHUNK = 5_000
#: what an export has, in this order; an import reads those that say something about the address
COLUMNS = ("address", "reason", "source", "detail", "created_at", "expires_at", "added_by")
MOST_DETAIL = 500
#: The detail of an opt-out that a provider reported; its report of a resume takes those back.
REPORTED = "reported by the provider"
UNSUBSCRIBE_SALT = "crier.unsubscribe"

# A suppression that lasts at least as long keeps its reason; an expired or shorter one is replaced. Sorted, so that two
# statements with the same addresses cannot deadlock.
INTO = """
INSERT INTO reminders_suppression AS s (address, reason, source, detail, created_at, expires_at, added_by_id)
SELECT DISTINCT ON (n.address) n.address, n.reason, n.source, n.detail, n.at, n.expires_at, n.added_by
  FROM {rows} AS n(address, reason, source, detail, at, expires_at, added_by)
 ORDER BY n.address, n.expires_at DESC NULLS FIRST
ON CONFLICT (address) DO UPDATE
   SET reason = excluded.reason, source = excluded.source, detail = excluded.detail,
       created_at = excluded.created_at, expires_at = excluded.expires_at, added_by_id = excluded.added_by_id
 WHERE s.expires_at IS NOT NULL AND (excluded.expires_at IS NULL OR excluded.expires_at > s.expires_at)
RETURNING s.address
"""
# Takes the columns of `NewSuppression` as arrays.
SUPPRESS_ALL = INTO.format(
    rows="unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::bigint[])"
)
# Takes the columns of `NewSuppression` by name.
SUPPRESS = INTO.format(
    rows="(SELECT %(address)s::text, %(reason)s::text, %(source)s::text, %(detail)s::text, %(at)s::timestamptz, "
    "%(expires_at)s::timestamptz, %(added_by)s::bigint)"
)


@dataclass(frozen=True, slots=True)
class NewSuppression:
    """An address to suppress, and what is noted with it."""

    address: str
    reason: str
    source: str
    detail: str
    at: datetime
    expires_at: datetime | None = None
    added_by: int | None = None


def suppress(new: NewSuppression) -> bool:
    """Suppress an address; return whether it changed anything. One that is suppressed for as long keeps its reason."""
    return suppress_all([new]) == 1


def suppress_all(news: Sequence[NewSuppression]) -> int:
    """Suppress addresses; return how many were changed."""
    return sum(_write(news[start : start + CHUNK]) for start in range(0, len(news), CHUNK))


def _write(news: Sequence[NewSuppression]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(SUPPRESS_ALL, [list(column) for column in zip(*map(astuple, news))])
        return len(cursor.fetchall())


def in_force(now: datetime) -> Q:
    """Return the condition for suppressions that have not expired."""
    return Q(expires_at=None) | Q(expires_at__gt=now)


def is_suppressed(now: datetime, address: str = "address") -> Exists:
    """Return a condition for the rows of a query: a suppression holds for the address in this column."""
    return Exists(Suppression.objects.filter(in_force(now), address=OuterRef(address)))


def asked_for_silence(address: str, now: datetime) -> bool:
    """Return whether the address is suppressed, or belongs to a recipient who gets nothing."""
    return (
        Recipient.objects.filter(address=address, status__in=Recipient.GETS_NOTHING).exists()
        or Suppression.objects.filter(in_force(now), address=address).exists()
    )


def lift(addresses: Iterable[str]) -> list[str]:
    """Remove suppressions; return the addresses that had one."""
    rows = Suppression.objects.filter(address__in=list(addresses))
    lifted = list(rows.values_list("address", flat=True))
    rows.delete()
    return lifted


# --- lists ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SuppressionList:
    """Return the usable entries in their order, and a problem for each other line."""

    entries: list[NewSuppression] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_list(text: str, added_by: int | None, now: datetime) -> SuppressionList:
    """Read an address per line, or CSV with a header as the export writes it. A repeated address counts once."""
    lines = text.lstrip("\ufeff").splitlines()
    names, result = _header(lines), SuppressionList()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#") or (names and number == 1):
            continue
        try:
            result.entries.append(_entry(_row(line, names), added_by, now))
        except (ValueError, csv.Error) as problem:
            result.problems.append(f"line {number} ({line.strip()[:40]}): {problem}")
    result.entries = list({entry.address: entry for entry in result.entries}.values())
    return result


def _header(lines: list[str]) -> list[str]:
    names = [word.strip().lower() for word in lines[0].split(",")] if lines else []
    return names if "address" in names else []


def _row(line: str, names: list[str]) -> Mapping[str, str]:
    if "\x00" in line:
        raise AddressError("The line contains a NUL character.")
    cells = next(csv.reader([line])) if names else [line]
    return dict(zip(names or ["address"], (unguarded(cell.strip()) for cell in cells)))


def _entry(row: Mapping[str, str], added_by: int | None, now: datetime) -> NewSuppression:
    raw, reason = row.get("address", ""), row.get("reason") or Suppression.Reason.MANUAL.value
    if reason not in Suppression.Reason.values:
        raise ValueError(f"“{reason[:40]}” is not one of {', '.join(Suppression.Reason.values)}.")
    return NewSuppression(
        address=normalise(guess_kind(raw), raw),
        reason=reason,
        source=Suppression.Source.IMPORT.value,
        detail=row.get("detail", "")[:MOST_DETAIL],
        at=now,
        expires_at=_moment(row.get("expires_at", "")),
        added_by=added_by,
    )


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        # OverflowError: in UTC the first and the last hours of the calendar do not exist everywhere.
        until = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"“{text[:40]}” is not a time; write it like 2026-12-31.") from None
    if problem := expiry_error(until):
        raise ValueError(problem)
    return until


def expiry_error(until: datetime) -> str:
    """Return what is wrong, or nothing. Times near the end of the calendar overflow in some timezones."""
    return "" if until < LATEST else "Leave the end empty for a suppression that never expires."


# --- one-click unsubscribe ------------------------------------------------------------------------------------


def unsubscribe_url(address: str) -> str | None:
    """Return a signed link, or None while the site has no public address."""
    if not settings.PUBLIC_URL:
        return None
    return f"{settings.PUBLIC_URL}/unsubscribe/{signing.dumps(address, salt=UNSUBSCRIBE_SALT)}"


def unsubscribe_address(token: str) -> str:
    """Return the address of a link; raise BadSignature for a forged one."""
    address: str = signing.loads(token, salt=UNSUBSCRIBE_SALT)
    return address


def unsubscribe(address: str, now: datetime) -> None:
    if erasure.erased([address]):
        return  # the hash of the erased address already keeps it out
    reason, source = Suppression.Reason.UNSUBSCRIBED, Suppression.Source.RECIPIENT
    suppress(NewSuppression(address, reason, source, "one-click unsubscribe", now))
