"""What somebody writes back: it ends their waiting, takes queued follow-ups out, and may bring them Message 2.

Runs are locked first, in the order of their ids, then people, then targets, then lanes: as the ledger does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Case, F, Q, QuerySet, When
from django.db.models.functions import Least
from django.template.defaultfilters import pluralize

from fanout.inbound import people
from fanout.inbound.opt_out import Reason, Source, is_opt_out, opt_out
from fanout.lanes.new_chats import heard_from
from fanout.lanes.statements import carry_out, execute
from fanout.models import InboundEvent, Run, RunTarget
from fanout.runs import message_2, transitions

Status = RunTarget.Status

IN_A_GROUP = "nothing: it was said in a group"
NO_PERSON = "nothing: it names no person"
REPLIED = "the person has replied"
#: providers tell when something was written in whole seconds
WHOLE_SECOND = timedelta(seconds=1)
MESSAGES_LOOKED_AT = 20


def reply(event: InboundEvent, now: datetime) -> str:
    """A group's chatter is nobody's reply: neither the group's nor that of whoever spoke."""
    if event.group:
        return IN_A_GROUP
    if not event.address:
        return NO_PERSON
    words = _heard(event, now)
    heard_from(event.account_id, event.address, now)
    return words


def _heard(event: InboundEvent, now: datetime) -> str:
    if is_opt_out(event.text):
        words = _note(event, now, opted_out=True)
        opt_out(event.address, Reason.OPTED_OUT, Source.RECIPIENT, "wrote an opt-out word")
        return "; ".join([*words, "opted out and suppressed"])
    return "; ".join(_note(event, now)) or "nothing: the address is in nobody's list"


def _note(event: InboundEvent, now: datetime, opted_out: bool = False) -> list[str]:
    """Everything but the opting out; says in words what was done."""
    recipients = list(people.with_address(event.address).values_list("pk", flat=True))
    if not recipients:
        return []
    messages = list(_sent_to(recipients, event))
    message_1 = None if opted_out else next((one for one in messages if one.run.reply_parts), None)
    queued = [] if opted_out else list(_queued_follow_ups(recipients, event))
    _lock_runs({target.run_id for target in [*queued, *messages[:1], message_1] if target is not None})
    people.lock(event.address)
    words = ["noted"]
    if taken := carry_out(transitions.take_out([target.pk for target in queued], REPLIED, now)):
        words.append(f"{taken} queued follow-up{pluralize(taken)} taken out")
    _answer(event, messages)
    # An older reply that comes after a newer one changes nothing.
    execute(END_WAITING, {"people": recipients, "at": event.happened_at})
    if message_1 is not None:
        words.append(message_2.answer(message_1.pk, event.happened_at, now))
    return words


def _lock_runs(runs: set[int]) -> None:
    """With the Message 2 of each. Whoever adds to a Message 2 holds its Message 1, so nobody makes a second one."""
    rows = Run.objects.filter(Q(pk__in=runs) | Q(answers__in=runs)).order_by("pk")
    list(rows.select_for_update(no_key=True, of=("self",)).values_list("pk"))


def _queued_follow_ups(recipients: Sequence[int], event: InboundEvent) -> QuerySet[RunTarget]:
    """Not one between two parts: half a message helps nobody. Not one that was made after the reply was known: the same
    event may be worked on twice."""
    return RunTarget.objects.filter(
        recipient__in=recipients,
        status=Status.PENDING,
        parts_sent=0,
        run__follow_up=True,
        run__created_at__lte=event.came_at,
    )


# --- the message that it answers ----------------------------------------------------------------------------


def _sent_to(recipients: Sequence[int], event: InboundEvent) -> QuerySet[RunTarget]:
    """What the account had sent them when they wrote, or was sending; the message that they quote first, then the
    latest."""
    before = event.happened_at + WHOLE_SECOND
    went_out = Q(status__in=[Status.SENT, Status.SENDING, Status.UNCONFIRMED]) | Q(parts_sent__gt=0)
    sent = RunTarget.objects.filter(
        went_out, recipient__in=recipients, account=event.account_id, claimed_at__lte=before
    )
    quoted = When(provider_id=event.provider_id, then=0) if event.provider_id else When(pk=None, then=0)
    newest = sent.order_by(Case(quoted, default=1), "-claimed_at")
    return newest.select_related("run").defer("run__parts")[:MESSAGES_LOOKED_AT]


def _answer(event: InboundEvent, messages: Sequence[RunTarget]) -> None:
    """The time of the first reply, however late it is reported."""
    if not messages:
        return
    target = messages[0].pk
    at = Least(F("replied_at"), event.happened_at)  # PostgreSQL's passes over what is empty
    RunTarget.objects.filter(pk=target).update(replied_at=at)
    InboundEvent.objects.filter(pk=event.pk).update(run_target_id=target)


# --- the person ---------------------------------------------------------------------------------------------

# Attempts that went out after the reply was written stand: a reply that is reported late answers none of them. Where
# none of those that count was before it, the cooldown stays too.
END_WAITING = """
WITH person AS (
  SELECT p.id, least(p.follow_up_attempts, count(t.id)) AS attempts,
         p.follow_up_attempts > 0 AND count(t.id) >= p.follow_up_attempts AS unanswered
    FROM reminders_recipient p
    LEFT JOIN (reminders_recipient same JOIN fanout_runtarget t ON t.recipient_id = same.id AND t.status = 'sent'
                                        JOIN fanout_run r ON r.id = t.run_id AND r.follow_up)
      ON same.address = p.address AND t.claimed_at >= greatest(%(at)s, p.attempts_reset_at)
   WHERE p.id = ANY(%(people)s) AND (p.replied_at IS NULL OR p.replied_at < %(at)s)
   GROUP BY p.id
)
UPDATE reminders_recipient p
   SET replied_at = %(at)s, attempts_reset_at = greatest(%(at)s, p.attempts_reset_at),
       follow_up_attempts = person.attempts,
       cooldown_until = CASE WHEN person.unanswered THEN p.cooldown_until END,
       status = CASE WHEN p.limited AND p.status = 'not_interested' AND NOT person.unanswered THEN 'active'
                     ELSE p.status END,
       limited = p.limited AND person.unanswered
  FROM person WHERE p.id = person.id
"""
