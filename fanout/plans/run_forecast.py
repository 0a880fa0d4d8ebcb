"""The forecast for what is left of runs, between what their lanes owe to others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.db.models import Q

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models import Run
from fanout.plans.forecast import NOTHING, Forecast, Reader, assemble
from fanout.plans.lane_work import LaneWork, share_of
from fanout.plans.outlook import look_ahead
from fanout.plans.owed import AccountPlan, Queued, Work
from fanout.plans.queue import (
    ByLane,
    Senders,
    account_plans,
    lane_order,
    lanes_of,
    new_chats_left,
    queued_for,
    read_senders,
    starts_at,
    work_by_account,
)


def forecast_run(run: Run, now: datetime, zone: str = "") -> Forecast:
    """What is left of a run, between what its lanes owe to others. A paused one as if it were resumed now."""
    return forecast_runs([run], now, zone)[run.pk]


def forecast_runs(
    runs: Sequence[Run], now: datetime, zone: str = "", senders: Senders | None = None
) -> dict[int, Forecast]:
    """The same for many runs: one look through the queue of each account. `senders`: where they have been read."""
    unqueued = {run: work_by_account(run) for run in runs if not _wholly_queued(run)}
    actions = {pk: run.action for run in reversed(runs) for pk in (*lanes_of(run), *unqueued.get(run, ()))}
    accounts, plans = senders or _senders(runs, actions, now)
    left = {(run.pk, pk): work.targets for run, by_lane in unqueued.items() for pk, work in by_lane.items()}
    new = new_chats_left(left, plans, now)
    queues = {pk: _with(unqueued, pk, plans[pk].queued_before, new, now) for pk in actions if pk in plans}
    asked = {run.pk for run in runs}
    outlooks = {pk: look_ahead(plans[pk], queue, now, _places(queue, asked)) for pk, queue in queues.items()}
    forecasts = {}
    for run in runs:
        lanes = [(pk, places) for pk, queue in queues.items() if (places := _places(queue, {run.pk}))]
        mine = [share_of(_lane(plans[pk], queues[pk], places, accounts[pk]), outlooks[pk]) for pk, places in lanes]
        forecasts[run.pk] = assemble(mine, run.window, goes_on_from(run, now), Reader(now, zone)) if mine else NOTHING
    return forecasts


def _senders(runs: Sequence[Run], actions: Mapping[int, str], now: datetime) -> Senders:
    if len(runs) == 1 and actions.keys() <= {runs[0].account_id}:
        account = runs[0].account  # which a page has read already
        return Senders({account.pk: account}, account_plans([account], now, actions))
    return read_senders(Q(pk__in=actions), now, actions)


def _wholly_queued(run: Run) -> bool:
    """Whether all that is left of it stands in the queues of its lanes; not where one of them has stepped aside."""
    aside = {int(pk) for pk in run.slips} - {*run.lanes}
    going = (*Run.LIVE, Run.Status.PREPARING)
    return not aside and (run.status in going or (run.status == Run.Status.PAUSED and run.resume_at is not None))


def _with(
    unqueued: Mapping[Run, Mapping[int, Work]], account: int, queue: Sequence[Queued], new: ByLane, now: datetime
) -> tuple[Queued, ...]:
    """The account's queue, with what it would send of runs that are not in it. A paused one may stand there for a later
    time than it is asked about."""
    asked = {run.pk for run in unqueued if run.status == Run.Status.PAUSED}
    queue = [queued for queued in queue if queued.run_id not in asked]
    here = {queued.run_id for queued in queue}
    added = [
        queued
        for run, work in unqueued.items()
        if account in work and run.pk not in here
        for queued in queued_for(run, work[account], goes_on_from(run, now)).split(new.get((run.pk, account), 0))
    ]
    return tuple(sorted([*queue, *added], key=lane_order)) if added else tuple(queue)


def _places(queue: Sequence[Queued], runs: Collection[int]) -> list[int]:
    return [place for place, queued in enumerate(queue) if queued.run_id in runs]


def _lane(plan: AccountPlan, queue: tuple[Queued, ...], places: Sequence[int], account: Account) -> LaneWork:
    first, end = places[0], places[-1] + 1  # they lie side by side
    before = replace(plan, queued_before=queue[:first])
    return LaneWork(before, queue[first:end], channel(account.channel).noun, queue[end:])


def goes_on_from(run: Run, now: datetime) -> datetime:
    """When the run may send at the earliest, whatever its window says."""
    return max(now, starts_at(run))
