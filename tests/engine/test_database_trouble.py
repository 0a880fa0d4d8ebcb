"""A database that is busy, locked or away must not end sends, forget them, or stop other lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.channels.base import Outcome
from accounts.channels.sandbox.script import Script
from accounts.channels.sandbox.transport import MemorySandboxTransport
from fanout.database import conninfo
from fanout.engine import holding, loading
from fanout.engine import lane_loop as lanes
from fanout.engine.clock import SystemClock, VirtualClock, run_virtual
from fanout.engine.driver import CLOSE_LIMIT, Driver, Transports
from fanout.engine.ledger import Ledger
from fanout.lanes import lane_rows
from fanout.models import LaneState, Run
from fanout.ops.tasks import open_ledger
from reminders.window import Window
from tests.engine.stage import MONDAY, FarAwayTransport, Stage, fresh, noon_zone
from tests.engine.test_protection import faults

SECOND = timedelta(seconds=1)


def refuse_once(monkeypatch: pytest.MonkeyPatch, statement: str, when: Callable[[], bool] = lambda: True) -> list[str]:
    """The next time that it is written, PostgreSQL finds a deadlock. The list says when that has happened."""
    refused: list[str] = []
    really = Ledger.write

    async def write(self: Ledger, what: str, parameters: Any = None) -> list[dict[str, Any]]:
        if what == statement and not refused and when():
            refused.append(what)
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return await really(self, what, parameters)

    monkeypatch.setattr(Ledger, "write", write)
    return refused


def live(*runs: Run) -> None:
    """Make runs due now, by the real clock, with their windows open."""
    now = datetime.now(UTC)
    window = Window(noon_zone(now))
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(
        scheduled_for=now,
        timezone=window.timezone,
        window_start_hour=window.start_hour,
        window_end_hour=window.end_hour,
        window_closes_at=window.closes_on(now),
    )
    LaneState.objects.update(due_at=now)


def driver(stage: Stage, **options: Any) -> Driver:
    return Driver(
        SystemClock(),
        open_ledger,
        lambda account: MemorySandboxTransport(account, stage.provider),
        **({"capacity": 50, "slice_seconds": 40} | options),
    )


def drive_while(stage: Stage, what: Callable[[Driver], Awaitable[None]], **options: Any) -> Driver:
    """A driver on the real clock, from before `what` until it was asked to stop after it."""
    one = driver(stage, **options)

    async def play() -> None:
        driving = asyncio.create_task(one.run())
        try:
            await what(one)
        finally:
            one.stopping = True
            await driving

    asyncio.run(play())
    return one


# --- a statement that is refused once ---------------------------------------------------------------------


@pytest.mark.slow
def test_a_refused_hand_over_ends_no_call_and_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.provider.set_script(Script({"slow": {"latency_ms": [3000, 3000]}, "*": {"latency_ms": [80, 200]}}))
    slow = stage.fire(stage.reminder(stage.account(address="slow"), groups=30))
    quick = stage.fire(stage.reminder(stage.account(address="quick"), groups=300, first=100))
    live(slow, quick)
    handing_over: list[Driver] = []
    refused = refuse_once(monkeypatch, lane_rows.LEAVE_LANES, lambda: handing_over[0].slice.handing_over)

    async def a_second(one: Driver) -> None:
        handing_over.append(one)
        await asyncio.sleep(1)

    drive_while(stage, a_second)
    assert refused
    for run, account in ((slow, "slow"), (quick, "quick")):
        assert fresh(run).sending == run.unconfirmed == 0
        assert run.sent == len(stage.book.deliveries(account)) > 0
    assert set(LaneState.objects.values_list("holder", flat=True)) == {""}


@pytest.mark.slow
def test_calls_land_although_a_hand_over_fails_altogether(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.provider.set_script(Script({"*": {"latency_ms": [3000, 3000]}}))
    run = stage.fire(stage.reminder(stage.account(), groups=30))
    live(run)

    async def broken(self: Driver) -> None:
        raise ValueError("a bug")

    async def a_second(one: Driver) -> None:
        await asyncio.sleep(1)
        monkeypatch.setattr(Driver, "_until_lanes_ended", broken)

    drive_while(stage, a_second)
    assert fresh(run).sending == run.unconfirmed == 0
    assert run.sent == len(stage.book.deliveries()) == 3


@pytest.mark.parametrize("statement", ["BEAT", "LEAVE_LANES", "TAKE_LANES", "TRY_LANE_LOCKS"])
def test_a_statement_refused_once_ends_no_slice(stage: Stage, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    runs = [stage.fire(stage.reminder(stage.account(), groups=10, first=n * 100)) for n in range(2)]
    refused = refuse_once(monkeypatch, getattr(lane_rows if hasattr(lane_rows, statement) else holding, statement))
    stage.play(39)
    assert refused
    assert {fresh(run).status for run in runs} == {Run.Status.SUCCESS}
    assert len(stage.book.deliveries()) == 20
    assert max(stage.times()) - min(stage.times()) < 15 * SECOND
    assert list(LaneState.objects.values_list("epoch", "crashes").distinct()) in ([(1, 0)], [(2, 0)])


def test_a_lane_that_meets_a_busy_database_rests_and_is_not_suspended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=10))
    busy: list[int] = []
    really = lanes.Lane.step

    async def step(self: lanes.Lane) -> lanes.Sleep:
        if len(busy) < holding.SUSPEND_AFTER + 1:
            busy.append(1)
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
        return await really(self)

    monkeypatch.setattr(lanes.Lane, "step", step)
    stage.play(90)
    assert fresh(run).status == Run.Status.SUCCESS


# --- connections ------------------------------------------------------------------------------------------


def test_a_driver_that_cannot_begin_leaves_no_connection_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    refuse_once(monkeypatch, holding.START_DRIVER)
    opened, really = [], stage.open_ledger

    async def opening(outbox: Any) -> Ledger:
        opened.append(await really(outbox))
        return opened[-1]

    monkeypatch.setattr(stage, "open_ledger", opening)
    stage.play(10)
    assert fresh(run).sent == 3
    assert len(opened) == 2
    assert all(ledger.locks.closed and ledger.reads.closed for ledger in opened)


# --- what the provider said about the account -------------------------------------------------------------


def cut(stage: Stage) -> None:
    """End the connections that hold locks of lanes."""
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as other:
        for one in stage.drivers:
            if one.lanes:
                pid = one.ledger.locks.connection.info.backend_pid  # type: ignore[attr-defined]
                other.execute("SELECT pg_terminate_backend(%s, 1000)", [pid])


def calls_at(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds at which the provider is called from now on."""
    calls, really, began = [], FarAwayTransport.send, stage.now

    async def send(self: FarAwayTransport, *arguments: Any) -> Outcome:
        assert stage.clock is not None
        calls.append(round((stage.clock.now() - began).total_seconds(), 1))
        return await really(self, *arguments)

    monkeypatch.setattr(FarAwayTransport, "send", send)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("away", "drivers"),
    [
        pytest.param(4, 1, id="while the database is away"),
        pytest.param(0.1, 1, id="after it was back"),
        pytest.param(0.1, 2, id="after another driver took the lane"),
    ],
)
@pytest.mark.parametrize("effect", ["rate_limited", "banned"])
def test_a_providers_break_stands_after_a_lost_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, effect: str, away: float, drivers: int
) -> None:
    faults(stage, {"match": {"first": 3}, "effect": effect}, latency_ms=[4000, 4000])
    account = stage.account(max_send_per_minute=6)
    run = stage.fire(stage.reminder(account, groups=60))
    calls, really, began = calls_at(stage, monkeypatch), stage.open_ledger, stage.now

    async def open_ledger(outbox: Any) -> Ledger:
        assert stage.clock is not None
        if began + 2 * SECOND <= stage.clock.now() < began + (2 + away) * SECOND:
            raise psycopg.OperationalError("away")
        return await really(outbox)

    monkeypatch.setattr(stage, "open_ledger", open_ledger)
    epochs: list[int] = []
    note = (began + 3.9 * SECOND, lambda now: epochs.append(LaneState.objects.get().epoch))
    stage.play(50, [(began + 2 * SECOND, lambda now: cut(stage)), note], drivers=drivers)
    assert epochs == [drivers]  # with its own calls under way, no driver takes the lane again
    assert calls == [0.0, 0.0, 0.0]
    account.refresh_from_db()
    assert account.status == ("suspended" if effect == "banned" else "active")
    assert fresh(run).unconfirmed == 0
    if effect == "rate_limited":
        lane = LaneState.objects.get()
        assert lane.next_send_at is not None
        assert (lane.probing, lane.next_send_at >= began + 60 * SECOND) == (True, True)
        stage.play(40)
        assert calls[3] >= 64  # and then one probe


