"""The groups that an account is in, kept as recipients in step with what its provider lists; and its address book."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from accounts.addresses import GROUP, PERSON, AddressError, normalise
from accounts.channels.base import Contact, Group
from accounts.channels.registry import channel
from accounts.models import Account
from reminders.imports import MOST_NAME, MOST_TAG, Entry
from reminders.models import Membership, Recipient
from reminders.targets import BATCH, add_tag, remove_tag, store_recipients


@dataclass(frozen=True, slots=True)
class Synchronised:
    """How many groups became recipients, got a new name, or are no longer listed."""

    added: int = 0
    renamed: int = 0
    gone: int = 0


def synchronise(account: Account, groups: Iterable[Group], now: datetime) -> Synchronised:
    """Store the listed groups as recipients of the account's owner, and mark those that are no longer listed.

    Nothing is deleted, and a mark stops no delivery: the group may be back tomorrow, and its provider refuses what
    cannot be delivered. An empty list marks nothing, because gateways have answered one by mistake. Groups of a paired
    number get its tag.
    """
    listed = {group.address: group for group in map(_stored_spelling, groups) if group is not None}
    if not listed:
        return Synchronised()
    entries = [Entry(0, GROUP, group.address, group.name) for group in listed.values()]
    with transaction.atomic():
        added = store_recipients(entries, account.owner, account.team)
        recipients = _recipients(account, listed)
        renamed = _rename(recipients, listed)
        _remember(account, recipients, listed, now)
        gone = _mark_gone(account, recipients, now)
        if channel(account.channel).pairs:
            _tag_members(account)
        return Synchronised(added, renamed, gone)


def add_contacts(account: Account, contacts: Iterable[Contact]) -> int:
    """Store the people of the account's address book as recipients; returns how many are new. Those that are there keep
    their name and status."""
    entries = [
        Entry(0, PERSON, normalise(PERSON, contact.address), _printable(contact.name)[:MOST_NAME])
        for contact in contacts
    ]
    return store_recipients(entries, account.owner, account.team)


def _stored_spelling(group: Group) -> Group | None:
    """None for what is listed among the groups and is none: channels and broadcast lists."""
    try:
        address = normalise(GROUP, group.address)
    except AddressError:
        return None
    return replace(group, address=address, name=_printable(group.name)[:MOST_NAME])


def _printable(name: str) -> str:
    """A database takes no NUL, and a list shows one line."""
    return " ".join(name.replace("\x00", "").split())


def _recipients(account: Account, listed: dict[str, Group]) -> list[Recipient]:
    """In one order, so that two synchronisations at once wait for each other instead of locking each other out."""
    return list(Recipient.objects.filter(owner=account.owner_id, address__in=listed).order_by("pk"))


def _rename(recipients: list[Recipient], listed: dict[str, Group]) -> int:
    """A name that an operator chose stays; one that the provider gave, to whichever account, follows the provider's."""
    given_by_provider = set(Membership.objects.filter(recipient__in=recipients).values_list("recipient_id", "name"))
    renamed = [
        recipient
        for recipient in recipients
        if not recipient.name or (recipient.pk, recipient.name) in given_by_provider
        if listed[recipient.address].name not in ("", recipient.name)
    ]
    for recipient in renamed:
        recipient.name = listed[recipient.address].name
    Recipient.objects.bulk_update(renamed, ["name"], batch_size=BATCH)
    return len(renamed)


def _remember(account: Account, recipients: list[Recipient], listed: dict[str, Group], now: datetime) -> None:
    """A name that the provider does not say today stays as it was."""
    former = dict(Membership.objects.filter(account=account).values_list("recipient_id", "name"))
    rows = []
    for recipient in recipients:
        group = listed[recipient.address]
        name = group.name or former.get(recipient.pk, "")
        facts = {"size": group.size, "announce_only": group.announce_only, "may_write": group.may_write}
        rows.append(Membership(account=account, recipient=recipient, name=name, seen_at=now, **facts))
    Membership.objects.bulk_create(
        rows,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["account", "recipient"],
        update_fields=["name", "size", "announce_only", "may_write", "seen_at", "gone_at"],
    )


def _mark_gone(account: Account, recipients: list[Recipient], now: datetime) -> int:
    present = Membership.objects.filter(account=account, gone_at=None)
    return present.exclude(recipient__in=recipients).update(gone_at=now)


def _tag_members(account: Account) -> None:
    """Every group that the account is in has its tag, and no other."""
    tag = _tag_of(account)
    own = Recipient.objects.filter(owner=account.owner_id)
    listed = own.filter(memberships__account=account).values_list("tags", flat=True)
    former = {one for several in listed for one in several}
    members = own.filter(memberships__account=account, memberships__gone_at=None).values("pk")
    for old in former:
        if old.startswith(f"#{account.pk} "):
            stale = own.filter(tags__contains=[old])
            remove_tag(stale if old != tag else stale.exclude(pk__in=members), old)
    add_tag(own.filter(pk__in=members), tag)


def _tag_of(account: Account) -> str:
    """With the account's number in front: its label may change, and another account may have the same."""
    return f"#{account.pk} {account.label}"[:MOST_TAG]
