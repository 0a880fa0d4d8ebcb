"""Attacks on the engine: slow providers, set clocks, lost connections, shared runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.channels.base import Handle, Kind, Media, NotSent
from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.database import Statement, conninfo, execute
from fanout.engine import holding, loading
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.commit import Call, Claim, Commit, LaneWrite, Result, calls_of, ignore_written
from fanout.engine.connection import AsyncLink, Row, prepare
from fanout.engine.dispatcher import Dispatcher
from fanout.engine.driver import Driver
from fanout.engine.lane_loop import Lane, Sleep
from fanout.engine.ledger import Ledger
from fanout.lanes.lane_rows import hold_lane, wake_after_clock_change
from fanout.models import LaneState, Notification, Run, RunTarget
from fanout.ops import heartbeat
from fanout.rules.outcomes import LONGEST_HOLD, SHORTEST_BAN, consequence
from fanout.rules.pace import PaceState
from fanout.runs import controls
from reminders.models import Suppression
from tests.engine.stage import MONDAY, FarAwayTransport, Stage, StageDriver, fresh
from tests.engine.test_protection import cap, faults

SECOND = timedelta(seconds=1)


def longest_gap(stage: Stage, account: str) -> float:
    times = [d.t for d in stage.book.deliveries(account)]
    return max(later - earlier for earlier, later in pairwise(times))


# --- a slow lane holds only itself ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [1, 2])
def test_a_slow_provider_gives_no_other_lane_a_pause_at_the_end_of_a_slice(stage: Stage, drivers: int) -> None:
    stage.provider.set_script(Script({"slow": {"latency_ms": [9900, 9900]}, "*": {"latency_ms": [80, 200]}}))
    slow, quick = stage.account(address="slow"), stage.account(address="quick")
    stage.fire(stage.reminder(slow, groups=60))
    stage.fire(stage.reminder(quick, groups=200, first=100))
    stage.play(150, drivers=drivers)
    assert longest_gap(stage, "quick") < 4  # 1.5 s at 40 a minute, and the successor's way through the queue
    assert len(stage.book.deliveries("slow")) >= 30  # three at once, every ten seconds
    assert LaneState.objects.filter(crashes__gt=0).count() == 0


def test_a_lane_that_becomes_due_while_slow_ones_end_is_taken_at_once(stage: Stage) -> None:
    """With a single driver: no other could take it."""
    stage.provider.set_script(Script({"slow": {"latency_ms": [9900, 9900]}, "*": {"latency_ms": [80, 200]}}))
    stage.fire(stage.reminder(stage.account(address="slow"), groups=60))
    due_at = stage.now + timedelta(seconds=stage.slice_seconds + 1.5)
    stage.fire(stage.reminder(stage.account(address="quick"), groups=20, first=100), at=due_at)
    stage.play(60)
    assert stage.book.deliveries("quick")[0].t - due_at.timestamp() < 2
    assert longest_gap(stage, "quick") < 4
    assert LaneState.objects.filter(crashes__gt=0).count() == 0


def test_no_upload_begins_that_the_driver_could_not_wait_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    faults(stage, upload_latency_ms=45_000)
    begun, really = [], FarAwayTransport.prepare

    async def prepare(self: FarAwayTransport, file: Media) -> Handle:
        begun.append(self.account.id)
        return await really(self, file)

    monkeypatch.setattr(FarAwayTransport, "prepare", prepare)
    runs = [
        stage.fire(
            stage.reminder(stage.account(), groups=2, parts=parts, first=n * 10),
            at=stage.now + timedelta(seconds=stage.slice_seconds + after),
        )
        for n, (after, parts) in enumerate([(-10, ("image",)), (20, ("text", "image"))])
    ]
    stage.play()
    assert [fresh(run).status for run in runs] == [Run.Status.SUCCESS] * 2
    assert len(stage.book.uploads()) == len(begun) == 2
    assert LaneState.objects.filter(crashes__gt=0).count() == 0


@pytest.mark.slow
def test_a_long_upload_outlives_its_slice(stage: Stage) -> None:
    faults(stage, upload_latency_ms=52_000)
    run = stage.fire(stage.reminder(stage.account(), groups=5, parts=("image",)))
    stage.play(240, drivers=2)
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.uploads()) == 1
    assert LaneState.objects.filter(crashes__gt=0).count() == 0


@pytest.mark.slow
def test_a_driver_beats_while_it_hands_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peers would end the session of one that is silent for ten seconds, and count a crash."""
    faults(stage, latency_ms=[8_000, 9_500])
    run = stage.fire(stage.reminder(stage.account(), groups=60))
    beats, really = [], Driver._beat

    async def beat(self: Driver) -> None:
        beats.append(self.clock.monotonic())
        await really(self)

    monkeypatch.setattr(StageDriver, "LONGEST_SLEEP", 0.0)
    monkeypatch.setattr(Driver, "_beat", beat)
    stage.play(200)
    assert max(later - earlier for earlier, later in pairwise(beats)) < 3
    assert fresh(run).unconfirmed == 0
    assert len(stage.book.deliveries()) == fresh(run).sent + run.sending
    assert LaneState.objects.filter(crashes__gt=0).count() == 0


