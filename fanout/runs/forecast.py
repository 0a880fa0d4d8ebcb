"""When will it finish, does it fit into today's window, how many fit, and what is in the way?

The forecast runs the lane ahead of time (`planning.walk`) and counts. Where a lane sends one message every D
seconds with a pause of P after every B, that comes to (N·D) + (N/B)·P.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import chain, repeat

from django.db.models import Count, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes import caps
from fanout.lanes.settings import business_hours, pace_settings, pace_state, part_jitter
from fanout.models import LaneState, Run, RunTarget
from fanout.rules.caps import local_date
from fanout.rules.pace import PaceSettings, PaceState
from fanout.runs.planning import AccountPlan, Even, Send, Stretch, walk
from reminders.models import Reminder
from reminders.moments import wall_clock
from reminders.window import Window

#: what a provider takes to answer while nothing of the account has been measured
USUAL_LATENCY = 0.2
MEASURED = 50  # answers that make a measurement


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to send: `messages` is below targets × parts where some targets have had a part."""

    messages: int
    parts: int
    targets: int

    @classmethod
    def of(cls, targets: int, parts: int = 1) -> Work:
        return cls(targets * parts, parts, targets)

    def queue(self) -> Iterator[int]:
        """How many parts each target still gets. Those that have had some come first, as in the lane."""
        begun = self.targets * self.parts - self.messages
        for _ in range(self.targets):
            had = min(begun, self.parts - 1)
            begun -= had
            yield self.parts - had


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


def of_lane(
    account: AccountPlan, work: Work, window: Window, now: datetime, noun: str = "group",
    asked: datetime | None = None,
) -> Forecast:  # fmt: skip
    """The forecast for work at the end of an account's queue, from `now` on. `asked` is when somebody wants
    to know: the sentence names the day when it is another."""
    queue = chain(repeat(1, account.queued_before), work.queue())
    tally = _tally(walk(account, queue, window, now, Even()), account)
    today = local_date(window.timezone, now)
    fits_count = sum(day.targets for day in tally.days if day.date == today)
    done = tally.targets >= work.targets
    forecast = Forecast(
        starts_at=_moment(tally.first) if tally.first is not None else None,
        ends_at=_moment(tally.last + account.latency) if done and tally.last is not None else None,
        fits=fits_count >= work.targets,
        fits_count=fits_count,
        bound_by=_bound_by(account, work, tally, now),
        days=tally.days,
        sentence="",
    )
    return replace(forecast, sentence=_sentence(forecast, account, work, window, now, asked or now, noun))


# --- counting -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What the walk comes to."""

    days: list[DayPlan] = field(default_factory=list)
    targets: int = 0
    first: float | None = None
    last: float | None = None
    # The first stretch of the work, and all messages of the lane by the calendar day whose cap they use.
    stretch: Stretch | None = None
    by_cap: Counter[date | None] = field(default_factory=Counter)


def _tally(sends: Iterator[Send], account: AccountPlan) -> Tally:
    tally = Tally()
    days: dict[date, list[float]] = {}
    before = account.queued_before
    for stretch, at, _, last in sends:
        if stretch.account_day is not None:
            tally.by_cap[stretch.account_day] += 1
        if before:
            before -= 1
            continue
        if tally.stretch is None:
            tally.first, tally.stretch = at, stretch
        day = days.setdefault(stretch.day, [0, 0, 0])
        day[0] += last
        day[1] += 1
        day[2] = tally.last = at
        tally.targets += last
    tally.days = [DayPlan(day, int(n), int(messages), _moment(at)) for day, (n, messages, at) in days.items()]
    return tally


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- what binds -----------------------------------------------------------------------------------------


def _bound_by(account: AccountPlan, work: Work, tally: Tally, now: datetime) -> str:
    """The limit to change if it should be done sooner."""
    if not work.targets:
        return "nothing"
    if account.cap is not None and _cap_stops(account, work, tally, now):
        return "daily cap"
    stretch, last = tally.stretch, tally.last
    if stretch is None or last is None or (last >= stretch.ends and stretch.ended_by == "hours"):
        return "business hours"
    return slowest(account.pace, work.parts, account.concurrency, account.latency, account.jitter)[0]