# --- a row that another session has locked -----------------------------------------------------------------------


@asynccontextmanager
async def locked(run: Run) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Hold the run's row locked in another session."""
    async with await psycopg.AsyncConnection.connect(conninfo(connection.settings_dict)) as other:
        await other.execute("SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE", [run.pk])
        yield other
        await other.rollback()


@pytest.mark.slow
def test_a_locked_run_stops_only_its_own_lane_and_no_stop(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200]}}))
    one, two = (
        stage.fire(stage.reminder(stage.account(address=name, max_send_per_minute=600), groups=300, first=n * 400))
        for n, name in enumerate(("one", "two"))
    )
    live(one, two)

    async def lock(driving: Driver) -> None:
        await asyncio.sleep(2)
        async with locked(one) as other:
            await asyncio.sleep(4)  # it takes three seconds to see that the row is not to be had
            before = len(stage.book.deliveries("two"))
            await asyncio.sleep(5)
            assert len(stage.book.deliveries("two")) - before > 20
            beat = await (await other.execute("SELECT clock_timestamp() - beat_at FROM fanout_driver")).fetchone()
            assert beat is not None
            assert beat[0] < 4 * SECOND
            driving.stopping = True
            async with asyncio.timeout(10):
                await driving.ledger.lost.wait()

    drive_while(stage, lock)
    # What was known while the row was locked was written when it was free.
    assert fresh(one).sent == len(stage.book.deliveries("one")) > 0
    assert fresh(two).sent == len(stage.book.deliveries("two"))
    assert one.sending == two.sending == one.unconfirmed == 0


