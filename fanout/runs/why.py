"""Explain why nothing goes out right now, and when the next message does: one line for each account and run.

The line asks the lane's own gates and reads the lane's stored pace, so the time it names does not move while one
watches it: it changes when something happened, not because time went by.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes import account_limits
from fanout.lanes.account_state import AccountState, account_facts, read_counts
from fanout.lanes.chats import only_new_chats
from fanout.models import Driver, KnownServer, LaneState, PauseReason, Run, RunTarget
from fanout.models.run import LANE_ORDER
from fanout.plans.forecast import behind, forecast_run
from fanout.rules import gates, liveness
from fanout.rules.gates import AccountFacts, Close, Open, RunFacts, Wait, goes_on_at, limit_in_the_way
from fanout.rules.liveness import driver_is_alive
from fanout.rules.new_chat_limits import wait_for_new_chats
from fanout.rules.outcomes import timeouts_in_words
from fanout.rules.pace import PaceSettings, PaceState, earliest_send
from fanout.runs import texts
from reminders.moments import TimeWords
from reminders.window import Window

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
RUNS_LOOKED_AT = 20

NOTHING = "nothing to send"
#: pause reasons for which the account's limit is named
ACCOUNT_LIMITS = (PauseReason.ACCOUNT_CAPACITY, PauseReason.ACCOUNT_HOURS)
PREPARING = "its recipients are being copied; it starts when that is done"


@dataclass(frozen=True, slots=True)
class Why:
    """The line, and the moment of the next send where one is known."""

    text: str
    next_send_at: datetime | None = None
    # While it is sending: the line without the moment, for pages on which that ticks.
    cause: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True, kw_only=True)
class LaneNow(AccountState):
    """An account's lane as stored, with the facts that its gates are asked about for one action."""

    facts: AccountFacts
    driven: bool
    clock: TimeWords


@dataclass(frozen=True, slots=True)
class RunNow:
    """A live run as stored. `retry_at` is set where nothing of it may be sent before."""

    facts: RunFacts
    window: Window
    scheduled_for: datetime
    # Goes on by itself after its window, and after a limit of its account.
    auto_resume: bool
    resume_after_limit: bool = False
    retry_at: datetime | None = None
    # For a follow-up: the account's queue of them is above this, and they wait longer between sends.
    queued_above: int | None = None
    # Only persons are left to whom the account has not written yet.
    only_new_chats: bool = False
    # The runs that the lane sends first, in words, and when this one's turn comes.
    behind: str = ""
    turn_at: datetime | None = None
    # What the lane recorded when it let the run wait.
    recorded: Wait | None = None


# --- pure -----------------------------------------------------------------------------------------------


def explain(lane: LaneNow, run: RunNow, now: datetime) -> Why:
    """Return the line of a live run in this lane: what the lane recorded, else the first closed gate, else the runs in
    front, a retry, or the pace."""
    if run.scheduled_for > now:
        opens = max(run.scheduled_for, run.facts.window_opens_at)
        return _next("not due yet", opens, lane.clock, now)
    gate = gates.may_run(lane.facts, run.facts, now)
    if lane.driven and run.recorded is not None and run.recorded.until > now and not isinstance(gate, Close):
        gate = run.recorded  # the lane's own reason comes first
    if isinstance(gate, Open) and run.only_new_chats:
        gate = wait_for_new_chats(lane.new_chats, now) or gate
    if not isinstance(gate, Open):
        return _held(lane, run, gate, now)
    if not lane.driven:
        return Why("no driver is alive: nothing is sent until one starts")
    if run.behind:
        return Why(run.behind, run.turn_at)
    if run.retry_at is not None and run.retry_at > now:
        return Why(f"waiting for a retry at {lane.clock(run.retry_at, now)}", run.retry_at)
    return _paced(lane, run, now)


def short_why(run: Run, behind: str = "") -> str:
    """Return for lists those causes of `explain` that need no look at the account, in its order: what the lane recorded
    when it let the run wait, else the runs in front of it (`behind`)."""
    return run.waiting_why or behind


