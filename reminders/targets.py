"""Recipients and the targets of a reminder: stored from a list, tagged, chosen, and shared among its senders.

The admin and the commands call the same functions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import (
    BigIntegerField,
    BooleanField,
    CharField,
    Count,
    F,
    Field,
    Func,
    Max,
    Q,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.functions import Lower
from django.utils import timezone

from accounts import access
from accounts.addresses import KINDS, plurals
from accounts.channels.registry import channel
from accounts.models import Account
from reminders.erasure import digests_of, without_erased
from reminders.imports import MOST_TAG, Entry
from reminders.models import Recipient, Reminder

#: rows that one statement of Django's own writes
BATCH = 2_000
TAGS = ArrayField(CharField(max_length=MOST_TAG))
#: recipients that a count of tags looks at: an administrator's list may be long
COUNTED = 10_000
NOT_SHARED = "You have this recipient, and it is not shared with the team of this token."


def among(column: str, values: Sequence[Any], field: Field[Any, Any]) -> Func:
    """Return the condition `column = ANY(array)`: for tens of thousands of values many times faster than `IN (…)`."""
    array = Value(values, output_field=ArrayField(field))
    return Func(F(column), array, template="%(expressions)s)", arg_joiner=" = ANY(", output_field=BooleanField())


# One statement for a list of any length. The other columns have the model's defaults.
STORE = """
INSERT INTO reminders_recipient
       (owner_id, team_id, kind, address, name, tags, fields, status, follow_up_attempts, created_at)
SELECT %s, %s, listed.kind, listed.address, listed.name,
       ARRAY(SELECT jsonb_array_elements_text(listed.tags)), listed.fields, %s, 0, %s
  FROM unnest(%s::text[], %s::text[], %s::text[], %s::jsonb[], %s::jsonb[])
       WITH ORDINALITY AS listed(kind, address, name, tags, fields, place)
 ORDER BY listed.place
ON CONFLICT (owner_id, address) DO NOTHING
"""


def store_recipients(entries: Sequence[Entry], owner: Any, team: Any = None) -> int:
    """Add recipients that the owner does not have; return how many. Existing ones keep name, tags and status, and get
    the fields of the list. Addresses that were erased after an opt-out are left out."""
    return _store(without_erased(entries), owner, team)


@transaction.atomic
def _store(entries: Sequence[Entry], owner: Any, team: Any) -> int:
    if not entries:
        return 0
    columns = (
        [entry.kind for entry in entries],
        [entry.address for entry in entries],
        [entry.name for entry in entries],
        [json.dumps(entry.tags) for entry in entries],
        [json.dumps(entry.fields) for entry in entries],
    )
    added = _execute(
        STORE, [owner.pk, team.pk if team else None, Recipient.Status.ACTIVE.value, timezone.now(), *columns]
    )
    restore(Recipient.objects.filter(among("address", columns[1], TextField()), owner=owner))
    fill_fields(entries, owner)
    return added


# Reads the recipient with this address, or adds one unless the address was erased. A message of the API is one call, so
# that each statement counts.
FIND_OR_ADD = f"""
WITH known AS (
  SELECT r.* FROM reminders_recipient r
   WHERE r.address = %(address)s AND {access.SEES} AND (%(team)s::bigint IS NULL OR r.team_id = %(team)s)
   ORDER BY r.owner_id <> %(user)s, r.id LIMIT 1),
added AS (
  INSERT INTO reminders_recipient AS r
         (owner_id, team_id, kind, address, name, tags, fields, status, follow_up_attempts, created_at)
  SELECT %(user)s, %(team)s, %(kind)s, %(address)s, %(name)s, '{{}}', '{{}}', %(status)s, 0, %(now)s
   WHERE NOT EXISTS (SELECT FROM known)
     AND NOT EXISTS (SELECT FROM reminders_erasedaddress e WHERE e.digest = ANY(%(digests)s))
  ON CONFLICT (owner_id, address) DO NOTHING
  RETURNING r.*)
