"""Every 15 minutes, skip queued follow-ups that may no longer go, with their reason, and clear cooldowns that are over.
Paused runs are included: they hold up the account's queue, too.

Nothing depends on it: the claim refuses the same people, and an expired cooldown counts as cleared. It keeps queues
short and the pages true. It works in batches, each a short transaction that locks the run first.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from fanout.database import Row, carry_out, execute
from fanout.lanes.lane_rows import wake_lanes
from fanout.lanes.telling import add_event
from fanout.models import Run, Tally
from fanout.rules import gates
from fanout.rules.follow_up_limits import Limits, Prospect, without_number
from fanout.runs import follow_ups, transitions
from fanout.runs.texts import left_out_counts

log = logging.getLogger("crier.hygiene")

BATCH = 1_000  # targets or recipients in one transaction
WORK_FOR = 30.0  # seconds: the next round goes on with what is left

READ = """
SELECT t.id, t.position, coalesce(s.reason, '') AS suppressed, p.status, p.follow_up_attempts, p.cooldown_until,
       p.limited
  FROM fanout_runtarget t JOIN reminders_recipient p ON p.id = t.recipient_id
  LEFT JOIN reminders_suppression s ON s.address = t.address AND (s.expires_at IS NULL OR s.expires_at > %(now)s)
 WHERE t.run_id = %(run)s AND t.status = 'pending' AND t.position > %(after)s
 ORDER BY t.position LIMIT %(batch)s
"""

SKIP_REFUSED = """
UPDATE fanout_runtarget t SET status = 'skipped', error = s.why, settled_at = %(now)s
  FROM unnest(%(targets)s::bigint[], %(whys)s::text[]) AS s(id, why)
 WHERE t.id = s.id AND t.status = 'pending'
RETURNING t.account_id, t.error AS why
"""

# Rows that are locked are left to the next round. An array is read once, so that the limit holds (SKIP_CANCELED in
# transitions.py).
CLEAR = """
UPDATE reminders_recipient p
   SET follow_up_attempts = 0, attempts_reset_at = p.cooldown_until, cooldown_until = NULL, limited = false,
       status = CASE WHEN p.limited AND p.status = 'not_interested' THEN 'active' ELSE p.status END
 WHERE p.id = ANY(ARRAY(SELECT id FROM reminders_recipient WHERE cooldown_until <= %(now)s
                         ORDER BY cooldown_until LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED))
RETURNING p.id
"""

# `rules.follow_up_limits.under_lower_limit`: after the limit was lowered.
BEGIN = """
UPDATE reminders_recipient p
   SET cooldown_until = %(now)s::timestamptz + %(cooldown)s::interval, limited = p.limited OR p.status = 'active',
       status = CASE WHEN p.status = 'active' THEN 'not_interested' ELSE p.status END
 WHERE p.id = ANY(ARRAY(SELECT id FROM reminders_recipient
                         WHERE follow_up_attempts >= %(attempts)s::int AND cooldown_until IS NULL
                         LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED))
RETURNING p.id
"""


@dataclass(slots=True)
class Round:
    """Counts of one round."""

    looked_at: int = 0
    cooldowns_over: int = 0
    cooldowns_begun: int = 0
    skipped: Counter[tuple[int, str]] = field(default_factory=Counter)  # by account and reason

    def __str__(self) -> str:
        reasons: Counter[str] = Counter()
        for (_, why), n in self.skipped.items():
            reasons[why] += n
        listed = f" ({left_out_counts(reasons)})" if reasons else ""
        return (
            f"{self.looked_at} queued follow-ups looked at, {reasons.total()} skipped{listed}, "
            f"{self.cooldowns_over} cooldowns over"
            + (f", {self.cooldowns_begun} begun" if self.cooldowns_begun else "")
        )


def clean_up(now: datetime) -> Round:
    """Do one round and write its line in the log, in the timelines of the accounts concerned and in the metrics."""
    this, until = Round(), time.monotonic() + WORK_FOR
    for run in Run.objects.filter(follow_up=True, status__in=Run.UNFINISHED, pending__gt=0).order_by("pk"):
        for batch in _batches(run, now):
            if time.monotonic() > until:
                break
            this.looked_at += len(batch)
            this.skipped += _skip(run, batch, now)
    while time.monotonic() < until and (over := _clear(now)):
        this.cooldowns_over += over
    while time.monotonic() < until and (begun := _begin(now)):
        this.cooldowns_begun += begun
    _note(this, now)
    return this


def _batches(run: Run, now: datetime) -> Iterator[list[Row]]:
    after = -1
    while batch := execute(READ, {"run": run.pk, "now": now, "after": after, "batch": BATCH}):
        yield batch
        after = batch[-1]["position"]


def _skip(run: Run, batch: list[Row], now: datetime) -> Counter[tuple[int, str]]:
    """Skip the targets of the batch that may not get it any more; returns them by account and reason."""
    limits = follow_ups.limits()
    refused = {row["id"]: why for row in batch if (why := _refusal(row, limits, now))}
    if not refused:
        return Counter()
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).get(pk=run.pk)
        rows = execute(SKIP_REFUSED, {"targets": list(refused), "whys": list(refused.values()), "now": now})
        if run.status == Run.Status.PAUSED:
            carry_out(transitions.finish(run.pk, now))
        # Perhaps nothing is left, and a lane should finish the run. No lane reads a paused one.
        wake_lanes({row["account_id"] for row in rows}, now)
    return Counter((row["account_id"], row["why"]) for row in rows)


def _refusal(row: Row, limits: Limits, now: datetime) -> str:
    person = Prospect(
        row["status"], row["follow_up_attempts"], cooldown_until=row["cooldown_until"], limited=row["limited"]
    )
    gate = gates.may_receive(gates.TargetFacts(row["suppressed"], person, follow_up=True), limits, now)
    return gate.why if isinstance(gate, gates.Refuse) else ""


def _clear(now: datetime) -> int:
    return len(execute(CLEAR, {"now": now, "batch": BATCH}))


def _begin(now: datetime) -> int:
    attempts, cooldown = follow_ups.limits_in_sql()
    return len(execute(BEGIN, {"now": now, "batch": BATCH, "attempts": attempts, "cooldown": cooldown}))


def _note(this: Round, now: datetime) -> None:
    log.info("%s", this)
    removed: Counter[tuple[int, str, str]] = Counter()
    by_account: dict[int, Counter[str]] = {}
    for (account, why), n in this.skipped.items():
        removed[account, Tally.What.REMOVED, without_number(why)] += n
        by_account.setdefault(account, Counter())[why] += n
    for account, reasons in by_account.items():
        detail = f"{reasons.total()} skipped: {left_out_counts(reasons)}"
        execute(*add_event(now, "follow-ups cleaned up", detail, account=account))
    follow_ups.tally(removed)
