"""Who of a reminder's targets gets its run, decided when the run is made: the others are skipped at once, with the
reason. Gates and claim decide again when a target is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import connection

from accounts.models import Account
from fanout.lanes import account_limits
from fanout.models import Event, Run, Tally
from fanout.plans.planning import PlannedTarget
from fanout.rules import gates
from fanout.rules.follow_ups import Person, not_admitted, without_number
from fanout.runs import follow_ups
from reminders.senders import turns

# Whoever edits the reminder while a large run is being prepared moves positions: those whom the run has already are
# recognised by who they are.
PEOPLE = """
SELECT p.id, p.kind, coalesce(s.reason, ''), p.status, p.follow_up_attempts, p.attempts_reset_at, p.cooldown_until,
       p.replied_at, p.limited
  FROM reminders_remindertarget t JOIN reminders_recipient p ON p.id = t.recipient_id
  LEFT JOIN reminders_suppression s ON s.address = p.address AND (s.expires_at IS NULL OR s.expires_at > %s)
 WHERE t.reminder_id = %s
   AND NOT EXISTS (SELECT FROM fanout_runtarget x WHERE x.run_id = %s AND x.recipient_id = t.recipient_id)
 ORDER BY t.position, t.id
"""

Turns = list[int | None]  # the place of the account that sends to each target
Whys = list[str]  # why a target gets nothing; empty where it does


def admitted(run: Run, senders: Sequence[Account], now: datetime) -> tuple[list[int], Turns, Whys]:
    """For every recipient of the reminder that the run has not got yet, in order. The caller's transaction keeps others
    from filling the same queues meanwhile."""
    recipients, kinds, whys = _people(run, now)
    order = iter(turns((kind for kind, why in zip(kinds, whys) if not why), senders))
    each = [None if why else next(order) for why in whys]
    if run.follow_up:
        _keep_within_the_queues(run, each, whys, [account.pk for account in senders])
    return recipients, each, whys


def _people(run: Run, now: datetime) -> tuple[list[int], list[str], Whys]:
    """Who they are, the kind of each address, and why it may not receive anything."""
    recipients, kinds, whys, limits = [], [], [], follow_ups.limits()
    with connection.cursor() as cursor:
        cursor.execute(PEOPLE, [now, run.reminder_id, run.pk])
        for recipient, kind, suppressed, *person in cursor:
            recipients.append(recipient)
            gate = gates.may_receive(gates.TargetFacts(suppressed, Person(*person), run.follow_up), limits, now)
            kinds.append(kind)
            whys.append(gate.why if isinstance(gate, gates.Refuse) else "")
    return recipients, kinds, whys


def _keep_within_the_queues(run: Run, each: Turns, whys: Whys, accounts: Sequence[int]) -> None:
    """Backpressure: an account's queue takes only what the urgency allows."""
    limits = account_limits.queue_limits()
    account_limits.lock_queues(accounts)
    queued = account_limits.queued(accounts, limits.full)
    for n, place in enumerate(each):
        if place is not None and (why := not_admitted(queued[accounts[place]], run.urgency, limits)):
            each[n], whys[n] = None, why
        elif place is not None:
            queued[accounts[place]] += 1


def note_refused(run: Run, planned: Sequence[PlannedTarget], now: datetime) -> None:
    """A line in the run's timeline, and the account's tally."""
    reasons = Counter(target.why for _, target in planned if target.why)
    if not reasons:
        return
    Event.objects.create(run=run, at=now, verb="skipped at once", detail=in_words(reasons))
    if run.follow_up:
        counted: dict[tuple[int, str, str], int] = {
            (run.account_id, Tally.What.REFUSED, why): n for why, n in _without_numbers(reasons).items()
        }
        if any(why.startswith(("backpressure", "queue_full")) for why in reasons):
            counted[run.account_id, Tally.What.BACKPRESSURE, ""] = 1
        follow_ups.tally(counted)


def in_words(reasons: Counter[str]) -> str:
    """“3 opted_out, 2 cooldown_active_12h”, the most frequent first."""
    return ", ".join(f"{n} {why}" for why, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def _without_numbers(reasons: Counter[str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for why, n in reasons.items():
        counted[without_number(why)] += n
    return counted