SELECT * FROM known UNION ALL SELECT * FROM added
"""  # noqa: S608


def find_or_add(entry: Entry, user: Any, team: int | None, now: datetime) -> Recipient | None:
    """Return the recipient with this address that the person sees, or only of one team; of several the person's own,
    else the first; a new one where there is none. None where the address was erased and must not come back. Raises
    ValidationError where the person has it, but not in the team."""
    facts: dict[str, Any] = {"address": entry.address, "kind": entry.kind, "name": entry.name, "team": team, "now": now}
    facts |= {"status": Recipient.Status.ACTIVE.value, "digests": digests_of(entry.address), **access.sees(user)}
    for found in Recipient.objects.raw(FIND_OR_ADD, facts):
        return found
    # Erased; or the person has it, but not in this team; or another call has just added it.
    mine = Recipient.objects.filter(owner=user, address=entry.address).first()
    if mine is not None and team is not None and mine.team_id != team:
        raise ValidationError({"address": NOT_SHARED})
    if mine is not None:
        restore(Recipient.objects.filter(pk=mine.pk))
    return mine


def _execute(statement: str, parameters: Sequence[Any]) -> int:
    """Return how many rows it wrote."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def restore(recipients: QuerySet[Recipient]) -> int:
    """Take recipients out of the archive; return how many were in it."""
    return recipients.filter(archived=True).update(archived=False)


FILL_FIELDS = """
UPDATE reminders_recipient r SET fields = r.fields || listed.fields
  FROM unnest(%s::text[], %s::jsonb[]) AS listed(address, fields)
 WHERE r.owner_id = %s AND r.address = listed.address AND NOT r.fields @> listed.fields
"""


def fill_fields(entries: Sequence[Entry], owner: Any) -> None:
    """Overwrite fields of the owner's recipients with those of the list."""
    if listed := [entry for entry in entries if entry.fields]:
        addresses, fields = [entry.address for entry in listed], [json.dumps(entry.fields) for entry in listed]
        _execute(FILL_FIELDS, [addresses, fields, owner.pk])


# A name that the list has replaces the stored one, and its tags are added.
UPDATE_LISTED = """
UPDATE reminders_recipient r
   SET name = CASE WHEN listed.name <> '' THEN listed.name ELSE r.name END,
       tags = ARRAY(SELECT unnest(r.tags) UNION SELECT jsonb_array_elements_text(listed.tags) ORDER BY 1)
  FROM unnest(%s::text[], %s::text[], %s::jsonb[]) AS listed(address, name, tags)
 WHERE r.owner_id = %s AND r.address = listed.address
   AND (listed.name NOT IN ('', r.name)
        OR NOT r.tags @> ARRAY(SELECT jsonb_array_elements_text(listed.tags))::varchar[])
"""


@transaction.atomic
def upsert(entries: Sequence[Entry], owner: Any, team: Any = None) -> int:
    """Add recipients, or give those that the owner has the name, tags and fields of the list; return how many were
    added."""
    entries = without_erased(entries)
    added = _store(entries, owner, team)
    columns = [
        [entry.address for entry in entries],
        [entry.name for entry in entries],
        [json.dumps(entry.tags) for entry in entries],
    ]
    _execute(UPDATE_LISTED, [*columns, owner.pk])
    return added


@transaction.atomic
def add_listed(reminder: Reminder, user: Any, entries: Sequence[Entry], team: int | None = None) -> int:
    """Make the entries targets, as recipients that the person can see, or only those of one team, or as new ones;
    return how many were added. Raises ValidationError where the owner has one of them, but not in the team."""
    entries = without_erased(entries)
    ids = _visible_ids(reminder, user, entries, team)
    new = [entry for entry in entries if entry.address not in ids]
    _store(new, reminder.owner, reminder.team)
    fill_fields([entry for entry in entries if entry.address in ids], reminder.owner)
    ids |= _visible_ids(reminder, reminder.owner, new, team) if new else {}
    if others := [entry.address for entry in new if entry.address not in ids]:
        raise ValidationError({"audience.addresses": f"{others[0]}: {NOT_SHARED}"})
    return _add(reminder, [ids[entry.address] for entry in entries])


