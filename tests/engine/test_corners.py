"""Corners that a review found: several lanes, late facts, pauses at awkward moments. Judged by the provider's book."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.database import carry_out, conninfo
from fanout.engine import sql
from fanout.engine.batch import Result
from fanout.engine.driver import Driver
from fanout.engine.outbox import Outbox
from fanout.models import Activity, Event, LaneState, Run, RunTarget
from fanout.runs import controls, offloading, settling, texts, transitions
from tests.engine.stage import MONDAY, Stage, fresh
from tests.engine.test_protection import cap, faults

SLOW = [900, 1000]


def run_counts(run: Run) -> tuple[int, int]:
    return run.failed, run.pending


def rotating(stage: Stage, *accounts: Any, groups: int = 40, **fields: Any) -> Run:
    reminder = stage.reminder(accounts[0], groups=groups, **fields)
    reminder.set_further_senders(accounts)
    return stage.fire(reminder)


# --- several lanes --------------------------------------------------------------------------------------


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


def test_offload_from_an_account_at_its_cap(stage: Stage) -> None:
    a, b = stage.account(), stage.account()
    cap(a, 5)
    run = stage.fire(stage.reminder(a, groups=40))
    stage.play(60)
    assert fresh(run).status == Run.Status.PAUSED
    assert offloading.offload(run, b, stage.user, stage.now).ok
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play(90)
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries(b.address)) == 35


def test_offload_from_a_suspended_account(stage: Stage) -> None:
    a, b = stage.account(), stage.account()
    faults(stage, {"match": {"after_accepted": 5}, "effect": "auth"})
    run = stage.fire(stage.reminder(a, groups=40))
    stage.play(60)
    faults(stage)
    assert offloading.offload(run, b, stage.user, stage.now).ok
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play(90)
    assert fresh(run).status == Run.Status.SUCCESS


def test_a_lane_that_never_got_its_turn_does_not_skip_what_others_began(stage: Stage) -> None:
    a, b = stage.account(), stage.account(max_send_per_minute=20)
    stage.now = MONDAY + timedelta(minutes=59, seconds=45)
    run = rotating(stage, a, b, delivery_window_end_hour=10)
    LaneState.objects.filter(account=a).update(next_send_at=MONDAY + timedelta(hours=3))
    stage.play(40)
    assert fresh(run).status == Run.Status.PAUSED
    assert run.skipped == 0


def test_an_account_nobody_can_read_stops_only_itself(stage: Stage) -> None:
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


# --- late results -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "ends"), [("sent", "success"), ("pending", "success")])
def test_a_late_result_changes_the_verdict_and_wakes_the_lane(stage: Stage, status: str, ends: str) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=5))
    stage.play()
    target = run.targets.all()[0]
    assert target.claimed_at is not None
    RunTarget.objects.filter(pk=target.pk).update(status="unconfirmed", parts_sent=0)
    carry_out(transitions.rejudge(run.pk, stage.now))
    assert fresh(run).status == Run.Status.PARTIAL
    late = Result(
        target.pk,
        run.pk,
        account.pk,
        target.claim_epoch,
        target.claimed_at,
        status,
        1 if status == "sent" else -1,
        -1,
        stage.now,
        action="message",
        activity="sent" if status == "sent" else "",
    )

    async def write() -> None:
        driver = Driver(stage_clock(stage), stage.open_ledger, stage.transport, capacity=1, slice_seconds=0)
        driver.outbox.put([late])
        await driver.run()

    asyncio.run(write())
    stage.play(20)
    assert fresh(run).status == ends


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
        slot = [sql.SLOT_LOCKS, f"{socket.gethostname()}:0"]
        (free,) = other.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", slot).fetchone() or (False,)
        assert free

    second = timedelta(seconds=1)
    stage.play(30, [(stage.now + second, cut), (stage.now + 8 * second, lambda now: held[0].close())])
    assert fresh(run).sent == 2
    assert len(stage.book.deliveries()) == 2


# --- awkward moments ------------------------------------------------------------------------------------


def test_a_break_between_two_parts_does_not_stall_the_lane(stage: Stage) -> None:
    fault = {"match": {"after_accepted": 2, "first": 1}, "effect": "unavailable", "retry_after": 3}
    faults(stage, fault, latency_ms=[80, 900])
    stage.fire(stage.reminder(stage.account(), groups=20, parts=("text", "text")))
    stage.play(39)
    assert len(stage.book.deliveries()) > 15


def test_a_paused_run_gives_its_places_to_the_next(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=600)
    faults(stage, latency_ms=SLOW)
    one = stage.fire(stage.reminder(account, groups=50, parts=("text", "text")))
    two = stage.fire(stage.reminder(account, groups=20, first=200), at=stage.now + timedelta(seconds=1))
    at = stage.now + timedelta(seconds=3)
    stage.play(38, [(at, lambda now: controls.pause(one, stage.user, now))])
    ids = set(two.targets.values_list("pk", flat=True))
    began = min(d.t for d in stage.book.deliveries() if int(d.message_id.split("-")[1]) in ids)
    assert began - at.timestamp() < 5


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


def test_an_upload_does_not_eat_the_gap(stage: Stage) -> None:
    account = stage.account(min_gap_seconds=5, max_gap_seconds=6)
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "upload_latency_ms": 15000}}))
    stage.fire(stage.reminder(account, groups=5, parts=("image",)))
    stage.play(60)
    assert min(b - a for a, b in pairwise(d.t for d in stage.book.deliveries())) > 4.5


def test_a_clock_set_back_does_not_stop_the_lane(stage: Stage) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=10))
    stage.play(4)
    LaneState.objects.filter(account=account).update(tat=stage.now + timedelta(days=1))
    stage.play(60)
    assert fresh(run).status == Run.Status.SUCCESS


# --- the lane's memory ----------------------------------------------------------------------------------


def test_a_slow_account_adapts_too(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=10, send_burst=1, circuit_breaker=1, bounce_rate_pause=1)
    faults(stage, {"match": {"every": 4}, "effect": "recipient_gone"})
    stage.fire(stage.reminder(account, groups=100))
    stage.play(400)
    assert LaneState.objects.get(account=account).slow_factor == 1.5


def test_the_breakers_sample_does_not_outlive_its_run(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=120, bounce_rate_pause=1)
    faults(stage, {"match": {"after_accepted": 15}, "effect": "content_rejected"})
    run = stage.fire(stage.reminder(account, groups=80))
    stage.play()
    assert fresh(run).pause_reason == "circuit_breaker"
    controls.cancel(run, stage.user, stage.now)
    faults(stage)
    stage.now += timedelta(days=1)
    healthy = stage.fire(stage.reminder(account, groups=80, first=500))
    stage.play()
    assert fresh(healthy).status == Run.Status.SUCCESS


# --- controls do what was asked -------------------------------------------------------------------------


def test_send_again_does_not_resume_what_the_operator_paused(stage: Stage) -> None:
    faults(stage, {"match": {"first": 1}, "effect": "drop_after_accept"})
    run = stage.fire(stage.reminder(stage.account(), groups=60))
    stage.play(5)
    controls.pause(run, stage.user, stage.now)
    stage.play(3)
    sent = len(stage.book.deliveries())
    target = run.targets.get(status="unconfirmed")
    assert settling.settle(run, [target.pk], False, stage.user, stage.now).ok
    stage.play(30)
    assert len(stage.book.deliveries()) == sent
    assert fresh(run).status == Run.Status.PAUSED


@pytest.mark.parametrize("delivered", [True, False], ids=["was delivered", "send again"])
def test_settling_many_targets_of_a_canceled_run_takes_few_queries(
    stage: Stage, django_assert_max_num_queries: Any, delivered: bool
) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=40, parts=("text", "text")))
    first, second = run.targets.order_by("position")[:20], run.targets.order_by("position")[20:]
    run.targets.filter(pk__in=[target.pk for target in second]).update(parts_sent=1)
    run.targets.update(status="unconfirmed", claimed_at=stage.now)
    Run.objects.filter(pk=run.pk).update(status="canceled", finished_at=stage.now)
    ids = [target.pk for target in (*first, *second)]
    with django_assert_max_num_queries(20):
        assert settling.settle(fresh(run), ids, delivered, stage.user, stage.now).ok
    sent = run.targets.filter(status="sent")
    assert (fresh(run).sent, run.skipped) == ((20, 20) if delivered else (0, 40))
    assert set(sent.values_list("parts_sent", flat=True)) <= {2}
    assert not run.targets.filter(settled_at=None).exists()
    assert Activity.objects.filter(kind="settled").count() == (40 if delivered else 0)


def test_resume_at_opening_means_the_next_one(stage: Stage) -> None:
    account = stage.account()
    cap(account, 5)
    run = stage.fire(stage.reminder(account, groups=20))
    stage.play(60)
    assert controls.resume_at_opening(run, stage.user, stage.now).ok
    assert fresh(run).resume_at == MONDAY.replace(hour=6) + timedelta(days=1)


def test_a_late_auto_resume_waits_for_the_next_opening_without_a_word_a_minute(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=60, delivery_window_end_hour=10))
    stage.play(10)
    controls.pause(run, stage.user, stage.now)
    Run.objects.filter(pk=run.pk).update(resume_at=MONDAY + timedelta(minutes=30))
    for minute in range(5):
        controls.resume_due(MONDAY + timedelta(hours=2, minutes=minute))
    assert Event.objects.filter(run=run, verb="resume refused").count() == 1
    assert fresh(run).resume_at == MONDAY.replace(hour=6) + timedelta(days=1)


@pytest.mark.parametrize(("claimed_in", "crashes"), [(0, 0), (1, 1)], ids=["left by an earlier holder", "its own"])
def test_a_crash_counts_only_for_what_the_dead_holder_claimed(stage: Stage, claimed_in: int, crashes: int) -> None:
    account = stage.account(status="paused")
    run = stage.fire(stage.reminder(stage.account(), groups=1))
    LaneState.objects.create(account=account, epoch=1, holder="dead:1")
    run.targets.update(account=account, status="sending", claim_epoch=claimed_in, claimed_at=stage.now)

    async def count() -> int:
        ledger = await stage.open_ledger(Outbox())
        rows = await ledger.write(sql.COUNT_CRASH, {"holder": "dead:1", "suspect": 2})
        await ledger.close_connections()
        return int(rows[0]["crashes"])

    assert asyncio.run(count()) == crashes
