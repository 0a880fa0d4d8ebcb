"""Project what a lane will send, message by message, by its own rules: windows, hours, caps, rate, gaps, batches.

`project_sends` goes through the account's whole queue. The plan stores the moments with the run's targets; the forecast
counts them. Pure: the queue and the account are plain values, read by `queue.py`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import chain
from typing import NamedTuple

from accounts.channels.registry import channel
from fanout.lanes.account_state import AccountState
from fanout.rules.gates import BUSINESS_HOURS, DELIVERY_WINDOW, held_by, local_date
from fanout.rules.pace import Bucket, held, recovered
from reminders.window import LOOK_AHEAD, BusinessHours, Window, local_day_bounds

# --- the account and its queue ---------------------------------------------------------------------------

CapOn = Callable[[date], int | None]


@dataclass(frozen=True, slots=True)
class Work:
    """Messages left to send. `messages` is below targets × parts where some targets have had a part."""

    messages: int
    parts: int
    targets: int

    @classmethod
    def of(cls, targets: int, parts: int = 1) -> Work:
        return cls(targets * parts, parts, targets)

    def queue(self) -> Iterator[int]:
        """Yield for each target how many parts it still gets. Targets that have had some come first, as in the lane."""
        begun = self.targets * self.parts - self.messages
        for _ in range(self.targets):
            had = min(begun, self.parts - 1)
            begun -= had
            yield self.parts - had


@dataclass(frozen=True, slots=True)
class Queued:
    """A run in the account's queue: its work, its window, and its start. It goes on at each opening until it is
    done."""

    work: Work
    window: Window
    starts: datetime
    # A lane takes its runs in this order: when they were due, and their number.
    due: tuple[datetime, int] | None = None
    follow_up: bool = False
    run_id: int = 0
    # Only persons to whom the account has not written yet.
    new_chats: bool = False
    # Only targets that wait for another try.
    retries: bool = False
    # The run's action; empty: the action that the snapshot was asked about.
    action: str = ""

    def split(self, new: int) -> tuple[Queued, ...]:
        """Split off the new chats, which have limits of their own. They come first: new chats that had to wait stand at
        the head of the run when they may go."""
        work, new = self.work, min(new, self.work.targets)
        others = work.targets - new
        parts = [
            replace(self, work=Work.of(new, work.parts), new_chats=True),
            replace(self, work=Work(max(work.messages - new * work.parts, others), work.parts, others)),
        ]
        return tuple(part for part in parts if part.work.targets) if new else (self,)


class DailyCap(NamedTuple):
    """Daily cap of one action, and how much of today's is used."""

    cap: int | CapOn | None = None
    used: int = 0

    def on(self, day: date) -> int | None:
        return self.cap(day) if callable(self.cap) else self.cap


@dataclass(slots=True, kw_only=True)
class AccountSnapshot(AccountState):
    """An account as planning sees it: the stored state with its caps and its queue. `cap` and `used` belong to the
    action that was asked about."""

    cap: int | CapOn | None = None
    used: int = 0
    # The caps of further actions that its channel counts.
    others: Mapping[str, DailyCap] = field(default_factory=dict)
    latency: float = 0.2
    # Follow-ups left above which they wait longer between sends.
    backpressure_above: int = 200
    # Earlier runs, which the lane sends first.
    queued_before: tuple[Queued, ...] = ()

    @property
    def caps(self) -> dict[str, DailyCap]:
        """Caps by action; the action that was asked about has an empty name."""
        return {"": DailyCap(self.cap, self.used), **self.others}

    def counted(self, queued: Queued) -> str:
        """Return the action whose cap the run's messages use."""
        action = channel(self.channel).counts(queued.action) if queued.action else ""
        return action if action in self.others else ""

    def before(self, due: datetime, run_id: int = 0) -> AccountSnapshot:
        """Return the account with only that part of its queue that goes out before a run due at this moment."""
        earlier = (queued for queued in self.queued_before if queued.due is None or queued.due < (due, run_id))
        return replace(self, queued_before=tuple(earlier))


# --- the projection --------------------------------------------------------------------------------------

NOTHING: Mapping[date | None, int] = {}


class ProjectedSend(NamedTuple):
    """One message of the run at this position of the queue."""

    run: int
    period: SendingPeriod
    at: float
    first: bool  # of its target
    last: bool  # of its target