# --- a clock that is set ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("step", [-2, -3600, 1800], ids=["back a little", "back an hour", "forward"])
def test_a_clock_that_is_set_stops_no_lane_and_spoils_no_result(stage: Stage, step: int) -> None:
    faults(stage, {"match": {"every": 7}, "effect": "soft_bounce"}, latency_ms=[900, 1000])
    account = stage.account(circuit_breaker=1.0, error_rate_slowdown=1.0)
    run = stage.fire(stage.reminder(account, groups=200))

    def set_clock(now: datetime) -> None:
        assert stage.clock is not None
        stage.clock.start += timedelta(seconds=step)  # durations stay

    stage.play(120, [(stage.now + 20 * SECOND, set_clock)])
    run.refresh_from_db()
    assert run.unconfirmed == 0
    assert run.sent == len(stage.book.deliveries())
    # 40 a minute and a burst of 3, less every seventh; set forward, the bucket does not fill faster.
    assert 55 <= len(stage.book.deliveries()) <= 83


@pytest.mark.slow
def test_a_driver_beats_by_the_monotonic_clock(stage: Stage) -> None:
    """Set back an hour, it would not have beaten for an hour, and its peer would have ended it."""
    stage.fire(stage.reminder(stage.account(), groups=100))

    def set_clock(now: datetime) -> None:
        assert stage.clock is not None
        stage.clock.start -= timedelta(hours=1)

    stage.play(100, [(stage.now + 20 * SECOND, set_clock)], drivers=2)
    assert len(stage.book.deliveries()) >= 60
    assert LaneState.objects.filter(crashes__gt=0).count() == 0


# --- what the provider answered stands --------------------------------------------------------------------


def test_results_wait_for_a_database_that_is_away_past_the_end_of_the_slice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults(stage, latency_ms=[3000, 3000])
    stage.slice_seconds = 12
    run = stage.fire(stage.reminder(stage.account(), groups=40))
    away = (stage.now + 10 * SECOND, stage.now + 75 * SECOND)
    really = stage.open_ledger

    async def open_ledger(outbox: Any) -> Ledger:
        assert stage.clock is not None
        if away[0] <= stage.clock.now() < away[1]:
            raise psycopg.OperationalError("the database is away")
        return await really(outbox)

    monkeypatch.setattr(stage, "open_ledger", open_ledger)

    def cut(now: datetime) -> None:
        with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as other:
            pid = stage.ledgers[-1].locks.connection.info.backend_pid  # type: ignore[attr-defined]
            other.execute("SELECT pg_terminate_backend(%s, 1000)", [pid])

    stage.play(100, [(away[0], cut)])
    run.refresh_from_db()
    assert run.unconfirmed == 0
    assert run.sent == len(stage.book.deliveries()) > 3


def test_a_reconnecting_driver_does_not_wait_for_a_slow_provider(stage: Stage) -> None:
    stage.provider.set_script(Script({"slow": {"latency_ms": [9_000, 9_000]}, "*": {"latency_ms": [80, 200]}}))
    run = stage.fire(stage.reminder(stage.account(address="slow"), groups=6))
    stage.fire(stage.reminder(stage.account(address="quick"), groups=100, first=100))

    def cut(now: datetime) -> None:
        with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as other:
            pid = stage.ledgers[-1].locks.connection.info.backend_pid  # type: ignore[attr-defined]
            other.execute("SELECT pg_terminate_backend(%s, 1000)", [pid])

    stage.play(38, [(stage.now + 2 * SECOND, cut)])
    assert longest_gap(stage, "quick") < 4
    # The late answers of the lost connection were written by the next one.
    assert fresh(run).unconfirmed == 0
    assert run.sent >= 3


