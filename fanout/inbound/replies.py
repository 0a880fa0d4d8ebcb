"""What somebody writes back: it ends their waiting, takes queued follow-ups out, and may bring them Message 2.

Runs are locked first, in the order of their ids, then people, then targets, then lanes: as the ledger does.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.template.defaultfilters import pluralize

from fanout.inbound import people
from fanout.inbound.opt_out import Reason, Source, is_opt_out, opt_out, stays_forgotten
from fanout.lanes.new_chats import heard_from
from fanout.lanes.statements import Row, carry_out, execute
from fanout.models import InboundEvent
from fanout.rules.message_ids import named_in
from fanout.runs import erasing, message_2, transitions

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
    people.recognise(event)
    recipients = people.with_address(event.address)
    if stays_forgotten(event.address, recipients):
        return erasing.forget(event)
    words = _heard(event, recipients, now)
    heard_from(event.account_id, event.address, now)
    return words


def _heard(event: InboundEvent, recipients: list[int], now: datetime) -> str:
    if is_opt_out(event.text):
        words = _note(event, recipients, now, opted_out=True)
        opt_out(event.address, Reason.OPTED_OUT, Source.RECIPIENT, "wrote an opt-out word")
        return "; ".join([*words, "opted out and suppressed"])
    return "; ".join(_note(event, recipients, now)) or "nothing: the address is in nobody's list"


def _note(event: InboundEvent, recipients: list[int], now: datetime, opted_out: bool = False) -> list[str]:
    """Everything but the opting out; says in words what was done."""
    if not recipients:
        return []
    messages = _sent_to(recipients, event)
    message_1 = None if opted_out else next((one for one in messages if one["has_message_2"]), None)
    queued = [] if opted_out else execute(QUEUED_FOLLOW_UPS, {"people": recipients, "came_at": event.came_at})
    _lock_runs({target["run_id"] for target in [*queued, *messages[:1], message_1] if target is not None})
    people.lock(event.address)
    words = ["noted"]
    if taken := carry_out(transitions.take_out([target["id"] for target in queued], REPLIED, now)):
        words.append(f"{taken} queued follow-up{pluralize(taken)} taken out")
    if messages:
        execute(ANSWERED, {"target": messages[0]["id"], "event": event.pk, "at": event.happened_at})
    # An older reply that comes after a newer one changes nothing.
    execute(END_WAITING, {"people": recipients, "at": event.happened_at})
    if message_1 is not None:
        words.append(message_2.answer(message_1["id"], recipients, event.happened_at, now))
    return words


# With the Message 2 of each. Whoever adds to a Message 2 holds its Message 1, so nobody makes a second one.
LOCK_RUNS = """
SELECT FROM fanout_run WHERE id = ANY(%(runs)s::bigint[]) OR answers_id = ANY(%(runs)s::bigint[])
 ORDER BY id FOR NO KEY UPDATE
"""


def _lock_runs(runs: set[int]) -> None:
    if runs:
        execute(LOCK_RUNS, {"runs": list(runs)})


# Not one between two parts: half a message helps nobody. Not one that was made after the reply was known: the same
# event may be worked on twice.
QUEUED_FOLLOW_UPS = """
SELECT t.id, t.run_id FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
 WHERE t.recipient_id = ANY(%(people)s::bigint[]) AND t.status = 'pending' AND t.parts_sent = 0
   AND r.follow_up AND r.created_at <= %(came_at)s
"""


# --- the message that it answers ----------------------------------------------------------------------------

# What the account had sent them when they wrote, or was sending; the message that they quote first, then the latest.
SENT_TO = """
SELECT t.id, t.run_id, r.reply_parts <> '[]' AS has_message_2
  FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
 WHERE t.recipient_id = ANY(%(people)s::bigint[]) AND t.account_id = %(account)s AND t.claimed_at <= %(before)s
   AND (t.status IN ('sent', 'sending', 'unconfirmed') OR t.parts_sent > 0)
 ORDER BY t.id = %(named)s OR (t.provider_id <> '' AND t.provider_id = %(quoted)s) DESC, t.claimed_at DESC
 LIMIT %(most)s
"""


def _sent_to(recipients: list[int], event: InboundEvent) -> list[Row]:
    named = named_in(event.message_id)
    wanted = {"people": recipients, "account": event.account_id, "before": event.happened_at + WHOLE_SECOND}
    quoted = {"named": named.target_id if named else 0, "quoted": event.provider_id}
    return execute(SENT_TO, wanted | quoted | {"most": MESSAGES_LOOKED_AT})


# The time of the first reply, however late it is reported; `least` passes over what is empty.
ANSWERED = """
WITH target AS (
  UPDATE fanout_runtarget SET replied_at = least(replied_at, %(at)s) WHERE id = %(target)s
)
UPDATE fanout_inboundevent SET run_target_id = %(target)s WHERE id = %(event)s
"""


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
   WHERE p.id = ANY(%(people)s::bigint[]) AND (p.replied_at IS NULL OR p.replied_at < %(at)s)
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