def project_sends(
    account: AccountSnapshot, queue: Sequence[Queued], now: datetime, rng: random.Random
) -> Iterator[ProjectedSend]:
    """Yield every message in turn: always of the first run in the queue that may send at that moment.

    Ends early where no window meets the hours, or the cap is zero for months.
    """
    lane, limits = ProjectedLane(account, now, rng), projected_limits(account, now)
    lane.follow_ups = sum(queued.work.targets for queued in queue if queued.follow_up)
    runs = [ProjectedRun(number, queued, account, now, limits) for number, queued in enumerate(queue)]
    at = idle_since = now.timestamp()
    while (runs := [run for run in runs if not run.done]) and at - idle_since <= LOOK_AHEAD.total_seconds():
        run, until = whose_turn(runs, at)
        if run is None or run.period is None:
            if until == math.inf:
                return
            at = until
            continue
        period, day = run.period, run.period.account_day
        while not run.done and run.cap.left_on(day) > 0 and (earliest := lane.next_at(run, at)) < until:
            at = idle_since = earliest
            run.cap.use(day)
            yield ProjectedSend(run.number, period, at, *lane.send(run, at))
        if not run.done:
            at = at if run.spent else until
            lane.release(run, at)


def whose_turn(runs: Sequence[ProjectedRun], at: float) -> tuple[ProjectedRun | None, float]:
    """Return the first run that may send now, and until when that holds."""
    until = math.inf
    for run in runs:
        run.skip_periods(at)
        if run.period is not None and run.period.starts <= at:
            return run, min(until, run.period.ends)
        if run.period is not None:
            until = min(until, run.period.starts)
    return None, until


def as_datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- runs, the lane and its limits ----------------------------------------------------------------------


class ProjectedRun:
    """A run in the projection: its targets in order, and the periods in which it may send. `limits`, of messages and of
    new chats, are shared by all runs of the lane."""

    def __init__(
        self, number: int, queued: Queued, account: AccountSnapshot, now: datetime, limits: ProjectedLimits
    ) -> None:
        self.number = number
        self.follow_up = queued.follow_up
        # For each target: how many parts are left, and whether the first is among them.
        self.targets: Iterator[tuple[int, bool]] = ((parts, True) for parts in queued.work.queue())
        self.up_next = next(self.targets, None)
        self.begun: list[tuple[float, int]] = []  # between two parts: when the next is ready, and how many are left
        self.budget = limits.budget if queued.new_chats else None
        self.cap = limits.caps[account.counted(queued)]
        by_day = self.cap.counts or queued.new_chats
        self.periods = sending_periods(queued.window, account.hours, _starts(queued, account, now), by_day)
        # A budget of nothing is used up on every day to come.
        never = queued.new_chats and account.new_chats.budget == 0
        self.period = None if never else next(self.periods, None)

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
        """Number of targets that it may begin in its period."""
        if self.budget is None or self.period is None:
            return math.inf
        return self.budget.left_on(self.period.account_day)

    def begin(self, targets: int) -> None:
        if self.budget is not None and self.period is not None:
            self.budget.use(self.period.account_day, targets)

    @property
    def may_begin(self) -> bool:
        """True if the next target may be begun; it may have had a part already."""
        return self.up_next is not None and (not self.up_next[1] or self.chats_left > 0)

    @property
    def messages_left(self) -> float:
        """Number of messages that the cap of its action allows in its period."""
        return self.cap.left_on(self.period.account_day) if self.period is not None else math.inf

    @property
    def spent(self) -> bool:
        """True if only a new day lets it go on. Runs with other limits may send meanwhile."""
        out_of_chats = self.up_next is not None and not self.may_begin and not self.begun
        return out_of_chats or self.messages_left <= 0

    def put_back(self) -> int:
        """Put targets between two parts first, for when the run goes on. Returns how many there are."""
        again = [(parts, False) for _, parts in self.begun]
        self.begun = []
        self.targets = chain([*again, self.up_next] if self.up_next else again, self.targets)
        self.up_next = next(self.targets, None)
        return len(again)

    def skip_periods(self, at: float) -> None:
        while self.period is not None and (self.period.ends <= at or (self.period.starts <= at and self.spent)):
            self.period = next(self.periods, None)


def _starts(queued: Queued, account: AccountSnapshot, now: datetime) -> datetime:
    hold = account.new_chats.hold.until if queued.new_chats else None
    return max(now, queued.starts, hold or now)