def _visible_ids(reminder: Reminder, user: Any, entries: Sequence[Entry], team: int | None) -> dict[str, int]:
    """Return the ids of recipients that a person can see, by address; the reminder owner's take precedence."""
    listed = among("address", [entry.address for entry in entries], TextField())
    rows = _of_team(access.visible(user, Recipient.objects.filter(listed)), team)
    ids: dict[str, int] = {}
    for address, pk, owner_id in rows.order_by().values_list("address", "pk", "owner_id"):
        if address not in ids or owner_id == reminder.owner_id:
            ids[address] = pk
    return ids


def add_tagged(reminder: Reminder, user: Any, tag: str, team: int | None = None) -> int:
    """Make recipients with the tag targets, or only those of one team; return how many were added."""
    rows = _of_team(tagged(user, tag, reminder.senders), team)
    return _add(reminder, list(rows.values_list("pk", flat=True)))


def _of_team(recipients: QuerySet[Recipient], team: int | None) -> QuerySet[Recipient]:
    return recipients if team is None else recipients.filter(team=team)


def add_chosen(reminder: Reminder, recipients: Sequence[int]) -> int:
    """Make these recipients targets; the caller has checked that the person sees them. Return how many were added."""
    return _add(reminder, list(recipients)) if recipients else 0


def tagged(user: Any, tag: str, accounts: Sequence[Account]) -> QuerySet[Recipient]:
    """Return the active recipients with the tag that one of the accounts can reach."""
    return _tagged(user, tag).filter(kind__in=reachable_kinds(accounts))


def with_any_tag(user: Any, tags: Sequence[str], accounts: Sequence[Account]) -> QuerySet[Recipient]:
    """Do what `tagged` does for several tags in one query."""
    return _active(user, Q(tags__overlap=list(tags))).filter(kind__in=reachable_kinds(accounts))


def tagged_out_of_reach(user: Any, tag: str, accounts: Sequence[Account]) -> QuerySet[Recipient]:
    return _tagged(user, tag).exclude(kind__in=reachable_kinds(accounts))


def count_kinds(recipients: QuerySet[Recipient]) -> Counter[str]:
    """Count the recipients by kind of address."""
    return Counter(dict(recipients.order_by().values_list("kind").annotate(n=Count("pk"))))


def _tagged(user: Any, tag: str) -> QuerySet[Recipient]:
    return _active(user, Q(tags__contains=[tag]))


def _active(user: Any, which: Q) -> QuerySet[Recipient]:
    rows = Recipient.objects.filter(which, archived=False).exclude(status__in=Recipient.GETS_NOTHING)
    return access.visible(user, rows)


ADD = """
INSERT INTO reminders_remindertarget (reminder_id, recipient_id, position)
SELECT %s, chosen.recipient, %s + chosen.place
  FROM unnest(%s::bigint[]) WITH ORDINALITY AS chosen(recipient, place)
 ORDER BY chosen.place
ON CONFLICT (reminder_id, recipient_id) DO NOTHING
"""


def _add(reminder: Reminder, recipients: list[int]) -> int:
    """Append targets; existing ones keep their position. Return how many were added."""
    last = reminder.targets.aggregate(last=Max("position"))["last"] or 0
    added = _execute(ADD, [reminder.pk, last, list(dict.fromkeys(recipients))])
    restore(Recipient.objects.filter(among("pk", recipients, BigIntegerField())))
    return added


def reachable_kinds(accounts: Sequence[Account]) -> list[str]:
    return [kind for kind in KINDS if able_to_reach(kind, accounts)]


