"""When will it finish, does it fit into today's window, how many fit, and what is in the way?

The forecast runs the lane ahead of time (`planning.walk`) and counts. Where a lane sends one message every D
seconds with a pause of P after every B, that comes to (N·D) + (N/B)·P.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import accumulate, islice

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models import Run
from fanout.rules.caps import local_date
from fanout.rules.pace import PaceSettings
from fanout.runs.planning import AccountPlan, Even, Queued, Stretch, Work, walk
from fanout.runs.queue import account_plan, account_plans, movable, part_count, work_by_account
from reminders.models import Recipient, Reminder
from reminders.moments import closing_time, wall_clock
from reminders.senders import shares
from reminders.targets import count_kinds
from reminders.window import Window

# For lists, which ask about many accounts at once: beyond so many messages the rest is extrapolated.
MOST_WALKED = 10_000


@dataclass(frozen=True, slots=True)
class DayPlan:
    """One day of the window: the targets done on it, and when its last message goes out."""

    date: date
    targets: int
    messages: int
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Forecast:
    """`ends_at` is None where the work never ends: window and business hours do not meet, or the cap is zero.
    `fits_count` targets are done before today's window closes."""

    starts_at: datetime | None
    ends_at: datetime | None
    fits: bool
    fits_count: int
    bound_by: str
    days: list[DayPlan]
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What one lane sends of the work that is forecast: the account with the queue before it, and its own share."""

    account: AccountPlan
    mine: tuple[Queued, ...]
    noun: str = "group"

    @property
    def targets(self) -> int:
        return sum(queued.work.targets for queued in self.mine)

    @property
    def parts(self) -> int:
        return max((queued.work.parts for queued in self.mine), default=1)


def of_lane(
    account: AccountPlan, work: Work, window: Window, at: datetime, noun: str = "group", asked: datetime | None = None
) -> Forecast:
    """The forecast for work at the end of an account's queue, from `at` on. `asked` is when somebody wants to know:
    what the account owes already goes on from then, and the sentence names the day when it is another."""
    return of_lanes([LaneWork(account, (Queued(work, window, at),), noun)], window, at, asked)


def of_lanes(lanes: Sequence[LaneWork], window: Window, at: datetime, asked: datetime | None = None) -> Forecast:
    """The forecast for work that several lanes share: it ends when the slowest of them ends."""
    lanes = [lane for lane in lanes if lane.targets] or list(lanes[:1])
    asked = asked or at
    tallies = [_tally(lane, asked) for lane in lanes]
    today = local_date(window.timezone, at)
    days = _merged([day for tally in tallies for day in tally.days])
    fits_count = sum(day.targets for day in days if day.date == today)
    slowest_lane, tally = max(zip(lanes, tallies), key=lambda pair: _end(*pair))
    end = _end(slowest_lane, tally)
    firsts = [tally.first for tally in tallies if tally.first is not None]
    forecast = Forecast(
        starts_at=_moment(min(firsts)) if firsts else None,
        ends_at=_moment(end) if 0 < end < math.inf else None,
        fits=fits_count >= sum(lane.targets for lane in lanes),
        fits_count=fits_count,
        bound_by=_bound_by(slowest_lane, tally, asked),
        days=days,
        sentence="",
    )
    return replace(forecast, sentence=_sentence(forecast, lanes, slowest_lane.account, window, at, asked))


def _end(lane: LaneWork, tally: Tally) -> float:
    """When the lane is done; infinity: never."""
    if tally.targets < lane.targets:
        return math.inf
    return tally.last + lane.account.latency if tally.last is not None else 0.0


# --- counting -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What the walk of one lane comes to."""

    days: list[DayPlan] = field(default_factory=list)
    targets: int = 0
    first: float | None = None
    last: float | None = None
    # The first stretch of the work, and all messages of the lane by the calendar day whose cap they use.
    stretch: Stretch | None = None
    by_cap: Counter[date | None] = field(default_factory=Counter)


def _tally(lane: LaneWork, now: datetime) -> Tally:
    tally = Tally()
    days: dict[date, list[float]] = {}
    before = lane.account.queued_before
    for number, stretch, at, _, last in walk(lane.account, [*before, *lane.mine], now, Even()):
        if stretch.account_day is not None:
            tally.by_cap[stretch.account_day] += 1
        if number < len(before):
            continue
        if tally.stretch is None:
            tally.first, tally.stretch = at, stretch
        day = days.setdefault(stretch.day, [0, 0, 0])
        day[0] += last
        day[1] += 1
        day[2] = tally.last = at
        tally.targets += last
        if tally.targets == lane.targets:
            break
    tally.days = [DayPlan(day, int(n), int(messages), _moment(at)) for day, (n, messages, at) in days.items()]
    return tally