class ProjectedLane:
    """The calls of a lane: as many targets at once as its concurrency, each target's parts in order.

    The provider takes from half to one and a half times the usual latency.
    """

    def __init__(self, account: AccountSnapshot, now: datetime, rng: random.Random) -> None:
        hold = held_by(account.base_facts, now)
        self.bucket = Bucket(held(account.pace, hold.until) if hold else account.pace, account.pace_settings)
        self.follow_ups = 0  # their targets that are left
        self.backpressure_above = account.backpressure_above
        self.gaps = rng
        self.latency = (account.latency / 2, account.latency * 1.5)
        self.jitter = account.jitter
        # A sequence each, so that no call always gets the short draws of one and the long draws of the other.
        self.latencies, self.jitters = Even(), Even()
        self.free = [now.timestamp()] * account.concurrency  # when each call may begin; a heap

    def next_at(self, run: ProjectedRun, now: float) -> float:
        ready = run.begun[0][0] if run.begun else math.inf
        if run.may_begin and self.free:
            ready = min(ready, self.free[0])
        return max(self.bucket.earliest_send(now), ready)

    def send(self, run: ProjectedRun, at: float) -> tuple[bool, bool]:
        """Send one message. Returns whether it was its target's first, and its last."""
        if run.begun and run.begun[0][0] <= at:
            parts, first = heapq.heappop(run.begun)[1], False
        else:
            heapq.heappop(self.free)
            parts, first = run.take()
        self._spend(at, run.follow_up and self.follow_ups > self.backpressure_above)
        self.follow_ups -= run.follow_up and parts == 1
        answered_at = at + self.latencies.uniform(*self.latency)
        if parts > 1:
            heapq.heappush(run.begun, (answered_at + self.jitters.uniform(*self.jitter), parts - 1))
        else:
            heapq.heappush(self.free, answered_at)
        return first, parts == 1

    def _spend(self, at: float, under_backpressure: bool) -> None:
        bucket = self.bucket
        bucket.spend(at, self.gaps, under_backpressure)
        if bucket.factor > 1:
            # Sending is expected to go well from here on, and a slow-down is then taken back.
            bucket.slow_down(recovered(bucket.factor))

    def release(self, run: ProjectedRun, at: float) -> None:
        """End the calls of targets between two parts, because the run stops for now."""
        for _ in range(run.put_back()):
            heapq.heappush(self.free, at)


class Even(random.Random):
    """Draws that cover their range evenly (by the golden ratio), so that few draws have the mean of many."""

    def __init__(self) -> None:
        super().__init__(0)
        self.last = 0.5

    def random(self) -> float:
        self.last = (self.last + 0.6180339887498949) % 1
        return self.last


class ProjectedLimit:
    """A daily limit by the account's calendar day. `planned`: messages that use it already."""

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


class ProjectedLimits(NamedTuple):
    """Limits of messages by action, and of new chats."""

    caps: Mapping[str, ProjectedLimit]
    budget: ProjectedLimit


def projected_limits(
    account: AccountSnapshot,
    now: datetime,
    messages: Mapping[str, Mapping[date | None, int]] | None = None,
    new_chats: Mapping[date | None, int] = NOTHING,
) -> ProjectedLimits:
    """Return the account's limits. `messages` and `new_chats`: how many are planned already, by action and day."""
    today, messages = local_date(account.hours.timezone, now), messages or {}
    caps = {action: ProjectedLimit(cap, today, messages.get(action, NOTHING)) for action, cap in account.caps.items()}
    return ProjectedLimits(
        caps, ProjectedLimit(DailyCap(account.new_chats.budget, account.new_chats.begun), today, new_chats)
    )


# --- when a lane may send --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendingPeriod:
    """An uninterrupted time in which the lane may send, and what ends it."""

    starts: float
    ends: float
    day: date  # the day whose window it belongs to
    ended_by: str  # the name of a limit, or "day": the account's calendar day, with its cap and its budget
    account_day: date | None


def sending_periods(
    window: Window, hours: BusinessHours, now: datetime, by_day: bool = False
) -> Iterator[SendingPeriod]:
    """Yield the overlaps of window and hours from `now` on, split at the account's midnight where a cap or a budget
    counts."""
    at = now
    while True:
        opens = window.meets(hours, at)
        if opens is None:
            return
        ends = _ends(window, hours, opens, by_day)
        ended_by, at = min(ends, key=lambda end: end[1])
        account_day = local_date(hours.timezone, opens) if by_day else None
        day = local_date(window.timezone, opens)
        yield SendingPeriod(opens.timestamp(), at.timestamp(), day, ended_by, account_day)


def _ends(window: Window, hours: BusinessHours, at: datetime, by_day: bool) -> list[tuple[str, datetime]]:
    ends = [(DELIVERY_WINDOW.name, window.closes_on(at))]
    closes = hours.closes_at(at)
    if closes is not None:
        ends.append((BUSINESS_HOURS.name, closes))
    if by_day:
        ends.append(("day", local_day_bounds(hours.timezone, at)[1]))
    return ends


def outside_hours(hours: BusinessHours, window: Window, at: datetime) -> bool:
    """Return whether the account's hours end before the window of that day does, or are over already."""
    closes = window.closes_on(at)
    opens = hours.next_open(max(at, window.opens_on(at)))
    ends = hours.closes_at(opens)
    return opens >= closes or (ends is not None and ends < closes)
