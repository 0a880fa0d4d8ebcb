"""Why does nothing go out right now, and when does the next message? One line for each account and run.

The line asks the lane's own gates and reads the lane's stored pace, so the time it names does not move while
one watches it: it changes when something happened, not because time went by.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from accounts.models import Account
from fanout.engine import loading
from fanout.models import Driver, PauseReason, Run, RunTarget
from fanout.rules import gates
from fanout.rules.gates import AccountFacts, Close, Open, RunFacts, Wait
from fanout.rules.pace import PaceSettings, PaceState, next_slot
from fanout.runs import caps
from fanout.runs.forecast import lane_pace
from fanout.runs.planning import Window, both_open
from reminders.window import local_day_bounds, window_start_at

#: drivers beat every second, and one hands over to the next within two
DRIVER_SILENCE = timedelta(seconds=10)
MOMENT = timedelta(microseconds=1)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
RUNS_LOOKED_AT = 20

NOTHING = "nothing to send"


@dataclass(frozen=True, slots=True)
class Why:
    """The line, and the moment of the next send where one is known."""

    text: str
    next_send_at: datetime | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class LaneNow:
    """An account's lane as stored."""

    facts: AccountFacts
    pace: PaceState
    settings: PaceSettings
    probing: bool
    driven: bool
    timezone: str


@dataclass(frozen=True, slots=True)
class RunNow:
    """A live run as stored. `retry_at` is set where nothing of it may be sent before."""

    facts: RunFacts
    window: Window
    scheduled_for: datetime
    auto_resume: bool
    retry_at: datetime | None = None


# --- pure -----------------------------------------------------------------------------------------------


def explain(lane: LaneNow, run: RunNow, now: datetime) -> Why:
    """What holds a live run back in this lane: the first closed gate, else a retry, else the pace."""
    if run.scheduled_for > now:
        opens = max(run.scheduled_for, run.facts.window_opens_at)
        return _next("not due yet", opens, lane.timezone, now)
    gate = gates.may_run(lane.facts, run.facts, now)
    if not isinstance(gate, Open):
        return _held(lane, run, gate, now)
    if not lane.driven:
        return Why("no driver is alive: nothing is sent until one starts")
    if run.retry_at is not None and run.retry_at > now:
        return Why(f"waiting for a retry at {when(run.retry_at, lane.timezone, now)}", run.retry_at)
    return _paced(lane, run)


def _held(lane: LaneNow, run: RunNow, gate: gates.Gate, now: datetime) -> Why:
    if isinstance(gate, Wait):
        again = both_open(run.window, lane.facts.hours, gate.until)
        return _next(gate.why, again, lane.timezone, now)
    assert isinstance(gate, Close)
    if gate.reason == PauseReason.ACCOUNT_DOWN:
        return Why(gate.why)
    return over(lane.facts, run.window, run.auto_resume, gate.why, lane.timezone, now)


def over(account: AccountFacts, window: Window, auto_resume: bool, why: str, timezone: str, now: datetime) -> Why:
    """The window is over, or ends before the account's limit does: when could it go on?"""
    limit = limit_in_the_way(account, now)
    again = both_open(window, account.hours, limit.until if limit else now)
    told = _next(limit.why if limit else why, again, timezone, now)
    return told if auto_resume or again is None else Why(f"{told.text}, once resumed", told.next_send_at)


def limit_in_the_way(account: AccountFacts, now: datetime) -> Wait | None:
    for gate in (
        gates.account_status(account, now),
        gates.business_hours(account, now),
        gates.daily_cap(account, now),
    ):
        if isinstance(gate, Wait):
            return gate
    return None


def _paced(lane: LaneNow, run: RunNow) -> Why:
    # From the stored state alone, so that asking again later names the same moment.
    slot = max(next_slot(lane.pace, lane.settings, LONG_AGO), run.scheduled_for)
    at = f"{slot.astimezone(ZoneInfo(lane.timezone)):%H:%M:%S} {city(lane.timezone)}"
    probe = ", a single trial message" if lane.probing else ""
    return Why(f"{pace_in_words(lane.pace, lane.settings)}; next send {at}{probe}", slot)


def pace_in_words(pace: PaceState, settings: PaceSettings) -> str:
    """The part of the pace that sets the next slot."""
    bucket = next_slot(PaceState(tat=pace.tat, slow_factor=pace.slow_factor), settings, LONG_AGO)
    if pace.next_send_at is not None and pace.next_send_at > bucket:
        if settings.batch_size and pace.batch_sent == 0:
            return f"pause of {settings.batch_pause:g} s after {settings.batch_size} messages"
        if settings.max_gap > 0:
            return f"gap of {settings.min_gap:g}–{settings.max_gap:g} s"
        return "held back by the provider"
    rate = f"pace {settings.per_minute:g}/min" if settings.per_minute else "no rate limit"
    return f"{rate}, slowed down ×{pace.slow_factor:g}" if pace.slow_factor > 1 else rate


def _next(why: str, at: datetime | None, timezone: str, now: datetime) -> Why:
    if at is None:
        return Why(f"{why}; the window and the account's business hours never meet")
    return Why(f"{why}; next send {when(at, timezone, now)}", at)


def when(at: datetime, timezone: str, now: datetime) -> str:
    """A moment on the wall clock of a place, with the day when it is not today."""
    zone = ZoneInfo(timezone)
    local = at.astimezone(zone)
    ahead = (local.date() - now.astimezone(zone).date()).days
    day = "" if ahead == 0 else f"{local:%a} " if 0 < ahead < 7 else f"{local:%a %d %b} "
    return f"{day}{local:%H:%M} {city(timezone)}"