class DyingLink:
    """A connection whose query never ends and, when cancelled, raises the server's last words."""

    def __init__(self) -> None:
        self.closed = False

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        return []

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.closed = True
            raise psycopg.errors.AdminShutdown("terminating connection") from None
        return []

    async def script(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [[] for _ in statements]

    async def close(self) -> None:
        self.closed = True


def test_a_ledger_stops_although_its_connection_dies_in_the_middle_of_a_write() -> None:
    async def play(clock: VirtualClock) -> float:
        ledger = Ledger(DyingLink(), DyingLink())
        ledger.start()
        ledger.leave_lane(LaneWrite(1, 1, PaceState(), "", None, False, clock.now()))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await ledger.stop()
        return clock.monotonic()

    assert run_virtual(play, MONDAY) < 30


# --- shared runs ------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_two_drivers_that_share_runs_never_wait_for_each_other_in_a_circle(stage: Stage) -> None:
    """One records in run A and claims in run B, the other does the reverse, both at once, a hundred times."""
    accounts = [stage.account(), stage.account()]
    runs = [stage.fire(stage.reminder(accounts[0], groups=200, first=n * 300)) for n in range(2)]
    Run.objects.update(status="running", window_closes_at=datetime.now(UTC) + timedelta(hours=1))
    for account in accounts:
        LaneState.objects.update_or_create(account=account, defaults={"epoch": 1})
    halves = {
        (run.pk, account.pk): list(run.targets.values_list("pk", flat=True)[n * 100 : n * 100 + 100])
        for run in runs
        for n, account in enumerate(accounts)
    }
    for (_, account_id), ids in halves.items():
        RunTarget.objects.filter(pk__in=ids).update(account_id=account_id)

    async def drive(account_id: int, records_in: int, claims_in: int) -> None:
        link = await prepare(await AsyncLink.open(conninfo(connection.settings_dict), threshold=None))
        now = datetime.now(UTC)
        try:
            for recorded, claimed in zip(halves[records_in, account_id], halves[claims_in, account_id]):
                first = Commit(claims=[(_claim(recorded, records_in, account_id, now), asyncio.Future())])
                await link.call(calls_of(first))
                result = Result(recorded, records_in, account_id, 1, now, "sent", 1, 1, now, "message", activity="sent")
                both = Commit(
                    results=[(result, ignore_written)],
                    claims=[(_claim(claimed, claims_in, account_id, now), asyncio.Future())],
                )
                await link.call(calls_of(both))
        finally:
            await link.close()

    async def race() -> None:
        one, two = (run.pk for run in runs)
        await asyncio.gather(drive(accounts[0].pk, one, two), drive(accounts[1].pk, two, one))

    asyncio.run(race())
    assert {fresh(run).sent for run in runs} == {100}


def _claim(target: int, run: int, account: int, now: datetime) -> list[Claim]:
    return [Claim(target, run, account, 1, now)]


# --- lanes that spin --------------------------------------------------------------------------------------


def test_a_due_retry_that_an_earlier_run_holds_back_is_no_hot_loop(stage: Stage) -> None:
    account = stage.account()
    one = stage.fire(stage.reminder(account, groups=1))
    two = stage.fire(stage.reminder(account, groups=1), at=stage.now + SECOND)
    one.targets.update(next_attempt_at=stage.now + timedelta(minutes=10))
    two.targets.update(next_attempt_at=stage.now)
    stage.play(60)
    assert stage.reads.count(loading.TARGETS) < 60


def test_a_run_whose_targets_are_all_refused_comes_to_its_end(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=30))
    for address in run.targets.values_list("address", flat=True):
        Suppression.objects.create(address=address, reason="manual")
    stage.play()
    assert fresh(run).skipped == 30
    assert stage.book.deliveries() == []


@pytest.mark.slow
def test_an_unreachable_provider_is_asked_once_a_minute(stage: Stage) -> None:
    faults(stage, {"effect": "refused"})
    run = stage.fire(stage.reminder(stage.account(), groups=20))
    stage.play(900)
    assert fresh(run).failed == 0
    assert 15 <= len(stage.book.refused()) <= 25


