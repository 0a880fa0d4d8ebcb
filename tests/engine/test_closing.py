"""Runs that end or pause, accounts that cannot be read, and what a crash left, on the real lane and virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from django.db import connection

from accounts.models import Account
from fanout.database import LOCK_RUNS, conninfo
from fanout.engine import closing, holding
from fanout.engine.driver import Driver
from fanout.engine.outbox import Outbox
from fanout.models import LaneState, Run
from fanout.runs import controls, texts
from tests.engine.stage import MONDAY, Stage, fresh
from tests.engine.test_protection import cap, faults


@pytest.mark.parametrize(
    ("locked", "changed"), [([], [2, 1]), ([1], [2]), ([2, 1], [])], ids=["none", "one of them", "all of them"]
)
def test_runs_that_end_together_are_locked_before_any_changes_and_locked_ones_left_out(
    locked: list[int], changed: list[int]
) -> None:
    written: list[Any] = []

    async def write(statements: Any) -> list[list[Any]]:
        written.extend(statement for statement, _ in statements)
        return [[{"key": str(run)} for run in locked] if s == closing.LOCKED_RUNS else [] for s, _ in statements]

    @asynccontextmanager
    async def together() -> AsyncIterator[Any]:
        yield write

    def steps(run: int) -> Any:
        yield f"a change of {run}", {}

    changes = [closing.Change(run, partial(steps, run)) for run in (2, 1)]
    done = asyncio.run(closing._change_all(cast(Any, SimpleNamespace(together=together)), changes))
    assert written == [closing.LOCKED_RUNS, LOCK_RUNS, *(f"a change of {run}" for run in changed)]
    assert done == [run in changed for run in (2, 1)]


SLOW = [900, 1000]


def run_counts(run: Run) -> tuple[int, int]:
    return run.failed, run.pending


def rotating(stage: Stage, *accounts: Any, groups: int = 40, **fields: Any) -> Run:
    reminder = stage.reminder(accounts[0], groups=groups, **fields)
    reminder.set_further_senders(accounts)
    return stage.fire(reminder)


@pytest.mark.parametrize("latency", [[80, 200], [2500, 3000]], ids=["quick", "with the other in flight"])
def test_a_lane_at_its_cap_steps_aside_and_the_others_go_on(stage: Stage, latency: list[int]) -> None:
    faults(stage, latency_ms=latency)
    a, b = stage.account(), stage.account()
    run = rotating(stage, a, b)
    cap(a, 3)
    stage.play(200)
    assert len(stage.book.deliveries(b.address)) == 20
    assert len(stage.book.deliveries(a.address)) == 3
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "account_capacity"
    assert "Daily cap reached" in run.error_summary
    cap(a, 100)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS


def test_a_lane_outside_its_business_hours_steps_aside_and_the_others_go_on(stage: Stage) -> None:
    closed, b = stage.account(hours_start=20, hours_end=22), stage.account()
    run = rotating(stage, closed, b)
    stage.play(200)
    assert (len(stage.book.deliveries(closed.address)), len(stage.book.deliveries(b.address))) == (0, 20)
    assert (fresh(run).status, run.pause_reason) == (Run.Status.PAUSED, "account_hours")
    assert run.error_summary.startswith("Outside the account's business hours. Sent to 20 of 40 groups")


def test_a_lane_that_never_got_its_turn_does_not_skip_what_others_began(stage: Stage) -> None:
    a, b = stage.account(), stage.account(max_send_per_minute=20)
    stage.now = MONDAY + timedelta(minutes=59, seconds=45)
    run = rotating(stage, a, b, delivery_window_end_hour=10)
    LaneState.objects.filter(account=a).update(next_send_at=MONDAY + timedelta(hours=3))
    stage.play(40)
    assert fresh(run).status == Run.Status.PAUSED
    assert run.skipped == 0


def test_an_unreadable_account_stops_only_itself(stage: Stage) -> None:
    bad, good = stage.account(), stage.account()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounts_account SET credentials = 'garbage' WHERE id = %s", [bad.pk])
    sick = stage.fire(stage.reminder(bad, groups=5))
    well = stage.fire(stage.reminder(good, groups=5, first=50))
    stage.play(60)
    assert fresh(well).status == Run.Status.SUCCESS
    assert Account.objects.filter(pk=bad.pk, status="suspended").exists()
    assert fresh(sick).status == Run.Status.PAUSED
    assert run_counts(sick) == (0, 5)


def test_a_driver_never_takes_a_lane_it_holds(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same session would get the same advisory lock a second time."""
    taken: list[int] = []
    really = Driver._take_over

    async def take_over(self: Driver, locked: list[int], now: Any) -> None:
        assert not set(locked) & set(self.lanes)
        taken.extend(locked)
        await really(self, locked, now)

    monkeypatch.setattr(Driver, "_take_over", take_over)
    stage.fire(stage.reminder(stage.account(), groups=20))
    stage.play(20)
    assert len(taken) == 1


