"""How long the rest of a run takes by the pace and the new chats of its accounts, whenever it goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fanout.models import Run
from fanout.plans.binding import slowest
from fanout.plans.owed import AccountPlan
from fanout.plans.queue import ByLane, part_count

DAY = 86_400.0


def seconds_to_send(run: Run, plans: Mapping[int, AccountPlan], new: ByLane) -> float:
    """How long the rest of a run takes by the pace and the new chats of its accounts, whenever it goes on; infinity: it
    has new chats left and may begin none."""
    lanes = [plans[pk] for pk in run.lanes if pk in plans]
    days = [_days_of_new_chats(new.get((run.pk, plan.account_id), 0), plan.new_chats.budget) for plan in lanes]
    return max([_seconds_at_pace(run, lanes), *(DAY * (n - 1) for n in days)])


def _days_of_new_chats(new: int, budget: int | None) -> float:
    if not new or budget is None:
        return 1
    return math.ceil(new / budget) if budget else math.inf


def _seconds_at_pace(run: Run, lanes: Sequence[AccountPlan]) -> float:
    parts = part_count(run)
    messages = (run.pending + run.sending) * parts
    each = [slowest(plan.pace, parts, plan.concurrency, plan.latency, plan.jitter)[1] for plan in lanes]
    return messages / sum(1 / max(seconds, 1e-6) for seconds in each) if each else 0.0