def city(timezone: str) -> str:
    return timezone.rsplit("/", 1)[-1].replace("_", " ")


# --- read from the database -----------------------------------------------------------------------------


def why_account(account: Account, now: datetime) -> Why:
    """The line of the run that sends next; five queries."""
    account = _with_lane(account.pk)
    if account.status != Account.Status.ACTIVE:
        return _down(account, now)
    runs = [(run, bool(getattr(run, "ready", False))) for run in _live_runs(account)[:RUNS_LOOKED_AT]]
    live = [(run, ready) for run, ready in runs if run.status in Run.LIVE]
    if not live:
        return _asleep([run for run, _ in runs], account, now)
    lane = _lane_now(account, live[0][0].action, now)
    told = [
        explain(lane, _run_now(run, account, ready), now)
        for run, ready in [(run, ready) for run, ready in live if ready] or live[:1]
    ]
    return min(told, key=lambda why: why.next_send_at or datetime.max.replace(tzinfo=UTC))


def why_run(run: Run, now: datetime) -> Why:
    """The line of the lane that has the run's next target; five queries."""
    if run.status in Run.FINISHED:
        return Why(NOTHING)
    first = run.targets.filter(status=RunTarget.Status.PENDING).order_by("position", "id").first()
    if first is None:
        return Why("waiting for the provider" if run.sending else NOTHING)
    account = _with_lane(first.account_id)
    if account.status != Account.Status.ACTIVE:
        return _down(account, now)
    lane = _lane_now(account, run.action, now)
    if run.status == Run.Status.PAUSED:
        return _paused(run, lane, now)
    return explain(lane, _run_now(run, account, ready=first.next_attempt_at is None), now)


def _with_lane(account_id: int) -> Account:
    """The account with its lane and the last sign of life of any driver."""
    beat = Driver.objects.order_by("-beat_at").values("beat_at")[:1]
    return Account.objects.select_related("lane").annotate(beat_at=Subquery(beat)).get(pk=account_id)


def _live_runs(account: Account) -> QuerySet[Run]:
    """Runs that the lane has something of, in the order in which it takes them, and paused ones that go on
    by themselves. `ready` says whether anything of it may be sent at once."""
    mine = RunTarget.objects.filter(run=OuterRef("pk"), account=account, status=RunTarget.Status.PENDING)
    ready = mine.filter(next_attempt_at__isnull=True)
    return (
        Run.objects.filter(Q(status__in=Run.LIVE) | Q(status=Run.Status.PAUSED, resume_at__isnull=False))
        .filter(lanes__contains=[account.pk])
        .annotate(ready=Exists(ready))
        .order_by("scheduled_for", "pk")
    )


def _lane_now(account: Account, action: str, now: datetime) -> LaneNow:
    stored = getattr(account, "lane", None)
    beat_at: datetime | None = getattr(account, "beat_at", None)
    cap = caps.cap_for(account, action, caps.local_date(account.timezone, now)).limit
    return LaneNow(
        facts=AccountFacts(
            status=account.status,
            status_reason=account.status_reason,
            status_until=account.status_until,
            hours=loading.business_hours(account.__dict__),
            cap=cap,
            used=caps.used_today(account, action, now) if cap is not None else 0,
            day_ends_at=local_day_bounds(account.timezone, now)[1],
        ),
        pace=lane_pace(stored),
        settings=loading.pace_settings({name: setting.value for name, setting in account.settings().items()}),
        probing=bool(stored and stored.probing),
        driven=beat_at is not None and beat_at >= now - DRIVER_SILENCE,
        timezone=account.timezone,
    )


def _run_now(run: Run, account: Account, ready: bool) -> RunNow:
    # A window that closes at midnight belongs to the day before it.
    opens_at = window_start_at(run.timezone, run.window_start_hour, run.window_closes_at - MOMENT)
    times = RunFacts(opens_at, run.window_closes_at)
    retry_at = None if ready else _retry_at(run, account)
    return RunNow(times, _window(run), run.scheduled_for, run.auto_resume, retry_at)


def _retry_at(run: Run, account: Account) -> datetime | None:
    """When the first target may be tried again; None where one may be sent at once."""
    pending = run.targets.filter(account=account, status=RunTarget.Status.PENDING)
    soonest = pending.order_by(F("next_attempt_at").asc(nulls_first=True))
    return soonest.values_list("next_attempt_at", flat=True).first()


def _window(run: Run) -> Window:
    return Window(run.timezone, run.window_start_hour, run.window_end_hour)


def _down(account: Account, now: datetime) -> Why:
    reason = f": {account.status_reason}" if account.status_reason else ""
    text = f"account {account.status}{reason}"
    if account.status_until is None or account.status_until <= now:
        return Why(text)
    return Why(f"{text}; until {when(account.status_until, account.timezone, now)}", account.status_until)


def _asleep(paused: list[Run], account: Account, now: datetime) -> Why:
    """Nothing live. A paused run may have a time at which it goes on by itself."""
    times = [run.resume_at for run in paused if run.resume_at is not None]
    return _next("paused", min(times), account.timezone, now) if times else Why(NOTHING)


def _paused(run: Run, lane: LaneNow, now: datetime) -> Why:
    reason = PauseReason(run.pause_reason)
    if run.resume_at is not None:
        return _next(f"paused: {reason.label}", run.resume_at, lane.timezone, now)
    if reason in (PauseReason.WINDOW_CLOSED, PauseReason.ACCOUNT_CAPACITY):
        return over(lane.facts, _window(run), False, f"paused: {reason.label}", lane.timezone, now)
    return Why(f"paused: {reason.label}; resume it to go on")
