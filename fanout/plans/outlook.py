"""Look ahead through an account's queue: when each run begins and ends, its targets day by day, the runs in front of
it, and the limit that decides its end. Pure.

The first messages are projected one by one. The rest, which may be a million, follows in blocks: period by period, at
the speed that the projection had while it could send.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import islice
from typing import NamedTuple

from fanout.plans.projection import (
    AccountSnapshot,
    DailyCap,
    Even,
    ProjectedRun,
    Queued,
    SendingPeriod,
    as_datetime,
    project_sends,
    projected_limits,
    whose_turn,
)
from fanout.rules.gates import BUSINESS_HOURS, DAILY_CAP, NEW_CHAT_BUDGET, NEW_CHAT_HOLD, Held, held_by, local_date
from fanout.rules.new_chat_limits import wait_for_new_chats
from fanout.rules.pace import PaceSettings
from reminders.window import LOOK_AHEAD

MOST_PROJECTED = 2_000
#: fewer distances than these do not tell a lane's speed by themselves
MEASURABLE = 1_000


@dataclass(frozen=True, slots=True)
class DayPlan:
    """One day of the window: the targets done on it, and when its first and its last message go out."""

    date: date
    targets: int
    messages: int
    begins_at: datetime
    ends_at: datetime


@dataclass(slots=True)
class RunOutlook:
    """Outlook of one run in one lane. `in_front`: queue positions of the runs sent first although this one could go."""

    days: list[DayPlan] = field(default_factory=list)
    targets: int = 0
    messages: int = 0
    first: float | None = None
    last: float | None = None
    period: SendingPeriod | None = None  # in which its first message goes out
    in_front: list[int] = field(default_factory=list)

    def add(self, period: SendingPeriod, first: float, last: float, messages: int, targets: int) -> None:
        self.messages += messages
        self.targets += targets
        self.last, begins_at = last, as_datetime(first)
        if self.days and self.days[-1].date == period.day:
            day = self.days.pop()
            messages, targets, begins_at = messages + day.messages, targets + day.targets, day.begins_at
        self.days.append(DayPlan(period.day, targets, messages, begins_at, as_datetime(last)))


@dataclass(slots=True)
class LaneOutlook:
    """Outlook of the whole queue. By the account's calendar day it counts messages, which use the cap of their action
    (`AccountSnapshot.counted`), and new chats, which use the budget."""

    runs: list[RunOutlook]
    by_cap: defaultdict[str, Counter[date | None]] = field(default_factory=lambda: defaultdict(Counter))
    new_chats: Counter[date | None] = field(default_factory=Counter)


class Block(NamedTuple):
    """Messages of one run that go out one after the other; `targets` are done with them."""

    number: int
    period: SendingPeriod
    first: float
    last: float
    messages: int
    targets: int


def look_ahead(
    account: AccountSnapshot,
    queue: Sequence[Queued],
    now: datetime,
    wanted: Collection[int] | None = None,
    projected: int = MOST_PROJECTED,
) -> LaneOutlook:
    """Look through the queue until the runs at the `wanted` positions are done; None: until all are. `projected`: the
    messages that are looked at one by one."""
    ahead = LaneOutlook([RunOutlook() for _ in queue])
    waited_for = {n for n, queued in enumerate(queue) if queued.work.targets and (wanted is None or n in wanted)}
    may_send = {n for n, queued in enumerate(queue) if _may_send(account, queued, now)}
    for block in _blocks(account, queue, now, ahead, projected):
        run = ahead.runs[block.number]
        if run.period is None:
            run.first, run.period = block.first, block.period
            run.in_front = _begun(ahead.runs, block.number) if block.number in may_send else []
        run.add(block.period, block.first, block.last, block.messages, block.targets)
        if block.period.account_day is not None:
            ahead.by_cap[account.counted(queue[block.number])][block.period.account_day] += block.messages
            ahead.new_chats[block.period.account_day] += block.targets * queue[block.number].new_chats
        if run.targets == queue[block.number].work.targets:
            waited_for.discard(block.number)
            if not waited_for:
                break
    return ahead


def messages_left_at(account: AccountSnapshot, queue: Sequence[Queued], at: datetime, now: datetime) -> int:
    """Count the messages of the queue that are still to be sent at a later moment."""
    ahead = LaneOutlook([RunOutlook() for _ in queue])
    for block in _blocks(account, queue, now, ahead):
        if block.first >= at.timestamp():
            break
        sent = _part_before(block, at.timestamp())
        ahead.runs[block.number].add(block.period, block.first, block.last, sent, block.targets)
    return sum(queued.work.messages for queued in queue) - sum(run.messages for run in ahead.runs)


def _part_before(block: Block, at: float) -> int:
    """Count its messages before `at`; they go out at even distances."""
    if block.last < at or block.last <= block.first:
        return block.messages
    return int(block.messages * (at - block.first) / (block.last - block.first))


def _may_send(account: AccountSnapshot, queued: Queued, now: datetime) -> bool:
    """Return whether only the queue can hold it back now."""
    if queued.new_chats and wait_for_new_chats(account.new_chats, now):
        return False
    return queued.starts <= now and queued.window.meets(account.hours, now) == now


def _begun(runs: Sequence[RunOutlook], number: int) -> list[int]:
    return [n for n, run in enumerate(runs) if n != number and run.first is not None]


def _blocks(
    account: AccountSnapshot,
    queue: Sequence[Queued],
    now: datetime,
    ahead: LaneOutlook,
    most: int = MOST_PROJECTED,
) -> Iterator[Block]:
    at, sending, gaps, period = now.timestamp(), 0.0, 0, None
    projected = 0
    for send in islice(project_sends(account, queue, now, Even()), most):
        if send.period is period:
            sending, gaps = sending + send.at - at, gaps + 1
        at, period, projected = send.at, send.period, projected + 1
        yield Block(send.run, send.period, at, at, 1, int(send.last))
    if projected == most:
        seconds = sending / max(gaps, 1)
        if gaps < MEASURABLE:
            # Bursts make the first messages faster than the rest, and runs of one message have no distance at all.
            parts = max(queued.work.parts for queued in queue)
            pace = slowest(account.pace_settings, parts, account.concurrency, account.latency, account.jitter)[1]
            seconds = max(seconds, pace)
        yield from _at_speed(account, queue, ahead, at, seconds, now)


def _at_speed(
    account: AccountSnapshot, queue: Sequence[Queued], ahead: LaneOutlook, at: float, seconds: float, now: datetime
) -> Iterator[Block]:
    """Yield what the projection has left, with a message every so many seconds, period by period."""
    left = [queued.work.messages - run.messages for queued, run in zip(queue, ahead.runs)]
    limits = projected_limits(account, now, ahead.by_cap, ahead.new_chats)
    runs = [ProjectedRun(n, queued, account, as_datetime(at), limits) for n, queued in enumerate(queue)]
    idle_since, seconds = at, max(seconds, 1e-6)
    while (runs := [run for run in runs if left[run.number]]) and at - idle_since <= LOOK_AHEAD.total_seconds():
        run, until = whose_turn(runs, at)
        if run is None or run.period is None:
            if until == math.inf:
                return
            at = until
            continue
        number, day, parts = run.number, run.period.account_day, queue[run.number].work.parts
        messages = int(min(left[number], (until - at) / seconds, run.messages_left, run.chats_left * parts))
        if messages > 0:
            left[number] -= messages
            done = queue[number].work.targets - math.ceil(left[number] / parts)
            last = at + messages * seconds
            run.cap.use(day, messages)
            run.begin(math.ceil(messages / parts))
            yield Block(number, run.period, at, last, messages, done - ahead.runs[number].targets)
            at = idle_since = last
        if left[number] and not run.spent:
            at = until


# --- several as one -------------------------------------------------------------------------------------


def combined(runs: Sequence[RunOutlook]) -> RunOutlook:
    """Return the outlook of several runs as if they were one."""
    begun = sorted((run for run in runs if run.first is not None), key=lambda run: run.first or 0.0)
    if len(begun) < 2:
        return begun[0] if begun else RunOutlook()
    return replace(
        begun[0],
        days=merged_days([day for run in begun for day in run.days]),
        targets=sum(run.targets for run in begun),
        last=max(run.last or 0.0 for run in begun),
    )


def merged_days(days: Sequence[DayPlan]) -> list[DayPlan]:
    """Return the days of all lanes, in order."""
    merged: dict[date, DayPlan] = {}
    for day in days:
        other = merged.get(day.date, DayPlan(day.date, 0, 0, day.begins_at, day.ends_at))
        merged[day.date] = DayPlan(
            day.date,
            day.targets + other.targets,
            day.messages + other.messages,
            min(day.begins_at, other.begins_at),
            max(day.ends_at, other.ends_at),
        )
    return [merged[date] for date in sorted(merged)]


# --- one lane's share of a forecast ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneWork:
    """One lane's share of the work that is forecast, with the account and the queue before it. `after`: later runs of
    the lane, which go first while this one may not send."""

    account: AccountSnapshot
    mine: tuple[Queued, ...]
    kinds: frozenset[str] = frozenset()
    after: tuple[Queued, ...] = ()

    @property
    def targets(self) -> int:
        return sum(queued.work.targets for queued in self.mine)

    @property
    def parts(self) -> int:
        return max((queued.work.parts for queued in self.mine), default=1)

    @property
    def queue(self) -> tuple[Queued, ...]:
        return (*self.account.queued_before, *self.mine, *self.after)

    @property
    def counted(self) -> str:
        """The action whose cap its messages use."""
        return self.account.counted(self.mine[0]) if self.mine else ""

    @property
    def cap(self) -> DailyCap:
        return self.account.caps[self.counted]

    @property
    def positions(self) -> range:
        """Positions of its own work in the queue."""
        begin = len(self.account.queued_before)
        return range(begin, begin + len(self.mine))


@dataclass(slots=True)
class LaneShare:
    """One lane's part of a forecast: its work, and the outlook of the lane."""

    lane: LaneWork
    ahead: LaneOutlook
    mine: RunOutlook

    @property
    def end(self) -> float:
        """Moment at which the lane is done; infinity: never."""
        if self.mine.targets < self.lane.targets:
            return math.inf
        return self.mine.last + self.lane.account.latency if self.mine.last is not None else 0.0


