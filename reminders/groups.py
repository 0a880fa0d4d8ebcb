"""Keep an account's groups as recipients in step with its provider's list, and import its address book."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.db.models import BigIntegerField

from accounts.addresses import GROUP, PERSON, AddressError, normalise
from accounts.channels.base import Contact, Group
from accounts.channels.registry import channel
from accounts.models import Account, PairedSession
from reminders.imports import MOST_NAME, MOST_TAG, Entry
from reminders.models import Membership, Recipient
from reminders.targets import BATCH, add_tag, among, remove_tag, store_recipients


@dataclass(frozen=True, slots=True)
class Synchronised:
    """Counts of groups that became recipients, got a new name, or are no longer listed."""

    added: int = 0
    renamed: int = 0
    gone: int = 0


def synchronise(account: Account, groups: Iterable[Group], now: datetime) -> Synchronised:
    """Store the listed groups as recipients of the account's owner, and mark those that are no longer listed.

    Nothing is deleted, and the mark does not stop deliveries: the group may be back tomorrow, and the provider refuses
    what cannot be delivered. An empty list marks nothing, because gateways have returned one by mistake. Groups of a
    paired number get its tag.
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
            _tag_members(account, [recipient.pk for recipient in recipients])
        PairedSession.objects.filter(account=account).update(group_changes={})
        return Synchronised(added, renamed, gone)


#: names kept of each kind of change; all are counted
MOST_NAMED = 10


def note_changes(account: Account, groups: Iterable[Group]) -> None:
    """Store which groups a paired number has joined or left, or which have changed, since they were last synchronised,
    for its page."""
    found = changes(account, groups)
    noted = {what: {"count": len(names), "names": names[:MOST_NAMED]} for what, names in found.items() if names}
    PairedSession.objects.filter(account=account).exclude(group_changes=noted).update(group_changes=noted)


def changes(account: Account, groups: Iterable[Group]) -> dict[str, list[str]]:
    """Return the names of groups that the account has joined, left, or that have changed, as its memberships were last
    synchronised. An empty list says nothing, as in `synchronise`."""
    listed = {group.address: group for group in map(_stored_spelling, groups) if group is not None}
    members = Membership.objects.filter(account=account, gone_at=None).select_related("recipient")
    known = {member.recipient.address: member for member in members} if listed else {}
    return {
        "joined": sorted(group.name or address for address, group in listed.items() if address not in known),
        "left": sorted(member.name or address for address, member in known.items() if address not in listed),
        "changed": sorted(
            words
            for address, member in known.items()
            if address in listed and (words := _changed(member, listed[address]))
        ),
    }


def _changed(member: Membership, group: Group) -> str:
    """Return how a group differs from what was stored of it; empty: not in what matters to the operator."""
    if group.name and group.name != member.name:
        return f"{member.name or group.address} is now {group.name}"
    if group.may_write != member.may_write:
        return f"{group.name or group.address}: {'may write again' if group.may_write else 'only admins write now'}"
    return ""


def add_contacts(account: Account, contacts: Iterable[Contact]) -> int:
    """Store the people of the account's address book as recipients; return how many are new. Existing ones keep their
    name and status."""
    entries = [
        Entry(0, PERSON, normalise(PERSON, contact.address), _printable(contact.name)[:MOST_NAME])
        for contact in contacts
    ]
    return store_recipients(entries, account.owner, account.team)


def _stored_spelling(group: Group) -> Group | None:
    """Return the group with its address as we store it, or None for channels and broadcast lists."""
    try:
        address = normalise(GROUP, group.address)
    except AddressError:
        return None
    return replace(group, address=address, name=_printable(group.name)[:MOST_NAME])


def _printable(name: str) -> str:
    """Return the name without NUL, which PostgreSQL refuses, and without line breaks."""
    return " ".join(name.replace("\x00", "").split())


def _recipients(account: Account, listed: dict[str, Group]) -> list[Recipient]:
    """Return the recipients in a fixed order, so that two synchronisations at once cannot deadlock."""
    return list(Recipient.objects.filter(owner=account.owner_id, address__in=listed).order_by("pk"))


def _rename(recipients: list[Recipient], listed: dict[str, Group]) -> int:
    """Update names that came from a provider; keep names that an operator chose. Return how many changed."""
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
    """Store the memberships. A name that the provider leaves out today stays as it was."""
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


def _tag_members(account: Account, members: list[int]) -> None:
    """Put the account's tag on every group that it is in, and remove it from all others.

    By number: the memberships were stored a moment ago, and the planner, which has no statistics of them yet, would
    compare every group with every other.
    """
    tag, is_member = _tag_of(account), among("pk", members, BigIntegerField())
    own = Recipient.objects.filter(owner=account.owner_id)
    listed = list(Membership.objects.filter(account=account).values_list("recipient_id", flat=True))
    tagged = own.filter(among("pk", listed, BigIntegerField())).values_list("tags", flat=True)
    former = {one for several in tagged for one in several}
    for old in former:
        if old.startswith(f"#{account.pk} "):
            stale = own.filter(tags__contains=[old])
            remove_tag(stale if old != tag else stale.exclude(is_member), old)
    add_tag(own.filter(is_member), tag)


def _tag_of(account: Account) -> str:
    """Return the account's tag. It begins with the id, because labels change and may be used twice."""
    return f"#{account.pk} {account.label}"[:MOST_TAG]
