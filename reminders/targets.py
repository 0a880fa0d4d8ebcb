"""The recipients of a list or a tag become a reminder's targets, from the admin and the shell alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet

from accounts import access
from accounts.channels.registry import channel
from accounts.models import Account
from reminders.imports import Entry
from reminders.models import Recipient, Reminder, ReminderTarget

BATCH = 2_000


def store_recipients(entries: Sequence[Entry], owner: Any, team: Any = None) -> int:
    """Add those that the owner has not got; returns how many. What is there keeps its name, tags and status."""
    before = Recipient.objects.filter(owner=owner).count()
    rows = (
        Recipient(owner=owner, team=team, kind=entry.kind, address=entry.address, name=entry.name, tags=entry.tags)
        for entry in entries
    )
    with transaction.atomic():
        Recipient.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)
    return Recipient.objects.filter(owner=owner).count() - before


def add_listed(reminder: Reminder, user: Any, entries: Sequence[Entry]) -> int:
    """Returns how many targets were added. Each entry is a recipient that the person can see, or a new one."""
    wanted = [entry.address for entry in entries]
    new = [entry for entry in entries if entry.address not in _visible_ids(reminder, user, wanted)]
    store_recipients(new, reminder.owner, reminder.team)
    ids = _visible_ids(reminder, user, wanted) | _visible_ids(reminder, reminder.owner, [e.address for e in new])
    return _add(reminder, [ids[address] for address in wanted])


def _visible_ids(reminder: Reminder, user: Any, addresses: list[str]) -> dict[str, int]:
    """The owner's recipient before anybody else's."""
    rows = access.visible(user, Recipient.objects.filter(address__in=addresses))
    ids: dict[str, int] = {}
    for address, pk, owner_id in rows.values_list("address", "pk", "owner_id"):
        if address not in ids or owner_id == reminder.owner_id:
            ids[address] = pk
    return ids


def add_tagged(reminder: Reminder, user: Any, tag: str) -> int:
    return _add(reminder, list(tagged(user, tag, reminder.account).values_list("pk", flat=True)))


def tagged(user: Any, tag: str, account: Account) -> QuerySet[Recipient]:
    """The active recipients with the tag that the account can reach."""
    return _tagged(user, tag).filter(kind__in=reachable_kinds(account))


def tagged_out_of_reach(user: Any, tag: str, account: Account) -> QuerySet[Recipient]:
    return _tagged(user, tag).exclude(kind__in=reachable_kinds(account))


def _tagged(user: Any, tag: str) -> QuerySet[Recipient]:
    rows = Recipient.objects.filter(tags__contains=[tag], status=Recipient.Status.ACTIVE)
    return access.visible(user, rows)


def _add(reminder: Reminder, recipients: list[int]) -> int:
    """Those that are targets already stay where they are."""
    before = reminder.targets.count()
    begin = (reminder.targets.aggregate(last=Max("position"))["last"] or 0) + 1
    rows = [
        ReminderTarget(reminder=reminder, recipient_id=pk, position=begin + i)
        for i, pk in enumerate(dict.fromkeys(recipients))
    ]
    ReminderTarget.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)
    return reminder.targets.count() - before


def reachable_kinds(account: Account) -> list[Recipient.Kind]:
    return [kind for kind in Recipient.Kind if channel(account.channel).reaches(kind)]


def unreachable_error(account: Account, entries: Sequence[Entry]) -> str:
    """Which entries the account cannot reach, in a sentence; empty when it reaches all of them."""
    described = channel(account.channel)
    wrong = [entry for entry in entries if not described.reaches(entry.kind)]
    if not wrong:
        return ""
    more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
    return f"{reach(account)}: it cannot reach {wrong[0].address} in line {wrong[0].line}{more}."


def reach(account: Account) -> str:
    return f"{account} ({account.channel}) sends to {channel(account.channel).takes()} only"