def share_of(lane: LaneWork, ahead: LaneOutlook) -> LaneShare:
    return LaneShare(lane, ahead, combined([ahead.runs[position] for position in lane.positions]))


# --- the limit that decides the end ----------------------------------------------------------------------


def what_binds(share: LaneShare, now: datetime) -> str:
    """Return the name of the limit to change if the lane should be done sooner."""
    lane, account = share.lane, share.lane.account
    if not lane.targets:
        return "nothing"
    if new_chats := _new_chats_bind(share, now):
        return new_chats
    if lane.cap.cap is not None and _cap_stops(share, now):
        return DAILY_CAP.name
    period, last = share.mine.period, share.mine.last
    if period is None or last is None or (last >= period.ends and period.ended_by == BUSINESS_HOURS.name):
        return BUSINESS_HOURS.name
    if (hold := hold_that_binds(share, now)) is not None:
        return hold.limit
    return slowest(account.pace_settings, lane.parts, account.concurrency, account.latency, account.jitter)[0]


def hold_that_binds(share: LaneShare, now: datetime) -> Held | None:
    """Return what keeps the account from sending for now, if that lasts longer than the sending itself."""
    hold = held_by(share.lane.account.base_facts, now)
    if hold is None or not share.lane.mine:
        return None
    starts = max(now, min(queued.starts for queued in share.lane.mine)).timestamp()
    until = hold.until.timestamp()
    return hold if until - starts >= share.end - until else None