def _merged(days: list[DayPlan]) -> list[DayPlan]:
    """The days of all lanes, in order."""
    merged: dict[date, DayPlan] = {}
    for day in days:
        other = merged.get(day.date, DayPlan(day.date, 0, 0, day.ends_at))
        merged[day.date] = DayPlan(
            day.date, day.targets + other.targets, day.messages + other.messages, max(day.ends_at, other.ends_at)
        )
    return [merged[date] for date in sorted(merged)]


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- what binds -----------------------------------------------------------------------------------------


def _bound_by(lane: LaneWork, tally: Tally, now: datetime) -> str:
    """The limit to change if it should be done sooner."""
    account = lane.account
    if not lane.targets:
        return "nothing"
    if account.cap is not None and _cap_stops(lane, tally, now):
        return "daily cap"
    stretch, last = tally.stretch, tally.last
    if stretch is None or last is None or (last >= stretch.ends and stretch.ended_by == "hours"):
        return "business hours"
    return slowest(account.pace, lane.parts, account.concurrency, account.latency, account.jitter)[0]


def _cap_stops(lane: LaneWork, tally: Tally, now: datetime) -> bool:
    """Whether the cap of today, or of the day it starts on, is used up before the work is done."""
    account = lane.account
    today = local_date(account.hours.timezone, now)
    last_day = next(reversed(tally.by_cap), None)
    for day in {today, tally.stretch.account_day if tally.stretch else None} - {None, last_day}:
        cap = account.cap_on(day) if day else None
        if cap is not None and tally.by_cap[day] + (account.used if day == today else 0) >= cap:
            return True
    return tally.targets < lane.targets and tally.stretch is None


def slowest(
    pace: PaceSettings, parts: int, concurrency: int, latency: float, jitter: tuple[float, float]
) -> tuple[str, float]:
    """The limit that holds a lane back while it may send, and the seconds per message it comes to."""
    busy = parts * latency + (parts - 1) * sum(jitter) / 2
    delays = {
        "pace": pace.interval,
        "gap": (pace.min_gap + pace.max_gap) / 2 if pace.max_gap else 0.0,
        "provider": busy / (parts * concurrency),
    }
    cause = max(delays, key=lambda name: delays[name])
    pause = pace.batch_pause / pace.batch_size if pace.batch_size else 0.0
    return "batch pauses" if pause > delays[cause] else cause, delays[cause] + pause


# --- in words -------------------------------------------------------------------------------------------


def _sentence(
    forecast: Forecast,
    lanes: Sequence[LaneWork],
    slowest_account: AccountPlan,
    window: Window,
    at: datetime,
    asked: datetime,
) -> str:
    targets = sum(lane.targets for lane in lanes)
    if not targets:
        return "Nothing to send."
    through = _at_pace(forecast, slowest_account, at) if len(lanes) == 1 else f"through {len(lanes)} accounts"
    what = f"{targets:,} {_noun_of(lanes)}{'' if targets == 1 else 's'} {through}"
    if forecast.ends_at is None:
        owner = "the account's" if len(lanes) == 1 else "one account's"
        return f"{what}: never done, because of {owner} {forecast.bound_by}."
    done = f"done about {wall_clock(forecast.ends_at, window.timezone, asked)}"
    if forecast.fits:
        return f"{what}: {done}; fits."
    goes_on = f"{done} if it goes on at each opening"
    if window.closes_on(at) <= at:
        return f"{what}: the window has closed for today; {goes_on}."
    closes = closing_time(window.closes_on(at), window.timezone)
    return f"{what}: {forecast.fits_count:,} fit before the window closes at {closes}; {goes_on}."


def _noun_of(lanes: Sequence[LaneWork]) -> str:
    nouns = {lane.noun for lane in lanes}
    return nouns.pop() if len(nouns) == 1 else "recipient"


def _at_pace(forecast: Forecast, account: AccountPlan, now: datetime) -> str:
    pace = account.pace
    if forecast.bound_by == "daily cap":
        return f"at {account.cap_on(local_date(account.hours.timezone, now))} a day"
    if forecast.bound_by == "gap":
        return f"with gaps of {pace.min_gap:g}–{pace.max_gap:g} s"
    return f"at {pace.per_minute:g}/min" if pace.per_minute else "without a rate limit"


# --- read from the database -----------------------------------------------------------------------------


