"""The forecast for an offload: what is left of runs through another account, and which of its own runs that delays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from accounts.addresses import PERSON
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.new_chats import new_among, scaled_to_all
from fanout.models import Run
from fanout.plans.forecast import Forecast, Reader, of_lanes
from fanout.plans.lane_work import LaneWork
from fanout.plans.outlook import look_ahead
from fanout.plans.owed import AccountPlan, Queued, Work
from fanout.plans.queue import account_plan, movable, part_count

# Seconds by which an offload delays another run before anybody needs to know.
WORTH_SAYING = 30.0


def forecast_offload(
    runs: Sequence[Run], account: Account, now: datetime, zone: str = "", plan: AccountPlan | None = None
) -> Forecast:
    """What is left of these runs, if another account sent what can be moved to it; and what that would delay."""
    lane = _offloaded(runs, account, plan or account_plan(account, now, max(runs, key=_due).action), now)
    first = min(runs, key=_due)
    forecast = of_lanes([lane], first.window, max(now, first.scheduled_for), Reader(now, zone))
    return replace(forecast, delays=tuple(_delays(lane, now).items()))


def _offloaded(runs: Sequence[Run], account: Account, plan: AccountPlan, now: datetime) -> LaneWork:
    runs = sorted(runs, key=_due)
    last = runs[-1]
    # What it sends of the last one already goes first too.
    before = plan.before(last.scheduled_for, last.pk + 1)
    mine = tuple(queued for run in runs for queued in _moved(run, account, plan, now))
    after = plan.queued_before[len(before.queued_before) :]
    return LaneWork(before, mine, channel(account.channel).noun, after)


def _moved(run: Run, account: Account, plan: AccountPlan, now: datetime) -> tuple[Queued, ...]:
    """What an offload of the run would add to the account's queue."""
    targets, starts = movable(run, account), max(now, run.scheduled_for)
    work = Work.of(targets.count(), part_count(run))
    moved = Queued(work, run.window, starts, follow_up=run.follow_up, action=run.action)
    if not plan.new_chats.limited(now):
        return (moved,)
    persons = targets.filter(recipient__kind=PERSON)
    return moved.split(scaled_to_all(new_among(persons, account.pk), persons.count()))


def _delays(lane: LaneWork, now: datetime) -> dict[int, float]:
    """The account's own runs that would end later, each with the seconds that it would wait longer."""
    owed = (*lane.account.queued_before, *lane.after)
    ends = {queued.run_id: run.last for queued, run in zip(owed, look_ahead(lane.account, owed, now).runs)}
    later = zip(lane.queue, look_ahead(lane.account, lane.queue, now).runs)
    waits = {queued.run_id: (run.last or 0.0) - (ends.get(queued.run_id) or math.inf) for queued, run in later}
    return {run: seconds for run, seconds in waits.items() if run and seconds >= WORTH_SAYING}


def _due(run: Run) -> tuple[datetime, int]:
    return run.scheduled_for, run.pk