def _cap_stops(share: LaneShare, now: datetime) -> bool:
    """Return whether the cap of today, or of the day it starts on, is used up before the work is done."""
    lane, period, by_cap = share.lane, share.mine.period, share.ahead.by_cap[share.lane.counted]
    today = local_date(lane.account.hours.timezone, now)
    last_day = next(reversed(by_cap), None)
    for day in {today, period.account_day if period else None} - {None, last_day}:
        cap = lane.cap.on(day) if day else None
        if cap is not None and by_cap[day] + (lane.cap.used if day == today else 0) >= cap:
            return True
    return share.mine.targets < share.lane.targets and period is None


def _new_chats_bind(share: LaneShare, now: datetime) -> str:
    """Return the limit of new chats that decides when the work is done; empty: none does."""
    lane, chats = share.lane, share.lane.account.new_chats
    new = [(lane.queue[n], share.ahead.runs[n]) for n in lane.positions if lane.queue[n].new_chats]
    if not new or not any(run.last is None or run.last == share.mine.last for _, run in new):
        return ""
    starts = max(now, min(queued.starts for queued, _ in new))
    if chats.budget is not None and _budget_used_up(share, chats.budget, starts, now):
        return NEW_CHAT_BUDGET.name
    return NEW_CHAT_HOLD.name if chats.hold.lasts(starts) else ""


def _budget_used_up(share: LaneShare, budget: int, starts: datetime, now: datetime) -> bool:
    """Return whether the budget is used up on a day before the work is done."""
    account = share.lane.account
    today, first = (local_date(account.hours.timezone, at) for at in (now, starts))
    begun = {first: 0} | share.ahead.new_chats
    begun[today] = begun.get(today, 0) + account.new_chats.begun
    last = local_date(account.hours.timezone, as_datetime(share.end)) if share.end < math.inf else None
    return any(n >= budget for day, n in begun.items() if day and day >= first and (last is None or day < last))


def slowest(
    pace: PaceSettings, parts: int, concurrency: int, latency: float, jitter: tuple[float, float]
) -> tuple[str, float]:
    """Return the limit that holds a lane back while it may send, and the seconds per message it comes to."""
    busy = parts * latency + (parts - 1) * sum(jitter) / 2
    delays = {
        "pace": pace.interval,
        "gap": (pace.min_gap + pace.max_gap) / 2 if pace.max_gap else 0.0,
        "provider": busy / (parts * concurrency),
    }
    cause = max(delays, key=lambda name: delays[name])
    pause = pace.batch_pause / pace.batch_size if pace.batch_size else 0.0
    return "batch pauses" if pause > delays[cause] else cause, delays[cause] + pause