def forecast_reminder(reminder: Reminder, now: datetime) -> Forecast:
    """As if it fired at its next time, or at once where it has none."""
    at = max(now, reminder.next_fire_at or now)
    kinds = count_kinds(Recipient.objects.filter(reminders=reminder))
    parts = max(reminder.messages.count(), 1)
    return forecast_draft(reminder.senders, kinds, parts, reminder.window, at, now, reminder.action)


def forecast_draft(
    senders: Sequence[Account],
    kinds: Mapping[str, int],
    parts: int,
    window: Window,
    at: datetime,
    now: datetime,
    action: str = "",
) -> Forecast:
    """For so many targets of each kind that these accounts would share at `at`, behind what they owe by then."""
    if window.closes_on(at) <= at:
        sentence = f"The window is closed at {wall_clock(at, window.timezone, now)}: nothing would be sent."
        return Forecast(None, None, False, 0, "window", [], sentence)
    return of_lanes(draft_lanes(senders, kinds, parts, window, at, now, action), window, at, now)


def draft_lanes(
    senders: Sequence[Account],
    kinds: Mapping[str, int],
    parts: int,
    window: Window,
    at: datetime,
    now: datetime,
    action: str = "",
) -> list[LaneWork]:
    """Each account's share of such a draft, in the order of the accounts."""
    plans = account_plans(senders, now, action)
    return [
        LaneWork(
            plans[account.pk].before(at, sys.maxsize), (Queued(Work.of(targets, parts), window, at),), _noun(account)
        )
        for account, targets in zip(senders, shares(kinds, senders))
    ]


def forecast_run(run: Run, now: datetime) -> Forecast:
    """What is left of a run, behind what its lanes owe to earlier ones."""
    at = max(now, run.scheduled_for)
    work = work_by_account(run)
    accounts = [run.account] if work.keys() <= {run.account_id} else list(Account.objects.filter(pk__in=work))
    plans = account_plans(accounts, now, run.action)
    lanes = [
        LaneWork(
            plans[account.pk].before(run.scheduled_for, run.pk),
            (Queued(work.get(account.pk, Work.of(0)), run.window, at, follow_up=run.follow_up),),
            _noun(account),
        )
        for account in accounts
    ]
    return of_lanes(lanes, run.window, at, now)


def forecast_offload(runs: Sequence[Run], account: Account, now: datetime) -> Forecast:
    """What is left of these runs, if another account sent what can be moved to it."""
    runs = sorted(runs, key=lambda run: (run.scheduled_for, run.pk))
    last = runs[-1]
    # What it sends of the last one already goes first too.
    plan = account_plan(account, now, last.action).before(last.scheduled_for, last.pk + 1)
    mine = tuple(
        Queued(
            Work.of(movable(run, account).count(), part_count(run)),
            run.window,
            max(now, run.scheduled_for),
            follow_up=run.follow_up,
        )
        for run in runs
    )
    at = max(now, runs[0].scheduled_for)
    return of_lanes([LaneWork(plan, mine, _noun(account))], runs[0].window, at, now)


def expected_ends(runs: Sequence[Run], now: datetime) -> dict[int, datetime]:
    """When each of these runs is done, for lists: one walk through the queue of each account among their lanes."""
    accounts = list(Account.objects.filter(pk__in={pk for run in runs for pk in run.lanes}))
    ends: dict[int, float] = {}
    for plan in account_plans(accounts, now).values():
        for run_id, end in _ends_of(plan, now).items():
            ends[run_id] = max(end, ends.get(run_id, 0.0))
    return {run.pk: _moment(ends[run.pk]) for run in runs if ends.get(run.pk, math.inf) < math.inf}


def _ends_of(plan: AccountPlan, now: datetime) -> dict[int, float]:
    """The end of each run in the account's queue; infinity where there is none."""
    queue = plan.queued_before
    left = [queued.work.targets for queued in queue]
    ends = [math.inf] * len(queue)
    at, sent = now.timestamp(), 0
    for number, _, at, _, last in islice(walk(plan, queue, now, Even()), MOST_WALKED):
        sent += 1
        left[number] -= last
        if not left[number]:
            ends[number] = at + plan.latency
    if sent == MOST_WALKED:
        ends = _extrapolated(ends, queue, (at - now.timestamp()) / sent, now)
    return {queued.due[1]: end for queued, end in zip(queue, ends) if queued.due}


def _extrapolated(ends: list[float], queue: Sequence[Queued], per_message: float, now: datetime) -> list[float]:
    """The ends that the walk did not get to, as if it went on at the speed it had so far."""
    owed = accumulate(queued.work.messages for queued in queue)
    return [now.timestamp() + n * per_message if end == math.inf else end for end, n in zip(ends, owed)]


def _noun(account: Account) -> str:
    return channel(account.channel).noun
