"""Results that are written after their driver's connection was lost."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from fanout.database import carry_out, conninfo
from fanout.engine import closing, holding
from fanout.engine.commit import Result
from fanout.engine.driver import Driver
from fanout.engine.outbox import Outbox
from fanout.models import LaneState, Run, RunTarget
from fanout.ops import audit, tasks
from fanout.runs import transitions
from tests.engine.stage import Stage, fresh
from tests.engine.test_protection import faults


@pytest.mark.parametrize(("status", "ends"), [("sent", "success"), ("pending", "success")])
def test_a_late_result_changes_the_verdict_and_wakes_the_lane(stage: Stage, status: str, ends: str) -> None:
    run, late = run_with_a_late_result(stage, status)

    async def write() -> None:
        driver = Driver(stage_clock(stage), stage.open_ledger, stage.transport, capacity=1, slice_seconds=0)
        driver.outbox.put([late])
        await driver.run()

    asyncio.run(write())
    stage.play(20)
    assert fresh(run).status == ends


def run_with_a_late_result(stage: Stage, status: str) -> tuple[Run, Result]:
    """Return a finished run with an unconfirmed target, and the answer that its provider gave."""
    run = stage.fire(stage.reminder(stage.account(), groups=5))
    stage.play()
    target = run.targets.all()[0]
    assert target.claimed_at is not None
    RunTarget.objects.filter(pk=target.pk).update(status="unconfirmed", parts_sent=0)
    carry_out(transitions.rejudge(run.pk, stage.now))
    assert fresh(run).status == Run.Status.PARTIAL
    return run, Result(
        target.pk,
        run.pk,
        run.account_id,
        target.claim_epoch,
        target.claimed_at,
        status,
        1 if status == "sent" else -1,
        -1,
        stage.now,
        action="message",
        activity="sent" if status == "sent" else "",
    )


def store_late(stage: Stage, late: Result) -> bool:
    async def store() -> bool:
        ledger = await stage.open_ledger(Outbox())
        ledger.start()
        try:
            return await closing.store_late(ledger, [late], stage.now)
        finally:
            await ledger.stop()

    return asyncio.run(store())


@pytest.mark.parametrize(("status", "ends"), [("sent", "success"), ("pending", "running")])
def test_a_driver_that_dies_right_after_storing_a_late_result_leaves_nothing_undone(
    stage: Stage, status: str, ends: str
) -> None:
    run, late = run_with_a_late_result(stage, status)
    assert LaneState.objects.get().due_at is None
    assert store_late(stage, late)
    assert (fresh(run).status, LaneState.objects.get().due_at) == (ends, stage.now)
    stage.play(20)
    assert (fresh(run).status, len(stage.book.duplicates("message_id"))) == ("success", int(status == "pending"))


def test_a_late_result_is_stored_although_its_lane_is_locked(stage: Stage) -> None:
    run, late = run_with_a_late_result(stage, "sent")
    with psycopg.connect(conninfo(connection.settings_dict)) as other:
        other.execute("SELECT 1 FROM fanout_lanestate FOR UPDATE")
        assert not store_late(stage, late)
    assert (run.targets.filter(status="sent").count(), fresh(run).status) == (5, "partial")


def test_a_run_paused_with_nothing_left_is_finished_when_its_lane_is_taken(stage: Stage) -> None:
    """Its lane ended with the slice, or died, before it learnt of the pause."""
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    stage.play()
    paused = {"status": "paused", "pause_reason": "operator", "error_summary": "Paused by an operator"}
    Run.objects.filter(pk=run.pk).update(**paused)
    LaneState.objects.update(due_at=stage.now)
    stage.play(5)
    assert (fresh(run).status, run.pause_reason) == ("success", "")
    assert "paused" not in run.error_summary.lower()


def test_the_watch_finishes_a_run_paused_with_nothing_left(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    stage.play()
    Run.objects.filter(pk=run.pk).update(status="paused", pause_reason="operator")
    assert [found.check for found in audit.examine(stage.now - timedelta(days=1), stage.now)] == ["paused"]
    tasks.wake_sleeping(stage.now)
    assert fresh(run).status == "success"


class stage_clock:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def now(self) -> Any:
        return self.stage.now

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def test_late_results_are_written_although_another_driver_has_the_slot(stage: Stage) -> None:
    """The connection dies while messages are with the provider; a duplicate has the slot when the driver is back."""
    faults(stage, latency_ms=[3000, 3000])
    run = stage.fire(stage.reminder(stage.account(), groups=2))
    held: list[Any] = []

    def cut(now: Any) -> None:
        other = psycopg.connect(conninfo(connection.settings_dict), autocommit=True)
        held.append(other)
        pid = stage.ledgers[-1].locks.connection.info.backend_pid  # type: ignore[attr-defined]
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
        time.sleep(0.2)
        slot = [holding.SLOT_LOCKS, f"{socket.gethostname()}:0"]
        (free,) = other.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", slot).fetchone() or (False,)
        assert free

    second = timedelta(seconds=1)
    stage.play(30, [(stage.now + second, cut), (stage.now + 8 * second, lambda now: held[0].close())])
    assert fresh(run).sent == 2
    assert len(stage.book.deliveries()) == 2
