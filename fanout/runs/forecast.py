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
from zoneinfo import ZoneInfo

from django.db.models import Count, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from accounts.models import MAIL_CHANNELS, Account
from fanout.engine import loading
from fanout.models import LaneState, Run, RunTarget
from fanout.rules.pace import PaceSettings, PaceState
from fanout.runs import caps
from fanout.runs.planning import AccountPlan, CapOn, Even, Send, Stretch, Window, walk
from reminders.models import Reminder
from reminders.window import BusinessHours, window_end_at

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


def forecast(
    work: Work,
    pace: PaceSettings,
    state: PaceState | None,
    hours: BusinessHours,
    window: Window,
    *,
    now: datetime,
    cap: int | CapOn | None = None,
    used: int = 0,
    concurrency: int = 3,
    latency_s: float = USUAL_LATENCY,
    jitter: tuple[float, float] = (0.2, 0.5),
    queued_before: int = 0,
    noun: str = "group",
) -> Forecast:
    account = AccountPlan(
        0, pace, hours, state or PaceState(), cap, used, concurrency, latency_s, jitter, queued_before
    )
    return of_lane(account, work, window, now, noun)


def of_lane(
    account: AccountPlan, work: Work, window: Window, now: datetime, noun: str = "group",
    asked: datetime | None = None,
) -> Forecast:  # fmt: skip
    """The forecast for work at the end of an account's queue, from `now` on. `asked` is when somebody wants
    to know: the sentence names the day when it is another."""
    queue = chain(repeat(1, account.queued_before), work.queue())
    count = _count(walk(account, queue, window, now, Even()), account)
    today = caps.local_date(window.timezone, now)
    fits_count = sum(day.targets for day in count.days if day.date == today)
    done = count.targets >= work.targets
    known = Forecast(
        starts_at=_moment(count.first) if count.first is not None else None,
        ends_at=_moment(count.last + account.latency) if done and count.last is not None else None,
        fits=fits_count >= work.targets,
        fits_count=fits_count,
        bound_by=_bound_by(account, work, count, now),
        days=count.days,
        sentence="",
    )
    return replace(known, sentence=_sentence(known, account, work, window, now, asked or now, noun))


# --- counting -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Count:
    days: list[DayPlan] = field(default_factory=list)
    targets: int = 0
    first: float | None = None
    last: float | None = None
    # The first stretch of the work, and all messages of the lane by the calendar day whose cap they use.
    stretch: Stretch | None = None
    by_cap: Counter[date | None] = field(default_factory=Counter)


def _count(sends: Iterator[Send], account: AccountPlan) -> _Count:
    count = _Count()
    days: dict[date, list[float]] = {}
    before = account.queued_before
    for stretch, at, _, last in sends:
        if stretch.account_day is not None:
            count.by_cap[stretch.account_day] += 1
        if before:
            before -= 1
            continue
        if count.stretch is None:
            count.first, count.stretch = at, stretch
        day = days.setdefault(stretch.day, [0, 0, 0])
        day[0] += last
        day[1] += 1
        day[2] = count.last = at
        count.targets += last
    count.days = [DayPlan(day, int(n), int(messages), _moment(at)) for day, (n, messages, at) in days.items()]
    return count


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- what binds -----------------------------------------------------------------------------------------


def _bound_by(account: AccountPlan, work: Work, count: _Count, now: datetime) -> str:
    """The limit to change if it should be done sooner."""
    if not work.targets:
        return "nothing"
    if account.cap is not None and _cap_stops(account, work, count, now):
        return "daily cap"
    stretch, last = count.stretch, count.last
    if stretch is None or last is None or (last >= stretch.ends and stretch.ended_by == "hours"):
        return "business hours"
    return slowest(account.pace, work.parts, account.concurrency, account.latency, account.jitter)[0]


def _cap_stops(account: AccountPlan, work: Work, count: _Count, now: datetime) -> bool:
    """Whether the cap of today, or of the day it starts on, is used up before the work is done."""
    today = caps.local_date(account.hours.timezone, now)
    last_day = next(reversed(count.by_cap), None)
    for day in {today, count.stretch.account_day if count.stretch else None} - {None, last_day}:
        cap = account.cap_on(day) if day else None
        if cap is not None and count.by_cap[day] + (account.used if day == today else 0) >= cap:
            return True
    return count.targets < work.targets and count.stretch is None


