"""A lane run ahead of time, by its own rules: windows, hours, caps, rate, gaps, batches. Pure.

`walk` goes through everything it owes. The plan stores what it yields with the run's targets; the forecast counts it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from typing import NamedTuple

from fanout.plans.owed import AccountPlan, DailyCap, Queued
from fanout.plans.stretches import Stretch, stretches
from fanout.rules.gates import local_date
from fanout.rules.pace import Bucket, recovered
from reminders.window import LOOK_AHEAD

NOTHING: Mapping[date | None, int] = {}


class Send(NamedTuple):
    """A message of the run at this place in the queue."""

    run: int
    stretch: Stretch
    at: float
    first: bool  # of its target
    last: bool  # of its target


def walk(account: AccountPlan, queue: Sequence[Queued], now: datetime, rng: random.Random) -> Iterator[Send]:
    """Every message in turn: of the first run in the queue that may send at that moment.

    Ends early where no window meets the hours, or the cap is zero for months.
    """
    lane, limits = LaneAhead(account, now, rng), limits_ahead(account, now)
    lane.follow_ups = sum(queued.work.targets for queued in queue if queued.follow_up)
    runs = [RunAhead(number, queued, account, now, limits) for number, queued in enumerate(queue)]
    at = idle_since = now.timestamp()
    while (runs := [run for run in runs if not run.done]) and at - idle_since <= LOOK_AHEAD.total_seconds():
        run, until = whose_turn(runs, at)
        if run is None or run.stretch is None:
            if until == math.inf:
                return
            at = until
            continue
        stretch, day = run.stretch, run.stretch.account_day
        while not run.done and run.cap.left_on(day) > 0 and (slot := lane.next_at(run, at)) < until:
            at = idle_since = slot
            run.cap.use(day)
            yield Send(run.number, stretch, at, *lane.send(run, at))
        if not run.done:
            at = at if run.spent else until
            lane.let_go(run, at)


def whose_turn(runs: Sequence[RunAhead], at: float) -> tuple[RunAhead | None, float]:
    """The first run that may send now, and how long that answer holds."""
    until = math.inf
    for run in runs:
        run.skip_stretches(at)
        if run.stretch is not None and run.stretch.starts <= at:
            return run, min(until, run.stretch.ends)
        if run.stretch is not None:
            until = min(until, run.stretch.starts)
    return None, until


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- runs, the lane and its limits ----------------------------------------------------------------------


class RunAhead:
    """A run in the walk: its targets in order, and the stretches in which it may send. `limits`: of messages and of new
    chats, which all runs of the lane share."""

    def __init__(self, number: int, queued: Queued, account: AccountPlan, now: datetime, limits: LimitsAhead) -> None:
        self.number = number
        self.follow_up = queued.follow_up
        # Of each target how many parts are left, and whether the first is among them.
        self.targets: Iterator[tuple[int, bool]] = ((parts, True) for parts in queued.work.queue())
        self.up_next = next(self.targets, None)
        self.begun: list[tuple[float, int]] = []  # between two parts: when the next is ready, and how many are left
        self.budget = limits.budget if queued.new_chats else None
        self.cap = limits.caps[account.counted(queued)]
        by_day = self.cap.counts or queued.new_chats
        self.stretches = stretches(queued.window, account.hours, _starts(queued, account, now), by_day)
        # A budget of nothing is used up on every day to come.
        never = queued.new_chats and account.new_chats.budget == 0
        self.stretch = None if never else next(self.stretches, None)

    @property
    def done(self) -> bool:
        return self.up_next is None and not self.begun

    def take(self) -> tuple[int, bool]:
        assert self.up_next is not None  # done says so
        target, self.up_next = self.up_next, next(self.targets, None)
        if target[1]:
            self.begin(1)
        return target

    @property
    def chats_left(self) -> float:
        """How many targets it may begin in its stretch."""
        if self.budget is None or self.stretch is None:
            return math.inf
        return self.budget.left_on(self.stretch.account_day)

    def begin(self, targets: int) -> None:
        if self.budget is not None and self.stretch is not None:
            self.budget.use(self.stretch.account_day, targets)

    @property
    def may_begin(self) -> bool:
        """The next target, which may have had a part already."""
        return self.up_next is not None and (not self.up_next[1] or self.chats_left > 0)

    @property
    def messages_left(self) -> float:
        """How many the cap of its action allows in its stretch."""
        return self.cap.left_on(self.stretch.account_day) if self.stretch is not None else math.inf

    @property
    def spent(self) -> bool:
        """Whether only a new day lets it go on: others, which have other limits, may send meanwhile."""
        out_of_chats = self.up_next is not None and not self.may_begin and not self.begun
        return out_of_chats or self.messages_left <= 0

    def put_back(self) -> int:
        """Targets between two parts come first when the run goes on. Returns how many."""
        again = [(parts, False) for _, parts in self.begun]
        self.begun = []
        self.targets = chain([*again, self.up_next] if self.up_next else again, self.targets)
        self.up_next = next(self.targets, None)
        return len(again)

    def skip_stretches(self, at: float) -> None:
        while self.stretch is not None and (self.stretch.ends <= at or (self.stretch.starts <= at and self.spent)):
            self.stretch = next(self.stretches, None)


def _starts(queued: Queued, account: AccountPlan, now: datetime) -> datetime:
    hold = account.new_chats.hold.until if queued.new_chats else None
    return max(now, queued.starts, hold or now)


class LaneAhead:
    """The places of a lane: as many targets at once as its concurrency, each target's parts in order.

    Answers take from half to one and a half times the usual latency.
    """

    def __init__(self, account: AccountPlan, now: datetime, rng: random.Random) -> None:
        self.bucket = Bucket(account.state, account.pace)
        self.follow_ups = 0  # targets of them that are left
        self.pressed_above = account.pressed_above
        self.gaps = rng
        self.latency = (account.latency / 2, account.latency * 1.5)
        self.jitter = account.jitter
        # A sequence each, so that no place always gets the short draws of one and the long ones of the other.
        self.latencies, self.jitters = Even(), Even()
        self.free = [now.timestamp()] * account.concurrency  # when each place is free; a heap

    def next_at(self, run: RunAhead, now: float) -> float:
        ready = run.begun[0][0] if run.begun else math.inf
        if run.may_begin and self.free:
            ready = min(ready, self.free[0])
        return max(self.bucket.next_slot(now), ready)

    def send(self, run: RunAhead, at: float) -> tuple[bool, bool]:
        """One message goes out. Says whether it was its target's first, and its last."""
        if run.begun and run.begun[0][0] <= at:
            parts, first = heapq.heappop(run.begun)[1], False
        else:
            heapq.heappop(self.free)
            parts, first = run.take()
        self._spend(at, run.follow_up and self.follow_ups > self.pressed_above)
        self.follow_ups -= run.follow_up and parts == 1
        landed = at + self.latencies.uniform(*self.latency)
        if parts > 1:
            heapq.heappush(run.begun, (landed + self.jitters.uniform(*self.jitter), parts - 1))
        else:
            heapq.heappush(self.free, landed)
        return first, parts == 1

    def _spend(self, at: float, pressed: bool) -> None:
        bucket = self.bucket
        bucket.spend(at, self.gaps, pressed)
        if bucket.factor > 1:
            # Sending is expected to go well from here on, and a slow-down is then taken back.
            bucket.slow_down(recovered(bucket.factor))

    def let_go(self, run: RunAhead, at: float) -> None:
        """The run stops for now: its targets between two parts hold no place."""
        for _ in range(run.put_back()):
            heapq.heappush(self.free, at)


