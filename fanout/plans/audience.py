"""The recipients of a reminder at a moment: its fixed targets, and who is in its segment then.

Firing freezes them; forecasts, previews and pages count the same rows. Conditions are built by Django's ORM, so that
nothing that a person has typed becomes SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce, Upper
from django.db.models.lookups import Exact

from accounts import access
from accounts.addresses import NEW_CHAT_KINDS
from fanout.lanes.chats import new_among, new_in_reminders
from fanout.models import Run, RunTarget
from reminders.models import Recipient, Reminder, ReminderTarget, Segment
from reminders.segments import IS, FieldCondition, stored_conditions
from reminders.targets import count_kinds, reachable_kinds

#: a message of these states reached the person, or may have
WENT_OUT = (RunTarget.Status.SENT, RunTarget.Status.SENDING, RunTarget.Status.UNCONFIRMED)
EXAMPLES = 3
#: a person gets no follow-up within this time after the message that it follows
SHORTLY = timedelta(hours=12)


def audience(reminder: Reminder, now: datetime) -> QuerySet[Recipient]:
    """Return the recipients that a run of the reminder would have if it were made now."""
    if reminder.segment is None:
        return Recipient.objects.filter(reminders=reminder)
    fixed = ReminderTarget.objects.filter(reminder=reminder).order_by().values("recipient")
    # A union, because each of them goes by its own index: an OR of them would read every recipient.
    return Recipient.objects.filter(pk__in=fixed.union(living(reminder, now).order_by().values("pk")))


def recipients_of(run: Run) -> QuerySet[Recipient]:
    """Return the recipients of a run as of the moment for which it was fired: those of its reminder, or, for a
    follow-up, those of the run that it follows who have not replied."""
    if run.follows_id is None:
        return audience(run.reminder, run.scheduled_for)
    silent = unanswered(run.follows_id, run.scheduled_for)
    return Recipient.objects.filter(pk__in=silent.order_by().values("recipient"))


def unanswered(run_id: int, follow_up_at: datetime) -> QuerySet[RunTarget]:
    """Return the targets of a run that were sent to people who have not written since. Those who got it shortly before
    the follow-up, because the run took days, are left to the next one."""
    sent = RunTarget.objects.filter(run=run_id, status=RunTarget.Status.SENT)
    sent = sent.filter(claimed_at__lte=follow_up_at - SHORTLY)
    return sent.filter(Q(recipient__replied_at=None) | Q(recipient__replied_at__lt=F("claimed_at")))


def living(reminder: Reminder, now: datetime) -> QuerySet[Recipient]:
    """Return who is in the reminder's segment now: only those that its owner sees, that are shared as it is, and that
    its senders reach."""
    if reminder.segment is None:
        return Recipient.objects.none()
    members = segment_members(reminder.segment, reminder.owner, now)
    return reached(shared_with(reminder.team_id, members), reminder.senders)


def shared_with(team: int | None, members: QuerySet[Recipient]) -> QuerySet[Recipient]:
    """Return the members that a reminder shared with this team reaches. The team reads its runs, and any of them may
    write the conditions: these would show them the owner's private recipients and those of other teams."""
    return members if team is None else members.filter(team=team)


def reached(members: QuerySet[Recipient], senders: Sequence[Any]) -> QuerySet[Recipient]:
    return members.filter(kind__in=reachable_kinds(senders)) if senders else members


def segment_members(segment: Segment, user: Any, now: datetime) -> QuerySet[Recipient]:
    """Return the recipients that a person sees and that meet all conditions now. Those who get nothing are left out."""
    rows = Recipient.objects.filter(archived=False).exclude(status__in=Recipient.GETS_NOTHING)
    rows = access.visible(user, rows)
    if segment.tags:
        rows = rows.filter(Q(tags__contains=segment.tags) if segment.every_tag else Q(tags__overlap=segment.tags))
    if segment.without_tags:
        rows = rows.exclude(tags__overlap=segment.without_tags)
    for condition in stored_conditions(segment.fields):
        rows = rows.filter(_field(condition))
    # By address: the same person may be in several lists, and was perhaps written to from another one.
    got = RunTarget.objects.filter(recipient__address=OuterRef("address"), status__in=WENT_OUT)
    if segment.not_replied_to_id is not None:
        of_it = got.filter(run__reminder=segment.not_replied_to_id, run__answers=None, run__is_test=False)
        since = of_it.filter(claimed_at__gt=OuterRef("replied_at"))
        # First who got it at all: the rest of the list needs no look at its replies.
        rows = rows.filter(Exists(of_it)).filter(Q(replied_at=None) | Exists(since))
    if segment.not_contacted_days is not None:
        rows = rows.filter(~Exists(got.filter(claimed_at__gte=now - timedelta(days=segment.not_contacted_days))))
    return rows


def _field(condition: FieldCondition) -> Q:
    """Return the condition about a field. Case does not matter; a field that is not there is empty."""
    stored = F("name") if condition.name == "name" else KeyTextTransform(condition.name, "fields")
    held = Upper(Coalesce(stored, Value(""), output_field=TextField()))
    same = Q(Exact(held, Upper(Value(condition.value, TextField()))))
    return same if condition.comparison == IS else ~same


def examples(members: QuerySet[Recipient], user: Any) -> list[str]:
    """Return the names of a few of them that the person may see."""
    rows = access.visible(user, members).order_by("pk")[:EXAMPLES]
    return [str(recipient) for recipient in rows]


# --- numbers of one reminder, or of many -----------------------------------------------------------------


def kinds_of(reminder: Reminder, now: datetime) -> Counter[str]:
    """Count the recipients by kind of address."""
    return count_kinds(audience(reminder, now))


def kinds_by_reminder(reminders: Sequence[Reminder], now: datetime) -> dict[int, Counter[str]]:
    """Do the same for many: one query for all fixed targets, and one for each reminder with a segment."""
    kinds: dict[int, Counter[str]] = {reminder.pk: Counter() for reminder in reminders}
    fixed = [reminder.pk for reminder in reminders if reminder.segment_id is None]
    rows = ReminderTarget.objects.filter(reminder__in=fixed).order_by().values_list("reminder_id", "recipient__kind")
    for pk, kind, n in rows.annotate(n=Count("pk")) if fixed else ():
        kinds[pk][kind] = n
    return kinds | {reminder.pk: kinds_of(reminder, now) for reminder in reminders if reminder.segment_id is not None}


def new_chats(pairs: Collection[tuple[Reminder, int]], now: datetime) -> dict[tuple[int, int], int]:
    """Return how many persons of each reminder are new chats of the account beside it."""
    counted = new_in_reminders([(reminder.pk, account) for reminder, account in pairs if reminder.segment_id is None])
    for reminder, account in pairs:
        if reminder.segment_id is not None:
            persons = audience(reminder, now).filter(kind__in=NEW_CHAT_KINDS)
            counted[reminder.pk, account] = new_among(persons, account)
    return counted


def uncopied(run: Run) -> QuerySet[Recipient]:
    """Return the recipients that the run lacks."""
    # As a difference, which is hashed or sorted at any size. The planner knows nothing of a new run's rows: with EXISTS
    # it may compare each member with each of them, and so does NOT IN once they are too many for its memory.
    has = RunTarget.objects.filter(run=run).order_by().values("recipient")
    return Recipient.objects.filter(pk__in=recipients_of(run).order_by().values("pk").difference(has))