def slowest(
    pace: PaceSettings, parts: int, concurrency: int, latency: float, jitter: tuple[float, float]
) -> tuple[str, float]:
    """The limit that holds a lane back while it may send, and the seconds per message it comes to."""
    busy = parts * latency + (parts - 1) * sum(jitter) / 2
    delays = {
        "pace": pace.interval.total_seconds(),
        "gap": (pace.min_gap + pace.max_gap) / 2 if pace.max_gap else 0.0,
        "provider": busy / (parts * concurrency),
    }
    cause = max(delays, key=lambda name: delays[name])
    pause = pace.batch_pause / pace.batch_size if pace.batch_size else 0.0
    return "batch pauses" if pause > delays[cause] else cause, delays[cause] + pause


# --- in words -------------------------------------------------------------------------------------------


def _sentence(
    known: Forecast, account: AccountPlan, work: Work, window: Window, now: datetime, asked: datetime,
    noun: str,
) -> str:  # fmt: skip
    if not work.targets:
        return "Nothing to send."
    what = f"{work.targets:,} {noun}{'' if work.targets == 1 else 's'} {_at_pace(known, account, now)}"
    if known.ends_at is None:
        return f"{what}: never done, because of the account's {known.bound_by}."
    done = f"done about {told(known.ends_at, window.timezone, asked)}"
    if known.fits:
        return f"{what}: {done}; fits."
    goes_on = f"{done} if it goes on at each opening"
    if window_end_at(window.timezone, window.end_hour, now) <= now:
        return f"{what}: the window has closed for today; {goes_on}."
    closes = f"{window.end_hour:02d}:00"
    return f"{what}: {known.fits_count:,} fit before the window closes at {closes}; {goes_on}."


def _at_pace(known: Forecast, account: AccountPlan, now: datetime) -> str:
    pace = account.pace
    if known.bound_by == "daily cap":
        return f"at {account.cap_on(caps.local_date(account.hours.timezone, now))} a day"
    if known.bound_by == "gap":
        return f"with gaps of {pace.min_gap:g}–{pace.max_gap:g} s"
    return f"at {pace.per_minute:g}/min" if pace.per_minute else "without a rate limit"


def told(at: datetime, timezone: str, now: datetime) -> str:
    """A moment on the reminder's wall clock, with the day when it is not today's."""
    zone = ZoneInfo(timezone)
    local = at.astimezone(zone)
    ahead = (local.date() - now.astimezone(zone).date()).days
    if ahead == 0:
        return f"{local:%H:%M}"
    return f"{local:%a %H:%M}" if 0 < ahead < 7 else f"{local:%a %d %b %Y %H:%M}"


# --- read from the database -----------------------------------------------------------------------------


def forecast_reminder(reminder: Reminder, now: datetime) -> Forecast:
    """As if it fired at its next time, or at once where it has none."""
    at = max(now, reminder.next_fire_at or now)
    account = reminder.account
    window = Window(reminder.timezone, reminder.delivery_window_start_hour, reminder.delivery_window_end_hour)
    if window_end_at(window.timezone, window.end_hour, at) <= at:
        sentence = f"The window is closed at {told(at, window.timezone, now)}: nothing would be sent."
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
    window = Window(run.timezone, run.window_start_hour, run.window_end_hour)
    lane = replace(account_plan(account, run.action, at), queued_before=_owed_before(run, account))
    return of_lane(lane, work, window, at, _noun(account), now)


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
    today = caps.local_date(account.timezone, now)
    capped = cap_on(today).limit is not None
    lane = LaneState.objects.filter(account=account).first()
    return AccountPlan(
        account_id=account.pk,
        pace=loading.pace_settings(effective),
        hours=loading.business_hours(account.__dict__),
        state=lane_pace(lane),
        cap=(lambda day: cap_on(day).limit) if capped else None,
        used=caps.used_today(account, action, now) if capped else 0,
        concurrency=int(effective["group_concurrency"]),
        latency=measured_latency(account),
        jitter=(effective["part_jitter_min_ms"] / 1000, effective["part_jitter_max_ms"] / 1000),
    )


def lane_pace(lane: LaneState | None) -> PaceState:
    return PaceState(lane.tat, lane.next_send_at, lane.batch_sent, lane.slow_factor) if lane else PaceState()


def measured_latency(account: Account) -> float:
    """The mean answer time of the account's latest run that got somewhere."""
    latest = Run.objects.filter(account=account, sent__gt=0).order_by("-scheduled_for").values("pk")[:1]
    sent = RunTarget.objects.filter(run=Subquery(latest), status=RunTarget.Status.SENT)
    answers = [ms for ms in sent.values_list("latency_ms", flat=True)[:MEASURED] if ms is not None]
    return sum(answers) / len(answers) / 1000 if answers else USUAL_LATENCY


def _noun(account: Account) -> str:
    return "recipient" if account.channel in MAIL_CHANNELS else "group"