def _held(lane: LaneNow, run: RunNow, gate: gates.Gate, now: datetime) -> Why:
    if isinstance(gate, Wait):
        again = run.window.meets(lane.facts.hours, gate.until)
        line = _next(gate.why, again, lane.clock, now)
        # Only a hold of new chats may end after the window here: other limits close the run then.
        return line if gate.until < run.facts.window_closes_at else _once_resumed(line, run.resume_after_limit)
    assert isinstance(gate, Close)
    if gate.reason == PauseReason.ACCOUNT_DOWN:
        return Why(gate.why)
    switches = {"auto_resume": run.auto_resume, "resume_after_limit": run.resume_after_limit}
    return _after_the_window(lane, run.window, gates.goes_on_by_itself(switches, gate.reason), gate.why, now)


def _after_the_window(lane: LaneNow, window: Window, by_itself: bool, why: str, now: datetime) -> Why:
    """Return when the run could go on after its window is over, or ends before the account's limit does."""
    limit = limit_in_the_way(lane.facts, now)
    line = _next(limit.why if limit else why, goes_on_at(window, lane.facts, now), lane.clock, now)
    return _once_resumed(line, by_itself)


def _once_resumed(line: Why, by_itself: bool) -> Why:
    """Return the line of a run that its operator must resume first, unless it goes on by itself."""
    return line if by_itself or line.next_send_at is None else Why(f"{line.text}, once resumed", line.next_send_at)


def _paced(lane: LaneNow, run: RunNow, now: datetime) -> Why:
    # From the stored state alone, so that asking again later names the same moment.
    earliest = max(earliest_send(lane.pace, lane.pace_settings, LONG_AGO), run.scheduled_for)
    probe = ", a single trial message" if lane.probing else ""
    longer = f", 20–40 % longer: more than {run.queued_above} follow-ups are queued" if run.queued_above else ""
    pace = timeouts_in_words(lane.timeouts) or pace_in_words(lane.pace, lane.pace_settings)
    cause, when = f"{pace}{longer}", lane.clock(earliest, now, seconds=True)
    return Why(f"{cause}; next send {when}{probe}", earliest, f"{cause}{probe}")


def pace_in_words(pace: PaceState, settings: PaceSettings) -> str:
    """Return the part of the pace that sets the next earliest."""
    bucket = earliest_send(
        PaceState(theoretical_arrival=pace.theoretical_arrival, slow_factor=pace.slow_factor), settings, LONG_AGO
    )
    if pace.next_send_at is not None and pace.next_send_at > bucket:
        if settings.batch_size and pace.batch_sent == 0:
            return f"pause of {settings.batch_pause:g} s after {settings.batch_size} messages"
        if settings.max_gap > 0:
            return f"gap of {settings.min_gap:g}–{settings.max_gap:g} s"
        return "held back by the provider"
    rate = f"pace {settings.per_minute:g}/min" if settings.per_minute else "no rate limit"
    return f"{rate}, slowed down ×{pace.slow_factor:g}" if pace.slow_factor > 1 else rate


def _next(why: str, at: datetime | None, clock: TimeWords, now: datetime) -> Why:
    if at is None:
        return Why(f"{why}; the window and the account's business hours never meet")
    return Why(f"{why}; next send {clock(at, now)}", at)


# --- read from the database -----------------------------------------------------------------------------


def why_account(account: Account, now: datetime, zone: str = "") -> Why:
    """Return the line of the run that sends next; five queries. `zone`: the reader's."""
    account, clock = _with_lane(account.pk, now), TimeWords(account.timezone, zone)
    if account.status != Account.Status.ACTIVE:
        return _down(account, clock, now)
    if unstored := _unstored(account, now):
        return unstored
    runs = [(run, bool(getattr(run, "ready", False))) for run in _live_runs(account)[:RUNS_LOOKED_AT]]
    live = [(run, ready) for run, ready in runs if run.status in Run.LIVE]
    if not live:
        facts = account_limits.facts_now(account, channel(account.channel).action, now)
        return _asleep(facts, [run for run, _ in runs], clock, now)
    counts = channel(account.channel).counts
    sendable = [(run, ready) for run, ready in live if ready] or live[:1]
    lanes = {action: _lane_now(account, action, clock, now) for action in {counts(run.action) for run, _ in sendable}}
    with_lane = [(run, ready, lanes[counts(run.action)]) for run, ready in sendable]
    lines = [explain(lane, _run_now(run, account, ready, lane, now), now) for run, ready, lane in with_lane]
    return min(lines, key=lambda why: why.next_send_at or datetime.max.replace(tzinfo=UTC))