class Even(random.Random):
    """Draws that cover their range evenly (by the golden ratio): few of them have the mean that many have."""

    def __init__(self) -> None:
        super().__init__(0)
        self.last = 0.5

    def random(self) -> float:
        self.last = (self.last + 0.6180339887498949) % 1
        return self.last


class LimitAhead:
    """What a daily limit still allows, by the account's calendar day. `planned`: what uses it already."""

    def __init__(self, limit: DailyCap, today: date, planned: Mapping[date | None, int] = NOTHING) -> None:
        self.counts = limit.cap is not None
        self.limit_on, self.used = limit.on, limit.used
        self.today = today
        self.planned = planned
        self.left: dict[date | None, float] = {None: math.inf}

    def left_on(self, day: date | None) -> float:
        if day is not None and day not in self.left:
            limit, used = self.limit_on(day), self.used if day == self.today else 0
            self.left[day] = math.inf if limit is None else limit - used - self.planned.get(day, 0)
        return self.left[day]

    def use(self, day: date | None, n: int = 1) -> None:
        self.left[day] = self.left_on(day) - n


class LimitsAhead(NamedTuple):
    """Of messages by action, and of new chats."""

    caps: Mapping[str, LimitAhead]
    budget: LimitAhead


def limits_ahead(
    account: AccountPlan,
    now: datetime,
    messages: Mapping[str, Mapping[date | None, int]] | None = None,
    new_chats: Mapping[date | None, int] = NOTHING,
) -> LimitsAhead:
    """`messages` and `new_chats`: how many are planned already, by action and day."""
    today, messages = local_date(account.hours.timezone, now), messages or {}
    caps = {action: LimitAhead(cap, today, messages.get(action, NOTHING)) for action, cap in account.caps.items()}
    return LimitsAhead(caps, LimitAhead(DailyCap(account.new_chats.budget, account.new_chats.begun), today, new_chats))
