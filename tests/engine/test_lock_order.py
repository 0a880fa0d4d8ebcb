"""Runs are locked by id, then people, then targets, then lanes by account, so that sessions never wait in a circle.

Each test holds the row that must come first and lets somebody run into it: whoever waits there must hold nothing that
comes later.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from accounts.models import Account
from fanout.database import LOCK_RUNS, carry_out, conninfo, execute
from fanout.engine import closing, holding
from fanout.engine.commit import Claim, Commit, Result, Skip, calls_of, ignore_written
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from fanout.inbound import receipts
from fanout.lanes import lane_rows
from fanout.lanes.lane_rows import lock_lanes, wake_after_clock_change
from fanout.management.commands import retention
from fanout.models import Driver as DriverRow
from fanout.models import InboundEvent, LaneState, Run, RunTarget
from fanout.ops import audit
from fanout.ops.tasks import open_ledger
from fanout.rules.message_ids import message_id
from fanout.runs import controls, corrections, planning, transitions
from tests.channels.mail_server import wait_until
from tests.engine.stage import Stage
from tests.factories import InboundEventFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)

TARGETS = "SELECT 1 FROM fanout_runtarget WHERE run_id = %s FOR UPDATE NOWAIT"
RUN = "SELECT 1 FROM fanout_run WHERE id = %s FOR NO KEY UPDATE NOWAIT"
LANE = "SELECT 1 FROM fanout_lanestate WHERE account_id = %s FOR NO KEY UPDATE NOWAIT"


@contextmanager
def meeting(held: str, row: int, act: Callable[[], Any]) -> Iterator[psycopg.Connection[Any]]:
    """A session that holds the row, while `act` waits for it."""
    failures: list[BaseException] = []

    def acting() -> None:
        try:
            act()
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    info = conninfo(connection.settings_dict)
    with psycopg.connect(info) as session, psycopg.connect(info, autocommit=True) as watcher:
        session.execute(held, [row])
        thread = threading.Thread(target=acting)
        thread.start()
        try:
            wait_until(lambda: waits(watcher) or not thread.is_alive())
            assert thread.is_alive(), failures
            yield session
        finally:
            session.rollback()
            thread.join(10)
    assert not failures


def waits(watcher: psycopg.Connection[Any]) -> bool:
    """Return whether a session waits for a lock of a row."""
    rows = watcher.execute(
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return rows.fetchone() is not None


def in_ledger(work: Callable[[Ledger], Any]) -> None:
    async def play() -> None:
        ledger = await open_ledger(Outbox())
        await ledger.locks.query("SET lock_timeout = '10s'")  # it waits for the test, which may be slow
        ledger.start()
        try:
            await work(ledger)
        finally:
            await ledger.stop()

    asyncio.run(play())


def settle_again(run: Run) -> None:
    controls.reopen_targets(run, list(run.targets.values_list("pk", flat=True)), NOW)


def skip_canceled(run: Run) -> None:
    controls._skip_canceled(run.pk, NOW)


def skip_unstarted(run: Run) -> None:
    with transaction.atomic():
        carry_out(transitions.skip_unstarted(run.pk, NOW))


def delete_run(run: Run) -> None:
    retention.delete_run(run.pk, NOW)


def rescue_in_flight(run: Run) -> None:
    in_ledger(lambda ledger: holding.settle_in_flight(ledger, [run.account_id], []))


def record_late(run: Run) -> None:
    late = [
        Result(pk, run.pk, run.account_id, 1, NOW, "sent", 1, 1, NOW, "message", activity="sent")
        for pk in run.targets.values_list("pk", flat=True)
    ]
    in_ledger(lambda ledger: ledger.locks.call(calls_of(Commit(results=[(result, ignore_written) for result in late]))))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "act", [settle_again, skip_canceled, skip_unstarted, delete_run, rescue_in_flight, record_late]
)
def test_a_run_is_locked_before_its_targets(stage: Stage, act: Callable[[Run], None]) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=5))
    if act in (rescue_in_flight, record_late):
        run.targets.update(status="sending", claim_epoch=1, claimed_at=NOW, attempts=1)
    if act is skip_canceled:
        Run.objects.filter(pk=run.pk).update(status="canceled")
    if act is settle_again:
        run.targets.update(status="unconfirmed")
    with meeting(RUN, run.pk, lambda: act(run)) as session:
        session.execute(TARGETS, [run.pk])


def note_receipts(account: Account) -> None:
    for pk in RunTarget.objects.order_by("-pk").values_list("pk", flat=True):
        facts = {"account": account, "kind": "delivered", "happened_at": NOW}
        InboundEventFactory.create(key=f"delivered:{pk}", message_id=message_id(pk, 0), **facts)
    receipts.apply(receipts.ready(NOW), NOW)


def plan_anew(account: Account) -> None:
    planning.plan_anew(account, NOW)


def remember_parts(account: Account) -> None:
    done = [audit.Violation("parts", "", "", True, (pk, 1)) for pk in RunTarget.objects.values_list("pk", flat=True)]
    audit.remember_parts(done, NOW)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", [note_receipts, plan_anew, remember_parts])
def test_several_runs_are_locked_before_their_targets(stage: Stage, act: Callable[[Account], None]) -> None:
    """A statement about targets of several runs locks the runs too, in its trigger, and that is too late."""
    account = stage.account()
    runs = [stage.fire(stage.reminder(account, groups=2, first=10 * n)) for n in range(2)]
    if act is note_receipts:
        RunTarget.objects.update(status="sent", claimed_at=NOW, parts_sent=1)
    with meeting(RUN, runs[0].pk, lambda: act(account)) as session:
        for run in runs:
            session.execute(TARGETS, [run.pk])
        session.execute(RUN, [runs[1].pk])


@pytest.mark.django_db(transaction=True)
def test_receipts_and_late_results_side_by_side(stage: Stage) -> None:
    """Both are about the same targets of several runs, again and again, and neither is refused by PostgreSQL."""
    account = stage.account()
    runs = [stage.fire(stage.reminder(account, groups=8, first=10 * n)) for n in range(4)]
    failures: list[BaseException] = []
    over = threading.Event()

    def come_in() -> None:
        rng = random.Random(1)
        try:
            while not over.is_set():
                told = list(InboundEvent.objects.all())
                rng.shuffle(told)
                receipts.apply(told, NOW)
                with transaction.atomic():
                    execute(LOCK_RUNS, {"runs": [run.pk for run in runs]})
                    RunTarget.objects.update(delivered_at=None)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    RunTarget.objects.update(status="sent", claimed_at=NOW, claim_epoch=1, parts_sent=1)
    for pk in RunTarget.objects.values_list("pk", flat=True):
        facts = {"account": account, "kind": "delivered", "happened_at": NOW}
        InboundEventFactory.create(key=f"delivered:{pk}", message_id=message_id(pk, 0), **facts)
    RunTarget.objects.filter(run__in=runs[2:]).update(status="unconfirmed")
    targets = list(RunTarget.objects.values_list("pk", "run_id"))

    async def record(ledger: Ledger) -> None:
        rng = random.Random(2)
        for _ in range(150):
            rng.shuffle(targets)
            late = [
                Result(pk, run, account.pk, 1, NOW, "unconfirmed", 0, 1, NOW, "message", kind="unknown")
                for pk, run in targets
            ]
            await ledger.locks.call(calls_of(Commit(results=[(one, ignore_written) for one in late])))

    thread = threading.Thread(target=come_in)
    thread.start()
    try:
        in_ledger(record)
    finally:
        over.set()
        thread.join(30)
    assert not failures


@pytest.mark.django_db(transaction=True)
def test_the_runs_of_an_unreadable_account_are_locked_in_order(stage: Stage) -> None:
    """The later run was due first."""
    account = stage.account()
    one = stage.fire(stage.reminder(account, groups=2), at=stage.now + timedelta(minutes=5))
    two = stage.fire(stage.reminder(account, groups=2, first=10))
    with meeting(
        RUN, one.pk, lambda: in_ledger(lambda ledger: closing.abandon(ledger, account.pk, "x", NOW))
    ) as session:
        session.execute(RUN, [two.pk])


@pytest.mark.django_db(transaction=True)
def test_an_offload_locks_lanes_in_order(stage: Stage) -> None:
    """It wakes both of them, and the account that takes over comes later in the order."""
    first, second = stage.account(), stage.account()
    run = stage.fire(stage.reminder(first, groups=2))
    LaneState.objects.get_or_create(account=second)
    with meeting(LANE, first.pk, lambda: corrections.offload(run, second, stage.user, NOW)) as session:
        session.execute(LANE, [second.pk])


def two_lanes(stage: Stage) -> tuple[int, int]:
    one, two = sorted(stage.account().pk for _ in range(2))
    for account in (two, one):  # so that the order on disk is the other one
        LaneState.objects.update_or_create(
            account_id=account, defaults={"epoch": 1, "holder": "dead", "due_at": NOW, "progress_at": NOW}
        )
    return one, two


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statement", ["LEAVE_LANES", "COUNT_CRASH", "TAKE_LANES", "GIVE_BACK", "START_DRIVER"])
def test_a_driver_waits_for_no_lane(stage: Stage, statement: str) -> None:
    """So it can be part of no circle, and a client that stands still does not stop it."""
    one, two = two_lanes(stage)
    LaneState.objects.update(holder="dead", epoch=1, wake_count=1)
    both = [one, two]
    pace = [[0, 0], [timedelta(seconds=3)] * 2, [NOW, NOW]]
    leaving = [both, [1, 1], [1, 1], [NOW, NOW], ["", ""], [False, False], *pace]
    parameters: dict[str, Any] = {
        "LEAVE_LANES": leaving,
        "COUNT_CRASH": {"holder": "dead", "suspect": 2},
        "TAKE_LANES": (both, "me"),
        "GIVE_BACK": {"accounts": both, "until": [NOW, NOW], "why": ["", ""], "token": "dead"},
        "START_DRIVER": {"host": "here", "slot": 0, "token": "me", "pid": 1},
    }
    DriverRow.objects.create(
        host="there", slot=0, token="dead", pid=1, backend_pid=1, started_at=NOW, beat_at=NOW, ended_at=NOW, lanes=2
    )

    async def write(ledger: Ledger) -> None:
        async with asyncio.timeout(5):
            text = getattr(lane_rows, statement, None) or getattr(holding, statement)
            await ledger.write(text, parameters[statement])

    with psycopg.connect(conninfo(connection.settings_dict)) as stuck:
        stuck.execute(LANE, [one])
        in_ledger(write)
    lanes = {lane.account_id: lane for lane in LaneState.objects.all()}
    assert (lanes[one].epoch, lanes[one].holder) == (1, "dead")
    assert (lanes[two].epoch, lanes[two].holder) == ((2, "me") if statement == "TAKE_LANES" else (1, ""))


@pytest.mark.django_db(transaction=True)
def test_lanes_wake_in_order_after_a_clock_was_set_back(stage: Stage) -> None:
    one, two = two_lanes(stage)
    with meeting(LANE, one, lambda: wake_after_clock_change(NOW - timedelta(hours=1))) as session:
        session.execute(LANE, [two])


@pytest.mark.django_db(transaction=True)
def test_suspensions_end_in_the_order_of_lanes(stage: Stage) -> None:
    two_accounts = [stage.account(label="b", status="suspended", status_until=NOW), stage.account(label="a")]
    two_accounts[1].status, two_accounts[1].status_until = "suspended", NOW
    two_accounts[1].save()
    one, two = (account.pk for account in two_accounts)
    for account in (one, two):
        LaneState.objects.update_or_create(account_id=account)
    with meeting(LANE, one, lambda: controls.end_suspensions(NOW)) as session:
        session.execute(LANE, [two])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("control", ["cancel", "resume"])
def test_a_run_and_its_message_2_are_locked_before_the_lanes_of_both(stage: Stage, control: str) -> None:
    one, two = stage.account(), stage.account()
    first, then = (two, one) if control == "cancel" else (one, two)  # a resume begins with Message 2
    run, child = stage.fire(stage.reminder(first, groups=2)), stage.fire(stage.reminder(then, groups=2, first=10))
    Run.objects.filter(pk=child.pk).update(answers=run)
    if control == "resume":
        Run.objects.update(status="paused", pause_reason="operator")
    run.refresh_from_db()
    act: Callable[..., Any] = getattr(controls, control)
    with meeting(RUN, child.pk, lambda: act(run, stage.user, NOW)) as session:
        session.execute(LANE, [two.pk])
    if control == "resume":
        Run.objects.update(status="paused", pause_reason="operator")
    else:
        Run.objects.update(status="running")
    with meeting(LANE, one.pk, lambda: act(run, stage.user, NOW)) as session:
        session.execute(LANE, [two.pk])


@pytest.mark.django_db(transaction=True)
def test_only_the_lanes_that_are_named_are_locked(stage: Stage) -> None:
    locked, free = (LaneState.objects.create(account=stage.account()) for _ in range(2))
    with transaction.atomic(), psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as other:
        lock_lanes([locked.account_id])
        other.execute(LANE, [free.account_id])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(LANE, [locked.account_id])


# --- changes while a session waited ------------------------------------------------------------

# Without the trigger that counts, and so without the run's lock, which would keep all others away from the target.
SETTLE = """
UPDATE fanout_runtarget SET status = 'failed'
 WHERE id = %s AND set_config('session_replication_role', 'replica', true) = 'replica'