def why_run(
    run: Run,
    now: datetime,
    zone: str = "",
    turn: tuple[str, datetime | None] | None = None,
    user: Any = None,
    team: int | None = None,
) -> Why:
    """Return the line of the lane that has the run's next target; six queries. `turn`: what it waits behind, in words,
    and when its turn comes; where that is not given and the account has other runs, the run's forecast tells, with the
    names of those that `user` (None: the shell) and a token of `team` may see."""
    if run.status in Run.FINISHED:
        return Why(NOTHING)
    if run.status == Run.Status.PREPARING:
        return Why(PREPARING)
    first = run.targets.filter(status=RunTarget.Status.PENDING).order_by("position", "id").first()
    if first is None:
        return _last_in_flight(run, now)
    account = _with_lane(first.account_id, now)
    clock = TimeWords(account.timezone, zone)
    if account.status != Account.Status.ACTIVE:
        return _down(account, clock, now)
    if unstored := _unstored(account, now):
        return unstored
    lane = _lane_now(account, channel(account.channel).counts(run.action), clock, now)
    if run.status == Run.Status.PAUSED:
        return _paused(run, account, lane, now)
    stored = _run_now(run, account, first.next_attempt_at is None, lane, now)
    if turn is None and _others(account, run).exists():
        forecast = forecast_run(run, now)
        turn = behind({run.pk: forecast}, user, now, team)[run.pk], forecast.starts_at
    if turn is not None:
        stored = replace(stored, behind=turn[0], turn_at=turn[1])
    return explain(lane, stored, now)


def _others(account: Account, run: Run) -> QuerySet[Run]:
    """Return other runs that the account may have to send first."""
    return Run.objects.filter(lanes__contains=[account.pk], status__in=Run.LIVE).exclude(pk=run.pk)


def _with_lane(account_id: int, now: datetime) -> Account:
    """Read the account with its lane, the last heartbeat of any driver, and how many of its results are overdue."""
    beat = Driver.objects.order_by("-beat_at").values("beat_at")[:1]
    overdue = overdue_results(now).filter(account=OuterRef("pk")).order_by().values("account")
    counted = Coalesce(Subquery(overdue.annotate(n=Count("pk")).values("n")), 0)
    stopped = Exists(KnownServer.objects.filter(held=True))
    accounts = Account.objects.select_related("lane")
    return accounts.annotate(beat_at=Subquery(beat), unstored=counted, stopped=stopped).get(pk=account_id)


def overdue_results(now: datetime) -> QuerySet[RunTarget]:
    """Return targets that were answered, or given up, and whose result is not stored."""
    return RunTarget.objects.filter(status=RunTarget.Status.SENDING, claimed_at__lt=now - liveness.RESULT_OVERDUE_AFTER)


def _unstored(account: Account, now: datetime) -> Why | None:
    """Return the line of an account that waits for the database; without a driver it waits for one."""
    if getattr(account, "stopped", False):
        return Why(texts.LOST_COMMITS)
    results: int = getattr(account, "unstored", 0)
    if not results or not driver_is_alive(getattr(account, "beat_at", None), now):
        return None
    return Why(texts.unstored(results))


def _last_in_flight(run: Run, now: datetime) -> Why:
    """Return the line of a run with nothing left to claim."""
    if overdue := overdue_results(now).filter(run=run).count():
        return Why(texts.unstored(overdue))
    return Why("waiting for the provider" if run.sending else NOTHING)


def _live_runs(account: Account) -> QuerySet[Run]:
    """Return the runs that the lane has something of, in the order in which it takes them, and paused ones that go on
    by themselves. `ready` says whether anything of it may be sent at once."""
    mine = RunTarget.objects.filter(run=OuterRef("pk"), account=account, status=RunTarget.Status.PENDING)
    ready = mine.filter(next_attempt_at__isnull=True)
    return (
        Run.objects.filter(Q(status__in=Run.LIVE) | Q(status=Run.Status.PAUSED, resume_at__isnull=False))
        .filter(lanes__contains=[account.pk])
        .annotate(ready=Exists(ready))
        .order_by(*LANE_ORDER)
    )