# --- trouble after the run has gone -----------------------------------------------------------------------


def test_a_ban_is_noticed_although_its_run_has_left_the_lane(stage: Stage) -> None:
    faults(stage, {"effect": "banned"}, latency_ms=[3000, 3000])
    account = stage.account()
    cap(account, 100)
    run = stage.fire(stage.reminder(account, groups=10))
    stage.play(20, [(stage.now + SECOND, lambda now: controls.pause(run, stage.user, now))])
    account.refresh_from_db()
    assert account.status == "suspended"
    assert fresh(run).failed == 0


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [
        (NotSent(Kind.BANNED, until=MONDAY - timedelta(days=1)), SHORTEST_BAN),
        (NotSent(Kind.BANNED, until=MONDAY + timedelta(hours=5)), 5 * 3600),
    ],
    ids=["ended already", "to come"],
)
def test_a_ban_never_ends_in_the_past(outcome: NotSent, seconds: float) -> None:
    verdict = consequence(outcome, retries=(), attempts=1, base=5, sample="", repeatable=False, now=MONDAY)
    assert verdict.account is not None
    assert verdict.account.until == MONDAY + timedelta(seconds=seconds)


@pytest.mark.parametrize("kind", [Kind.RATE_LIMITED, Kind.UNAVAILABLE, Kind.NEW_CHATS_BLOCKED, Kind.SOFT_BOUNCE])
@pytest.mark.parametrize(("asked", "most"), [(1e12, LONGEST_HOLD), (float("inf"), LONGEST_HOLD), (float("nan"), 3600)])
def test_a_break_asked_for_by_a_provider_is_limited(kind: Kind, asked: float, most: float) -> None:
    outcome = NotSent(kind, retry_after=asked)
    verdict = consequence(outcome, retries=(), attempts=1, base=5, sample="", repeatable=False, now=MONDAY)
    assert verdict.retry_at is not None
    assert MONDAY < verdict.retry_at <= MONDAY + timedelta(seconds=most)


@pytest.mark.slow
def test_a_success_after_rate_limits_trips_no_breaker(stage: Stage) -> None:
    rule = {"match": {"first": 8}, "effect": "rate_limited", "retry_after": 1}
    faults(stage, rule)
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=600), groups=60))
    stage.play(1200)
    assert fresh(run).status == Run.Status.SUCCESS


@pytest.mark.parametrize("slow", [True, False])
def test_a_break_that_is_reported_to_a_running_lane_holds_and_slows_it(stage: Stage, slow: bool) -> None:
    account = stage.account(max_send_per_minute=60, batch_size=0, min_gap_seconds=0, max_gap_seconds=0)
    stage.fire(stage.reminder(account, groups=40))
    begins, ends = stage.now + timedelta(seconds=10), stage.now + timedelta(seconds=25)
    stage.play(60, [(begins, lambda now: hold_lane(account.pk, ends, slow, now))])
    times = stage.times(account.address)
    assert not [at for at in times if begins + timedelta(seconds=2) < at < ends]
    after = [at for at in times if at >= ends]
    gaps = [(later - at).total_seconds() for at, later in pairwise(after[2:12])]
    assert (sum(gaps) / len(gaps) > 1.3) is slow
    assert (LaneState.objects.get(account=account).slow_factor > 1.2) is slow


# --- machines ---------------------------------------------------------------------------------------------


def test_each_machine_has_slots_of_its_own(stage: Stage) -> None:
    async def play(clock: VirtualClock) -> list[bool]:
        def driver(host: str) -> Driver:
            made = Driver(clock, stage.open_ledger, stage.transport, capacity=10, slice_seconds=5)
            made.identity.host = host
            return made

        return await asyncio.gather(*(driver(host).run() for host in ("one", "two", "one")))

    stage.clock = VirtualClock(stage.now)
    assert run_virtual(play, stage.now) == [True, True, False]


