"""The recipients of a list or a tag become a reminder's targets, from the admin and the shell alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Max, Q, QuerySet

from accounts import access
from accounts.channels.base import PLURAL_OF_KIND
from accounts.models import Account
from reminders.erasure import without_erased
from reminders.imports import Entry
from reminders.models import Recipient, Reminder, ReminderTarget
from reminders.senders import able_to_reach

BATCH = 2_000


def store_recipients(entries: Sequence[Entry], owner: Any, team: Any = None) -> int:
    """Add those that the owner has not got; returns how many. What is there keeps its name, tags and status, and gets
    the fields that the list has for it. Nobody comes back who was erased and had asked for silence."""
    entries = without_erased(entries)
    before = Recipient.objects.filter(owner=owner).count()
    rows = (
        Recipient(
            owner=owner,
            team=team,
            kind=entry.kind,
            address=entry.address,
            name=entry.name,
            tags=entry.tags,
            fields=entry.fields,
        )
        for entry in entries
    )
    with transaction.atomic():
        Recipient.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)
        restore(Recipient.objects.filter(owner=owner, address__in=[entry.address for entry in entries]))
        fill_fields([entry for entry in entries if entry.fields], owner)
    return Recipient.objects.filter(owner=owner).count() - before


def restore(recipients: QuerySet[Recipient]) -> int:
    """From the archive; returns how many were in it."""
    return recipients.filter(archived=True).update(archived=False)


FILL_FIELDS = """
UPDATE reminders_recipient r SET fields = r.fields || listed.fields
  FROM unnest(%s::text[], %s::jsonb[]) AS listed(address, fields)
 WHERE r.owner_id = %s AND r.address = listed.address AND NOT r.fields @> listed.fields
"""


def fill_fields(entries: Sequence[Entry], owner: Any) -> None:
    """What a list says of the owner's recipients replaces what they had under the same names."""
    for start in range(0, len(entries), BATCH):
        batch = entries[start : start + BATCH]
        fields = [json.dumps(entry.fields) for entry in batch]
        with connection.cursor() as cursor:
            cursor.execute(FILL_FIELDS, [[entry.address for entry in batch], fields, owner.pk])


def add_listed(reminder: Reminder, user: Any, entries: Sequence[Entry]) -> int:
    """Returns how many targets were added. Each entry is a recipient that the person can see, or a new one."""
    entries = without_erased(entries)
    wanted = [entry.address for entry in entries]
    new = [entry for entry in entries if entry.address not in _visible_ids(reminder, user, wanted)]
    store_recipients(new, reminder.owner, reminder.team)
    fill_fields([entry for entry in entries if entry.fields], reminder.owner)
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
    return _add(reminder, list(tagged(user, tag, reminder.senders).values_list("pk", flat=True)))


def tagged(user: Any, tag: str, accounts: Sequence[Account]) -> QuerySet[Recipient]:
    """The active recipients with the tag that one of the accounts can reach."""
    return _tagged(user, tag).filter(kind__in=reachable_kinds(accounts))


def with_any_tag(user: Any, tags: Sequence[str], accounts: Sequence[Account]) -> QuerySet[Recipient]:
    """As `tagged`, for several tags in one query."""
    return _active(user, Q(tags__overlap=list(tags))).filter(kind__in=reachable_kinds(accounts))


def tagged_out_of_reach(user: Any, tag: str, accounts: Sequence[Account]) -> QuerySet[Recipient]:
    return _tagged(user, tag).exclude(kind__in=reachable_kinds(accounts))


def count_kinds(recipients: QuerySet[Recipient]) -> Counter[str]:
    """How many there are of each kind of address."""
    return Counter(dict(recipients.order_by().values_list("kind").annotate(n=Count("pk"))))


def _tagged(user: Any, tag: str) -> QuerySet[Recipient]:
    return _active(user, Q(tags__contains=[tag]))


def _active(user: Any, which: Q) -> QuerySet[Recipient]:
    rows = Recipient.objects.filter(which, archived=False).exclude(status__in=Recipient.GETS_NOTHING)
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
    restore(Recipient.objects.filter(pk__in=recipients))
    return reminder.targets.count() - before


def reachable_kinds(accounts: Sequence[Account]) -> list[Recipient.Kind]:
    return [kind for kind in Recipient.Kind if able_to_reach(kind, accounts)]


def unreachable_error(accounts: Sequence[Account], entries: Sequence[Entry]) -> str:
    """Which entries none of the accounts can reach, in a sentence; empty when they reach all of them."""
    wrong = [entry for entry in entries if not able_to_reach(entry.kind, accounts)]
    if not wrong:
        return ""
    more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
    who = "it" if len(accounts) == 1 else "none of them"
    can = "cannot reach" if len(accounts) == 1 else "reaches"
    return f"{what_they_reach(accounts)}: {who} {can} {wrong[0].address} in line {wrong[0].line}{more}."


def what_they_reach(accounts: Sequence[Account]) -> str:
    """In words: "Office (smtp) sends to mailboxes only"."""
    kinds = reachable_kinds(accounts)
    words = " and ".join(word for kind, word in PLURAL_OF_KIND.items() if kind in kinds)
    names = " and ".join(f"{account} ({account.channel})" for account in accounts)
    return f"{names} {'sends' if len(accounts) == 1 else 'send'} to {words} only"