def _lane_now(account: Account, action: str, clock: TimeWords, now: datetime) -> LaneNow:
    """`action`: as the account's channel counts it."""
    stored: LaneState | None = getattr(account, "lane", None)
    beat_at: datetime | None = getattr(account, "beat_at", None)
    driven = driver_is_alive(beat_at, now)
    lane = LaneNow.of(account, stored, now, facts=account_facts(account.__dict__), driven=driven, clock=clock)
    read_counts([lane])
    lane.facts = account_limits.with_cap(lane.base_facts, account, action, now)
    return lane


def _run_now(run: Run, account: Account, ready: bool, lane: LaneNow, now: datetime) -> RunNow:
    times = RunFacts(run.window_opens_at, run.window_closes_at)
    retry_at = None if ready else _retry_at(run, account)
    under_backpressure = run.follow_up and account_limits.under_backpressure(account.pk)
    queued_above = account_limits.queue_limits().threshold if under_backpressure else None
    held = wait_for_new_chats(lane.new_chats, now) is not None and only_new_chats(run.pk, account.pk)
    return RunNow(
        times,
        run.window,
        run.scheduled_for,
        run.auto_resume,
        run.resume_after_limit,
        retry_at,
        queued_above,
        held,
        recorded=recorded_wait(run),
    )


def recorded_wait(run: Run) -> Wait | None:
    """Return what the lane recorded when it let the run wait; None while it does not wait."""
    if run.status != Run.Status.WAITING or run.waiting_until is None or not run.waiting_why:
        return None
    return Wait(run.waiting_until, run.waiting_why)


def _retry_at(run: Run, account: Account) -> datetime | None:
    """Return when the first target may be tried again; None where one may be sent at once."""
    pending = run.targets.filter(account=account, status=RunTarget.Status.PENDING)
    soonest = pending.order_by(F("next_attempt_at").asc(nulls_first=True))
    return soonest.values_list("next_attempt_at", flat=True).first()


def _down(account: Account, clock: TimeWords, now: datetime) -> Why:
    gate = gates.account_status(account_facts(account.__dict__), None, now)
    if isinstance(gate, Wait):
        return Why(f"{gate.why}; until {clock(gate.until, now)}", gate.until)
    assert isinstance(gate, Close)  # the caller has found it not active
    return Why(gate.why)


def _asleep(facts: AccountFacts, paused: list[Run], clock: TimeWords, now: datetime) -> Why:
    """Return the line of an account without a live run. A paused run may have a time at which it goes on by itself,
    within the account's limits."""
    limit = limit_in_the_way(facts, now)
    times = [goes_on_at(run.window, facts, now, run.resume_at) for run in paused if run.resume_at is not None]
    if not times:
        return Why(f"{limit.why}; {NOTHING}" if limit else NOTHING)
    runs = "its run is paused" if len(times) == 1 else f"its {len(times)} runs are paused"
    return _next(f"{limit.why}; {runs}" if limit else runs, min(filter(None, times), default=None), clock, now)


def _paused(run: Run, account: Account, lane: LaneNow, now: datetime) -> Why:
    reason = PauseReason(run.pause_reason)
    new_chats = wait_for_new_chats(lane.new_chats, now)
    if run.resume_at is not None:
        limit = limit_in_the_way(lane.facts, now)
        goes_on = goes_on_at(run.window, lane.facts, now, run.resume_at)
        named = limit.why if limit and reason in ACCOUNT_LIMITS else reason.label
        return _next(f"paused: {named}", goes_on, lane.clock, now)
    if reason in gates.ENDS_BY_ITSELF:
        if new_chats is not None and only_new_chats(run.pk, account.pk):
            opens = run.window.meets(lane.facts.hours, new_chats.until)
            return _once_resumed(_next(new_chats.why, opens, lane.clock, now), by_itself=False)
        return _after_the_window(lane, run.window, False, f"paused: {reason.label}", now)
    return Why(f"paused: {reason.label}; resume it to go on")
