"""What a database that is busy, locked or away must not do to sends: end them, forget them, or stop other lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from accounts.channels.sandbox.script import Script
from accounts.channels.sandbox.transport import MemorySandboxTransport
from fanout.engine import lane as lanes
from fanout.engine import rescue, sql
from fanout.engine.clock import SystemClock
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.models import LaneState, Run
from fanout.ops.tasks import open_ledger
from tests.engine.stage import Stage, fresh

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
    """Due now, by the wall's clock, with their windows open."""
    now = datetime.now(UTC)
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(
        scheduled_for=now, window_closes_at=now + timedelta(hours=3), window_start_hour=0, window_end_hour=24
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


def test_a_refused_hand_over_ends_no_call_and_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.provider.set_script(Script({"slow": {"latency_ms": [3000, 3000]}, "*": {"latency_ms": [80, 200]}}))
    slow = stage.fire(stage.reminder(stage.account(address="slow"), groups=30))
    quick = stage.fire(stage.reminder(stage.account(address="quick"), groups=300, first=100))
    live(slow, quick)
    handing_over: list[Driver] = []
    refused = refuse_once(monkeypatch, sql.LEAVE_LANES, lambda: handing_over[0].handing_over)

    async def a_second(one: Driver) -> None:
        handing_over.append(one)
        await asyncio.sleep(1)

    drive_while(stage, a_second)
    assert refused
    for run, account in ((slow, "slow"), (quick, "quick")):
        assert fresh(run).sending == run.unconfirmed == 0
        assert run.sent == len(stage.book.deliveries(account)) > 0
    assert set(LaneState.objects.values_list("holder", flat=True)) == {""}


def test_calls_land_although_a_hand_over_fails_altogether(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.provider.set_script(Script({"*": {"latency_ms": [3000, 3000]}}))
    run = stage.fire(stage.reminder(stage.account(), groups=30))
    live(run)

    async def broken(self: Driver) -> None:
        raise ValueError("a bug")

    async def a_second(one: Driver) -> None:
        await asyncio.sleep(1)
        monkeypatch.setattr(Driver, "_until_landed", broken)

    drive_while(stage, a_second)
    assert fresh(run).sending == run.unconfirmed == 0
    assert run.sent == len(stage.book.deliveries()) == 3


@pytest.mark.parametrize("statement", ["BEAT", "LEAVE_LANES", "TAKE_LANES", "LOCK_LANES"])
def test_a_statement_refused_once_ends_no_slice(stage: Stage, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    runs = [stage.fire(stage.reminder(stage.account(), groups=10, first=n * 100)) for n in range(2)]
    refused = refuse_once(monkeypatch, getattr(sql, statement))
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
    busy, really = [], lanes.Lane.step

    async def step(self: lanes.Lane) -> lanes.Sleep:
        if len(busy) < rescue.SUSPEND_AFTER + 1:
            busy.append(1)
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
        return await really(self)

    monkeypatch.setattr(lanes.Lane, "step", step)
    stage.play(90)
    assert fresh(run).status == Run.Status.SUCCESS


# --- connections ------------------------------------------------------------------------------------------


def test_a_driver_that_cannot_begin_leaves_no_connection_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    refuse_once(monkeypatch, sql.START_DRIVER)
    opened, really = [], stage.open_ledger

    async def opening(outbox: Any) -> Ledger:
        opened.append(await really(outbox))
        return opened[-1]

    monkeypatch.setattr(stage, "open_ledger", opening)
    stage.play(10)
    assert fresh(run).sent == 3
    assert len(opened) == 2
    assert all(ledger.locks.closed and ledger.reads.closed for ledger in opened)