"""


def claim_one(run: Run) -> None:
    (pk, *_) = run.targets.order_by("pk").values_list("pk", flat=True)
    claims: Any = [([Claim(pk, run.pk, run.account_id, 1, NOW)], None)]
    in_ledger(lambda ledger: ledger.locks.call(calls_of(Commit(claims=claims))))


def skip_one(run: Run) -> None:
    (pk, *_) = run.targets.order_by("pk").values_list("pk", flat=True)
    in_ledger(lambda ledger: ledger.locks.call(calls_of(Commit(skips=[Skip(pk, run.pk, "left out", NOW)]))))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", [claim_one, skip_one])
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "as before"])
def test_a_target_that_was_settled_meanwhile_is_left_alone(
    stage: Stage, act: Callable[[Run], None], settled: bool
) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=2))
    Run.objects.filter(pk=run.pk).update(status="running", window_closes_at=NOW + timedelta(hours=1))
    LaneState.objects.filter(account=run.account_id).update(epoch=1)
    target = run.targets.order_by("pk")[0]
    with meeting(SETTLE, target.pk, lambda: act(run)) as session:
        if settled:
            session.commit()
    target.refresh_from_db()
    changed = "sending" if act is claim_one else "skipped"
    assert target.status == ("failed" if settled else changed)