# --- lanes that stand still -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lane_that_never_ends_is_given_up_and_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait without a limit must not hold the driver until its task is killed."""
    stuck, well = stage.account(address="stuck"), stage.account(address="well")
    stage.fire(stage.reminder(stuck, groups=5))
    stage.fire(stage.reminder(well, groups=150, first=50))
    really = Dispatcher.media_ready

    async def media_ready(self: Dispatcher, *arguments: Any) -> bool:
        if self.account_id == stuck.pk:
            await asyncio.Event().wait()
        return await really(self, *arguments)

    monkeypatch.setattr(Dispatcher, "media_ready", media_ready)
    stage.play(200)
    assert LaneState.objects.get(account=stuck).crashes >= 1
    assert LaneState.objects.get(account=well).crashes == 0
    # 13 s of every 53 are lost to the one that never ends.
    assert len(stage.book.deliveries("well")) > 85


def test_a_lane_without_progress_is_noticed_told_once_and_freed(stage: Stage) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=5))
    later = stage.now + timedelta(minutes=10)
    Run.objects.filter(pk=run.pk).update(status="running", started_at=stage.now)
    LaneState.objects.filter(account=account).update(holder="somebody", epoch=4)
    assert heartbeat.free_stalled(stage.now + timedelta(minutes=4)) == 0
    assert heartbeat.free_stalled(later) == 1
    assert LaneState.objects.get(account=account).epoch == 5
    assert heartbeat.free_stalled(later + timedelta(minutes=1)) == 0  # it has its five minutes again
    assert heartbeat.free_stalled(later + timedelta(minutes=6)) == 1
    told = Notification.objects.get()
    assert told.title == "Account stalled"
    assert told.body.startswith(f"{account.label}: Nothing was sent for 5 minutes although it could")
    assert told.body.endswith("Holds: Rent (1 run).")


def test_the_notification_of_a_stall_says_that_results_cannot_be_stored(stage: Stage) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=5))
    Run.objects.filter(pk=run.pk).update(status="running", started_at=stage.now)
    claimed = run.targets.filter(position__in=list(run.targets.values_list("position", flat=True)[:2]))
    claimed.update(status="sending", claimed_at=stage.now)
    assert heartbeat.free_stalled(stage.now + timedelta(minutes=6)) == 1
    told = Notification.objects.get().body
    assert "Nothing was sent for 5 minutes: the database does not take the result of 2 messages, and nothing" in told


LANE_LOCKS = """
SELECT count(*) AS n FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND classid = %(space)s AND objid = %(account)s AND objsubid = 2
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def locks_of(account: Account) -> int:
    """Return how often the lane's lock is held. Other tests use the same server, with the same numbers of accounts."""
    (row,) = execute(LANE_LOCKS, {"space": holding.LANE_LOCKS, "account": account.pk})
    return int(row["n"])


@pytest.mark.slow
@pytest.mark.parametrize(("hangs", "seconds"), [(False, 4), (True, 125)], ids=["it waits for its slot", "it hangs"])
def test_a_lane_freed_from_its_own_driver_is_driven_anew_under_one_lock(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, hangs: bool, seconds: int
) -> None:
    """The driver beats on and has the lock: no other can take the lane before it was given back."""
    account, other = stage.account(max_send_per_minute=6, send_burst=1), stage.account(address="other")
    run = stage.fire(stage.reminder(account, groups=12))
    stage.fire(stage.reminder(other, groups=600, first=100))
    really, hung = Lane.drive, asyncio.Event()
    seen: list[tuple[int, bool]] = []

    async def drive(lane: Lane) -> Sleep:
        if hangs and lane.account_id == account.pk and not hung.is_set():
            hung.set()
            await asyncio.sleep(3600)
        return await really(lane)

    def free(now: datetime) -> None:
        LaneState.objects.filter(account=account).update(progress_at=now - timedelta(minutes=10), next_send_at=None)
        Run.objects.filter(pk=run.pk).update(
            scheduled_for=now - timedelta(minutes=10), status="running", started_at=now - timedelta(minutes=10)
        )
        assert heartbeat.free_stalled(now) == 1

    def look(now: datetime) -> None:
        lane = LaneState.objects.get(account=account)
        seen.append((locks_of(account), lane.holder != "" and lane.epoch > 2))

    monkeypatch.setattr(Lane, "drive", drive)
    start = stage.now
    freed_at = start + 12 * SECOND
    stage.play(seconds + 20, [(freed_at, free), (freed_at + seconds * SECOND, look)])
    assert seen == [(1, True)]
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    calls = [delivery.t for delivery in stage.book.deliveries(account.address)]
    assert len(calls) == 12
    assert min(later - earlier for earlier, later in pairwise(calls)) > 9
    assert locks_of(account) == 0