@pytest.mark.slow
def test_lanes_behind_a_locked_run_wait_and_others_are_taken(stage: Stage) -> None:
    """A dead driver left something in flight in a run that another session has locked."""
    one, two = (
        stage.fire(stage.reminder(stage.account(address=name), groups=20, first=n * 400))
        for n, name in enumerate(("one", "two"))
    )
    live(one, two)
    in_flight = one.targets.filter(position=one.targets.order_by("position")[0].position)
    in_flight.update(status="sending", claim_epoch=1, claimed_at=datetime.now(UTC), attempts=1)

    async def lock(driving: Driver) -> None:
        async with locked(one):
            await asyncio.sleep(6)
            assert stage.book.deliveries("one") == []
            assert len(stage.book.deliveries("two")) >= 3
        await asyncio.sleep(5)

    drive_while(stage, lock)
    assert len(stage.book.deliveries("one")) >= 3
    assert fresh(one).unconfirmed == 1


# --- look-ups that take long ------------------------------------------------------------------------------


def test_a_driver_beats_while_it_waits_for_a_look_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others end the session of one that is silent for ten seconds."""
    stage.fire(stage.reminder(stage.account(), groups=100))
    beats, beat, read = [], Driver._beat, Ledger.read

    async def beating(self: Driver) -> None:
        beats.append(self.clock.monotonic())
        await beat(self)

    async def slowly(self: Ledger, statement: str, parameters: Any = None) -> list[dict[str, Any]]:
        if statement == lane_rows.CHANGED_LANES:
            await asyncio.sleep(7)
        return await read(self, statement, parameters)

    monkeypatch.setattr(Driver, "_beat", beating)
    monkeypatch.setattr(Ledger, "read", slowly)
    stage.play(30)
    assert max(later - earlier for earlier, later in pairwise(beats)) < 3


def test_a_long_look_that_finds_nothing_is_seldom_repeated(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier run, which waits, holds every recipient of this one: all of them are looked at."""
    account = stage.account()
    first = stage.fire(stage.reminder(account, groups=3))
    first.targets.update(next_attempt_at=stage.now + timedelta(minutes=20))
    stage.fire(stage.reminder(account, groups=3), at=stage.now + SECOND)
    really, looks = loading.next_targets, []

    async def slowly(ledger: Ledger, wanted: list[loading.Wanted]) -> list[list[loading.Target]]:
        looks.append(ledger)
        await asyncio.sleep(2)
        return await really(ledger, wanted)

    monkeypatch.setattr(loading, "next_targets", slowly)
    stage.play(120)
    assert len(looks) <= 16  # of up to 34: each takes two seconds, and a slice begins with two


# --- the end of a slice -----------------------------------------------------------------------------------


def test_transports_close_together_and_in_time() -> None:
    class Slow:
        account = None

        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        async def close(self) -> None:
            await asyncio.sleep(self.seconds)
            closed.append(self.seconds)

    closed: list[float] = []

    async def play(clock: VirtualClock) -> float:
        transports = Transports(lambda seconds: Slow(seconds))  # type: ignore[arg-type, return-value]
        for account, seconds in enumerate([0.5, 0.5, 0.5, 3600]):
            await transports.make_ready(account, seconds)  # type: ignore[arg-type]
        await transports.close()
        return clock.monotonic()

    assert run_virtual(play, MONDAY) <= CLOSE_LIMIT
    assert closed == [0.5] * 3


# --- machines ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_of_two_machines_keeps_its_share_from_slice_to_slice(stage: Stage) -> None:
    for n in range(12):
        stage.fire(stage.reminder(stage.account(max_send_per_minute=20), groups=60, first=n * 100))
    seen: list[tuple[int, int]] = []

    async def machine(clock: VirtualClock, host: str, at_work: dict[str, Driver]) -> None:
        while clock.monotonic() < 80:
            one = Driver(clock, stage.open_ledger, stage.transport, capacity=50, slice_seconds=12, seed=1, tick=0.5)
            one.identity.host = host
            at_work[host] = one
            await one.run()
            await clock.sleep(1.5)  # the successor's way through the queue

    async def play(clock: VirtualClock) -> None:
        stage.clock = clock
        at_work: dict[str, Driver] = {}
        machines = [asyncio.create_task(machine(clock, "a", at_work))]
        await clock.sleep(5)
        machines.append(asyncio.create_task(machine(clock, "b", at_work)))
        while clock.monotonic() < 78:
            await clock.sleep(1)
            seen.append((len(at_work["a"].lanes), len(at_work["b"].lanes)))
        for one in at_work.values():
            one.stopping = True
        await asyncio.gather(*machines)

    run_virtual(play, stage.now)
    stage.clock = None
    settled = seen[15:]  # the first slice began alone
    assert max(max(both) for both in settled) <= 6
    assert sum(sum(both) == 12 for both in settled) > len(settled) * 0.6  # the rest is on its way to a successor