def unreachable_error(accounts: Sequence[Account], entries: Sequence[Entry]) -> str:
    """Return a sentence about entries that none of the accounts can reach, or nothing."""
    wrong = [entry for entry in entries if not able_to_reach(entry.kind, accounts)]
    if not wrong:
        return ""
    more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
    who = "it" if len(accounts) == 1 else "none of them"
    can = "cannot reach" if len(accounts) == 1 else "reaches"
    return f"{what_they_reach(accounts)}: {who} {can} {wrong[0].address} in line {wrong[0].line}{more}."


def what_they_reach(accounts: Sequence[Account]) -> str:
    """Return for example "Office (smtp) sends to mailboxes only"."""
    words = plurals(reachable_kinds(accounts))
    names = " and ".join(f"{account} ({account.channel})" for account in accounts)
    return f"{names} {'sends' if len(accounts) == 1 else 'send'} to {words} only"


# --- which sender reaches whom --------------------------------------------------------------------------------
# Each target goes through an account whose channel reaches its kind of address; accounts with equal reach take turns.


def able_to_reach(kind: str, accounts: Sequence[Account]) -> tuple[int, ...]:
    """Return the positions of the accounts that take turns for a kind of address: the active ones if there are any."""
    able = [n for n, account in enumerate(accounts) if channel(account.channel).reaches(kind)]
    return tuple(n for n in able if accounts[n].status == Account.Status.ACTIVE) or tuple(able)


def turns(kinds: Iterable[str], accounts: Sequence[Account]) -> list[int | None]:
    """Return for each target the position of its account; None where no account reaches it."""
    reaches: dict[str, tuple[int, ...]] = {}
    had: Counter[tuple[int, ...]] = Counter()
    order: list[int | None] = []
    for kind in kinds:
        if kind not in reaches:
            reaches[kind] = able_to_reach(kind, accounts)
        able = reaches[kind]
        order.append(able[had[able] % len(able)] if able else None)
        had[able] += 1
    return order


def shares(kinds: Mapping[str, int], accounts: Sequence[Account]) -> list[int]:
    """Return how many targets each account gets, from the number per kind: as many as `turns` gives it."""
    totals: Counter[tuple[int, ...]] = Counter()
    for kind, count in kinds.items():
        totals[able_to_reach(kind, accounts)] += count
    each = [0] * len(accounts)
    for able, total in totals.items():
        for turn, n in enumerate(able):
            each[n] += (total - turn + len(able) - 1) // len(able)
    return each


# --- tags -----------------------------------------------------------------------------------------------------


def _with_tag(tag: str) -> Func:
    return Func(F("tags"), Value(tag, CharField(max_length=MOST_TAG)), function="array_append", output_field=TAGS)


def _without_tag(tag: str) -> Func:
    return Func(F("tags"), Value(tag, CharField(max_length=MOST_TAG)), function="array_remove", output_field=TAGS)


def add_tag(recipients: QuerySet[Recipient], tag: str) -> int:
    """Tag recipients; return how many did not have the tag."""
    return recipients.exclude(tags__contains=[tag]).update(tags=_with_tag(tag))


def remove_tag(recipients: QuerySet[Recipient], tag: str) -> int:
    """Remove a tag; return how many recipients had it."""
    return recipients.filter(tags__contains=[tag]).update(tags=_without_tag(tag))


def tag_counts(recipients: QuerySet[Recipient]) -> dict[str, int]:
    """Return the tags of the first recipients in alphabetical order, with the number of recipients each."""
    some = Recipient.objects.filter(pk__in=recipients.order_by().values("pk")[:COUNTED])
    each = some.order_by().annotate(tag=Func("tags", function="unnest", output_field=CharField()))
    rows = each.values("tag").annotate(n=Count("pk")).order_by(Lower("tag"))
    return dict(rows.values_list("tag", "n"))