@pytest.mark.parametrize(
    ("status", "waiting_until"), [("queued", None), ("waiting", timedelta(minutes=-1))], ids=["overdue", "wait-is-over"]
)
def test_a_lane_that_never_came_to_its_first_claim_is_noticed(
    stage: Stage, status: str, waiting_until: timedelta | None
) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=5))
    until = waiting_until and stage.now + waiting_until
    Run.objects.filter(pk=run.pk).update(status=status, waiting_until=until)
    assert heartbeat.free_stalled(stage.now + timedelta(minutes=3)) == 0
    assert heartbeat.free_stalled(stage.now + timedelta(minutes=6)) == 1


@pytest.mark.slow
def test_a_run_that_waits_behind_the_retries_of_another_does_not_stand_still(stage: Stage) -> None:
    """A has a retry to send to a recipient of B's in a quarter of an hour: B waits for nothing else."""
    account = stage.account(max_send_per_minute=60, group_concurrency=1, retry_base_seconds=900)
    faults(stage, {"match": {"address": "120363000000000002@g.us", "first": 1}, "effect": "soft_bounce"})
    runs = [stage.fire(stage.reminder(account, groups=3, title=title)) for title in "AB"]
    found: list[int] = []
    minutes = [stage.now + timedelta(minutes=n) for n in range(1, 15)]
    stage.play(870, [(at, lambda now: found.append(heartbeat.free_stalled(now))) for at in minutes])
    assert found == [0] * 14
    assert [fresh(run).sent for run in runs] == [2, 2]
    stage.play()
    assert [fresh(run).sent for run in runs] == [3, 3]


@pytest.mark.parametrize(
    "waits",
    [
        {"lane": {"next_send_at": timedelta(minutes=9)}},
        {"lane": {"due_at": timedelta(minutes=30)}},
        {"run": {"status": "waiting", "waiting_until": timedelta(minutes=6)}},
        {"run": {"status": "queued", "scheduled_for": timedelta(minutes=6)}},
        {"run": {"status": "queued", "window_start_hour": 17}},
        {"target": {"next_attempt_at": timedelta(minutes=9)}},
    ],
    ids=["pace", "parked", "waiting", "not-due", "window-not-open", "retry"],
)
def test_a_lane_that_waits_for_a_reason_does_not_stand_still(stage: Stage, waits: dict[str, Any]) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=5))
    rows = {"lane": LaneState.objects.all(), "run": Run.objects.all(), "target": run.targets.all()}
    Run.objects.filter(pk=run.pk).update(status="running", started_at=stage.now)
    for name, change in waits.items():
        values = {k: stage.now + v if isinstance(v, timedelta) else v for k, v in change.items()}
        rows[name].update(**values)
    assert heartbeat.free_stalled(stage.now + timedelta(minutes=10)) == 0


def test_parked_lanes_look_again_after_the_clock_was_set_back(stage: Stage) -> None:
    stage.fire(stage.reminder(stage.account(), groups=5))
    LaneState.objects.update(due_at=stage.now + timedelta(minutes=1))
    assert wake_after_clock_change(stage.now) == 0
    assert wake_after_clock_change(stage.now - timedelta(hours=1)) == 1
    assert LaneState.objects.get().due_at == stage.now - timedelta(hours=1)
    assert wake_after_clock_change(stage.now - timedelta(hours=1)) == 0  # once is enough


# --- a run is judged by its own outcomes ------------------------------------------------------------------


def test_yesterdays_failures_do_not_pause_todays_run(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=600, circuit_breaker=0.2, bounce_rate_pause=1)
    faults(stage, {"match": {"every": 6}, "effect": "content_rejected"})
    stage.fire(stage.reminder(account, groups=60))
    stage.play()
    assert LaneState.objects.get().sample.count("e") >= 8  # 17 %
    faults(stage, {"match": {"first": 3}, "effect": "content_rejected"})
    run = stage.fire(stage.reminder(account, groups=60, first=100))
    stage.play()
    assert (fresh(run).status, run.sent, run.failed) == ("partial", 57, 3)