def test_the_text_of_an_operators_pause_counts_what_landed_after_it(stage: Stage) -> None:
    faults(stage, latency_ms=SLOW)
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=600), groups=9))
    at = stage.now + timedelta(seconds=1.5)
    stage.play(20, [(at, lambda now: controls.pause(run, stage.user, now))])
    assert fresh(run).status == Run.Status.PAUSED
    assert f"{run.sent} of 9" in run.error_summary


def test_a_canceled_run_keeps_nothing_pending(stage: Stage) -> None:
    faults(stage, latency_ms=SLOW)
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=600), groups=50, parts=("text", "text")))
    at = stage.now + timedelta(seconds=3)
    stage.play(20, [(at, lambda now: controls.cancel(run, stage.user, now))])
    assert fresh(run).pending == 0
    assert run.status == Run.Status.CANCELED
    # Among them those that had had their first part when the answer came.
    skipped = run.targets.filter(status="skipped")
    assert skipped.filter(parts_sent=1).exists()
    assert set(skipped.values_list("error", "next_attempt_at")) == {(texts.CANCELED, None)}
    assert not skipped.filter(settled_at=None).exists()


def test_cancel_and_claim_do_not_wait_for_each_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=20))
    Run.objects.filter(pk=run.pk).update(status="running")
    target = run.targets.order_by("-position")[0]
    info = conninfo(connection.settings_dict)
    really, entered, failed = controls.change, threading.Event(), []

    @contextmanager
    def slowly(*arguments: Any) -> Iterator[None]:
        with really(*arguments):
            entered.set()
            time.sleep(0.5)  # as long as a big update takes
            yield

    monkeypatch.setattr(controls, "change", slowly)

    def claim() -> None:
        entered.wait()
        try:
            with psycopg.connect(info, autocommit=True) as other:
                other.execute("UPDATE fanout_runtarget SET status = 'sending' WHERE id = %s", [target.pk])
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=claim)
    thread.start()
    assert controls.cancel(run, stage.user, stage.now).ok
    thread.join()
    assert not failed


@pytest.mark.parametrize(("claimed_in", "crashes"), [(0, 0), (1, 1)], ids=["left by an earlier holder", "its own"])
def test_a_crash_counts_only_for_what_the_dead_holder_claimed(stage: Stage, claimed_in: int, crashes: int) -> None:
    account = stage.account(status="paused")
    run = stage.fire(stage.reminder(stage.account(), groups=1))
    LaneState.objects.create(account=account, epoch=1, holder="dead:1")
    run.targets.update(account=account, status="sending", claim_epoch=claimed_in, claimed_at=stage.now)

    async def count() -> int:
        ledger = await stage.open_ledger(Outbox())
        rows = await ledger.write(holding.COUNT_CRASH, {"holder": "dead:1", "suspect": 2})
        await ledger.close_connections()
        return int(rows[0]["crashes"])

    assert asyncio.run(count()) == crashes