def _cap_stops(account: AccountPlan, work: Work, tally: Tally, now: datetime) -> bool:
    """Whether the cap of today, or of the day it starts on, is used up before the work is done."""
    today = local_date(account.hours.timezone, now)
    last_day = next(reversed(tally.by_cap), None)
    for day in {today, tally.stretch.account_day if tally.stretch else None} - {None, last_day}:
        cap = account.cap_on(day) if day else None
        if cap is not None and tally.by_cap[day] + (account.used if day == today else 0) >= cap:
            return True
    return tally.targets < work.targets and tally.stretch is None


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
    forecast: Forecast, account: AccountPlan, work: Work, window: Window, now: datetime, asked: datetime,
    noun: str,
) -> str:  # fmt: skip
    if not work.targets:
        return "Nothing to send."
    what = f"{work.targets:,} {noun}{'' if work.targets == 1 else 's'} {_at_pace(forecast, account, now)}"
    if forecast.ends_at is None:
        return f"{what}: never done, because of the account's {forecast.bound_by}."
    done = f"done about {wall_clock(forecast.ends_at, window.timezone, asked)}"
    if forecast.fits:
        return f"{what}: {done}; fits."
    goes_on = f"{done} if it goes on at each opening"
    if window.closes_on(now) <= now:
        return f"{what}: the window has closed for today; {goes_on}."
    closes = f"{window.end_hour:02d}:00"
    return f"{what}: {forecast.fits_count:,} fit before the window closes at {closes}; {goes_on}."


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
    account = reminder.account
    window = reminder.window
    if window.closes_on(at) <= at:
        sentence = f"The window is closed at {wall_clock(at, window.timezone, now)}: nothing would be sent."
        return Forecast(None, None, False, 0, "window", [], sentence)
    work = Work.of(reminder.targets.count(), max(reminder.messages.count(), 1))
    return of_lane(account_plan(account, reminder.action, at), work, window, at, _noun(account), now)


def forecast_run(run: Run, now: datetime) -> Forecast:
    """What is left of a run, behind what its lane owes to earlier ones."""
    return _of_run(run, run.account, run.targets.filter(status__in=_OPEN), now)


def forecast_offload(run: Run, account: Account, now: datetime) -> Forecast:
    """What is left of a run, if another account sent it."""
    # A target between two parts stays where it is.
    return _of_run(run, account, run.targets.filter(status=RunTarget.Status.PENDING, parts_sent=0), now)


_OPEN = (RunTarget.Status.PENDING, RunTarget.Status.SENDING)


def _of_run(run: Run, account: Account, targets: QuerySet[RunTarget], now: datetime) -> Forecast:
    at = max(now, run.scheduled_for)
    parts = max(len(run.parts), 1)
    left = targets.aggregate(n=Count("pk"), had=Coalesce(Sum("parts_sent"), 0))
    work = Work(left["n"] * parts - left["had"], parts, left["n"])
    lane = replace(account_plan(account, run.action, at), queued_before=_owed_before(run, account))
    return of_lane(lane, work, run.window, at, _noun(account), now)


def _owed_before(run: Run, account: Account) -> int:
    """Messages that the account's lane owes to live runs that were due before this one."""
    earlier = Run.objects.filter(
        status__in=Run.LIVE, lanes__contains=[account.pk], scheduled_for__lt=run.scheduled_for
    ).exclude(pk=run.pk)
    return sum((other.pending + other.sending) * max(len(other.parts), 1) for other in earlier)


def account_plan(account: Account, action: str, now: datetime) -> AccountPlan:
    """An account as plan and forecast see it, in four queries."""
    effective = {name: setting.value for name, setting in account.settings().items()}
    cap_on = caps.caps(account, action)
    capped = cap_on(local_date(account.timezone, now)).limit is not None
    lane = LaneState.objects.filter(account=account).first()
    return AccountPlan(
        account_id=account.pk,
        pace=pace_settings(effective),
        hours=business_hours(account.__dict__),
        state=pace_state(lane.__dict__) if lane else PaceState(),
        cap=(lambda day: cap_on(day).limit) if capped else None,
        used=caps.used_today(account, action, now) if capped else 0,
        concurrency=int(effective["group_concurrency"]),
        latency=measured_latency(account),
        jitter=part_jitter(effective),
    )


def measured_latency(account: Account) -> float:
    """The mean answer time of the account's latest run that got somewhere."""
    latest = Run.objects.filter(account=account, sent__gt=0).order_by("-scheduled_for").values("pk")[:1]
    sent = RunTarget.objects.filter(run=Subquery(latest), status=RunTarget.Status.SENT)
    answers = [ms for ms in sent.values_list("latency_ms", flat=True)[:MEASURED] if ms is not None]
    return sum(answers) / len(answers) / 1000 if answers else USUAL_LATENCY


def _noun(account: Account) -> str:
    return channel(account.channel).noun
