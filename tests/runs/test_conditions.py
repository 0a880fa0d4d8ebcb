"""What each condition of a run's transitions, and of the trigger that keeps its books, is there for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from fanout.database import Steps, carry_out
from fanout.models import PauseReason, Run, RunTarget
from fanout.rules.gates import Close, Wait
from fanout.runs import transitions
from tests.factories import AccountFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
EARLIER = NOW - timedelta(hours=1)
LATER = NOW + timedelta(hours=1)
STATUSES = list(Run.Status)
LIVE = {"queued", "running", "waiting"}
JUDGED = {"success", "partial", "failed"}
case = pytest.param
pytestmark = pytest.mark.django_db


def make(status: str = "running", **fields: Any) -> Run:
    """And another run beside it, which nothing here may touch."""
    RunFactory.create(scheduled_for=NOW, status="waiting", waiting_why="beside", lanes=[1, 2])
    reason = "operator" if status == "paused" else ""
    run: Run = RunFactory.create(**{"scheduled_for": NOW, "status": status, "pause_reason": reason} | fields)
    return run


def fresh(run: Run) -> Run:
    beside = Run.objects.exclude(pk=run.pk).get()
    assert (beside.status, beside.waiting_why, beside.lanes, beside.total) == ("waiting", "beside", [1, 2], 0)
    return Run.objects.get(pk=run.pk)


# --- wait ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
def test_only_a_live_run_waits(status: str) -> None:
    run = make(status)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(LATER, "daily cap"), NOW)) is (status in LIVE)
    assert fresh(run).status == ("waiting" if status in LIVE else status)


@pytest.mark.parametrize(
    ("until", "why", "news"),
    [
        case(LATER, "daily cap", False, id="the-same"),
        case(LATER + timedelta(minutes=1), "daily cap", True, id="longer"),
        case(LATER, "business hours", True, id="for-something-else"),
    ],
)
def test_a_wait_is_counted_once(until: datetime, why: str, news: bool) -> None:
    run = make("waiting", waiting_until=LATER, waiting_why="daily cap", seconds_waiting=3600)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(until, why), NOW)) is news
    assert (fresh(run).seconds_waiting > 3600) is news


@pytest.mark.parametrize(
    ("until", "counts", "seconds"),
    [case(LATER, True, 3600, id="counts"), case(LATER, False, 0, id="not"), case(EARLIER, True, 0, id="over-already")],
)
def test_how_long_a_wait_counts(until: datetime, counts: bool, seconds: float) -> None:
    run = make("running", started_at=EARLIER)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(until, "why"), NOW, counts))
    assert (fresh(run).seconds_waiting, fresh(run).started_at) == (seconds, EARLIER)


# --- step aside -------------------------------------------------------------------------------------------


def two_lanes(other: str, status: str = "running") -> tuple[Run, int]:
    """A run of two accounts; the second has one target in this status."""
    one, two = AccountFactory.create(), AccountFactory.create()
    run = make(status, account=one, lanes=[one.pk, two.pk])
    RunTargetFactory.create(run=run, account=one)
    RunTargetFactory.create(run=run, account=two, status=other)
    # Of another run, or of an account that does not send for this one: nobody goes on with these.
    for left in ("pending", "sending"):
        RunTargetFactory.create(run=run, account=AccountFactory.create(), status=left)
    return run, one.pk


@pytest.mark.parametrize(
    ("other", "aside"),
    [("pending", True), ("sending", True), ("sent", False), ("failed", False), ("unconfirmed", False)],
)
def test_a_lane_steps_aside_while_another_has_something(other: str, aside: bool) -> None:
    run, account = two_lanes(other)
    assert carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW)) is aside
    assert (account in fresh(run).lanes) is not aside


@pytest.mark.parametrize("status", sorted({"paused", "canceled"} | LIVE))
def test_a_lane_steps_aside_from_live_runs_only(status: str) -> None:
    run, account = two_lanes("pending", status)
    assert carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW)) is (status in LIVE)


def test_a_lane_steps_aside_from_this_run_alone() -> None:
    run, account = two_lanes("pending")
    another = RunFactory.create(scheduled_for=LATER, status="running", account_id=account, lanes=run.lanes)
    for lane in run.lanes:
        RunTargetFactory.create(run=another, account_id=lane)
    assert carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW))
    another.refresh_from_db()
    assert another.lanes == run.lanes


def test_its_own_targets_are_no_reason_to_step_aside() -> None:
    account = AccountFactory.create()
    run = make(account=account, lanes=[account.pk], targets={"pending": 2, "sending": 1})
    assert not carry_out(transitions.step_aside(run.pk, account.pk, "One", "cap", NOW))
    assert fresh(run).lanes == [account.pk]


def test_what_another_run_owes_is_no_reason_to_step_aside() -> None:
    run, account = two_lanes("sent")
    two = next(lane for lane in run.lanes if lane != account)
    beside = Run.objects.exclude(pk=run.pk).get()
    target = RunTargetFactory.create(run=run, account_id=two)
    RunTarget.objects.filter(pk=target.pk).delete()
    another = RunFactory.create(account_id=two, scheduled_for=LATER, targets={"pending": 1, "sending": 1})
    assert not carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW))
    another.delete()
    beside.refresh_from_db()


# --- pause ------------------------------------------------------------------------------------------------

GATE = Close(PauseReason.WINDOW_CLOSED, "window")


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("by", ["a gate", "an operator"])
def test_only_a_live_run_is_paused(status: str, by: str) -> None:
    targets = {"sent": 1} if status in JUDGED else {"sent": 1, "pending": 1}
    run = make(status, targets=targets, waiting_until=LATER, waiting_why="why")
    steps = (
        transitions.pause(run.pk, GATE, {}, NOW) if by == "a gate" else transitions.pause_by_operator(run.pk, None, NOW)
    )
    assert carry_out(steps) is (status in LIVE)
    run = fresh(run)
    if status in LIVE:
        reason = "window_closed" if by == "a gate" else "operator"
        assert (run.status, run.pause_reason, run.finished_at) == ("paused", reason, NOW)
        assert (run.waiting_until, run.waiting_why) == (None, "")
    else:
        assert (run.status, run.finished_at) == (status, None)


@pytest.mark.parametrize(
    ("targets", "paused"),
    [
        case({"sent": 1, "pending": 1}, True, id="something-left"),
        case({"sent": 2}, False, id="nothing-left"),
        case({"pending": 1, "sending": 1}, False, id="something-in-flight"),
        case({"sent": 1, "sending": 1}, False, id="only-in-flight"),
    ],
)
def test_a_gate_pauses_once_nothing_is_in_flight(targets: dict[str, int], paused: bool) -> None:
    run = make(targets=targets)
    assert carry_out(transitions.pause(run.pk, GATE, {}, NOW)) is paused
    assert fresh(run).status == ("paused" if paused else "running")


def test_an_operator_does_not_wait_for_anything() -> None:
    run = make(targets={"sending": 1})
    assert carry_out(transitions.pause_by_operator(run.pk, None, NOW))
    assert fresh(run).status == "paused"


# --- finish -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
def test_which_runs_are_finished(status: str) -> None:
    run = make(status, targets={"sent": 1}, waiting_until=LATER, waiting_why="why", resume_at=LATER)
    finished = status in LIVE | {"paused", "partial", "failed"}
    assert carry_out(transitions.finish(run.pk, NOW)) is finished
    run = fresh(run)
    assert run.status == ("success" if finished else status)
    if finished:
        assert (run.pause_reason, run.waiting_until, run.waiting_why, run.resume_at) == ("", None, "", None)


def test_a_run_that_is_judged_again_keeps_the_moment_of_its_end() -> None:
    run = make("partial", targets={"sent": 1}, finished_at=EARLIER)
    assert carry_out(transitions.finish(run.pk, NOW))
    assert (fresh(run).status, fresh(run).finished_at) == ("success", EARLIER)


@pytest.mark.parametrize(
    ("targets", "verdict"),
    [
        case({"sent": 2}, "success", id="all"),
        case({"sent": 1, "skipped": 1}, "partial", id="some"),
        case({"unconfirmed": 2}, "failed", id="none"),
        case({}, "failed", id="no-targets"),
    ],
)
def test_the_verdict(targets: dict[str, int], verdict: str) -> None:
    run = make(targets=targets)
    assert carry_out(transitions.finish(run.pk, NOW))
    assert (fresh(run).status, fresh(run).finished_at) == (verdict, NOW)


@pytest.mark.parametrize("left", ["pending", "sending"])
def test_a_run_with_something_left_is_not_finished(left: str) -> None:
    run = make(targets={"sent": 1, left: 1})
    assert not carry_out(transitions.finish(run.pk, NOW))
    assert fresh(run).status == "running"


# --- the books --------------------------------------------------------------------------------------------

BOOKS = ("pending", "sending", "sent", "failed", "skipped", "unconfirmed")


def books(run: Run) -> dict[str, int]:
    run = fresh(run)
    counted = {status: getattr(run, status) for status in BOOKS}
    assert run.total == sum(counted.values())
    return {status: n for status, n in counted.items() if n}


@pytest.mark.parametrize("status", BOOKS)
def test_every_status_has_its_counter(status: str) -> None:
    run = make(targets={status: 2})
    assert books(run) == {status: 2}
    run.targets.all()[0].delete()
    assert books(run) == {status: 1}


@pytest.mark.parametrize("after", BOOKS[1:])
def test_a_change_of_status_moves_one_from_counter_to_counter(after: str) -> None:
    run = make(targets={"pending": 3})
    RunTarget.objects.filter(pk=run.targets.all()[0].pk).update(status=after)
    assert books(run) == {"pending": 2, after: 1}


def version(run: Run) -> str:
    """Where the row lies: another place with every update."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text FROM fanout_run WHERE id = %s", [run.pk])
        return str(cursor.fetchone()[0])


def test_a_change_of_no_status_leaves_the_run_alone() -> None:
    """Every delivery would write its run once more."""
    run = make(targets={"sending": 2})
    before = version(run)
    run.targets.update(latency_ms=80)
    assert version(run) == before
    run.targets.update(status="sent")
    assert version(run) != before


def test_targets_of_several_runs_change_in_one_statement() -> None:
    one = RunFactory.create(scheduled_for=NOW, targets={"pending": 2})
    two = RunFactory.create(scheduled_for=NOW, targets={"pending": 1, "sent": 1})
    RunTarget.objects.filter(status="pending").update(status="skipped")
    one.refresh_from_db()
    two.refresh_from_db()
    assert (one.skipped, one.pending, two.skipped, two.sent, two.pending) == (2, 0, 1, 1, 0)


def test_the_first_attempt_is_the_earliest_claim_and_stays() -> None:
    run = make(targets={"pending": 3})
    first, second, third = run.targets.order_by("pk")
    RunTarget.objects.filter(pk=first.pk).update(status="skipped", claimed_at=EARLIER)
    assert fresh(run).first_attempt_at is None
    RunTarget.objects.filter(pk=second.pk).update(status="sending", claimed_at=NOW)
    RunTarget.objects.filter(pk=third.pk).update(status="sending", claimed_at=EARLIER)
    assert fresh(run).first_attempt_at == NOW


@pytest.mark.parametrize(
    ("status", "left", "after"),
    [
        *(case(status, "pending", "running", id=f"{status}-pending") for status in sorted(JUDGED)),
        case("success", "sending", "running", id="success-sending"),
        case("success", "unconfirmed", "success", id="success-unconfirmed"),
        case("paused", "pending", "paused", id="paused"),
        case("canceled", "pending", "canceled", id="canceled"),
    ],
)
def test_a_finished_run_with_something_to_send_is_not_finished(status: str, left: str, after: str) -> None:
    run = make(status, targets={"sent": 2})
    RunTarget.objects.filter(pk=run.targets.all()[0].pk).update(status=left)
    assert fresh(run).status == after


# --- a window that closed before the first attempt --------------------------------------------------


@pytest.mark.parametrize("status", [status for status in STATUSES if status not in JUDGED])
def test_only_what_is_pending_in_a_live_run_is_skipped_unstarted(status: str) -> None:
    run = make(status)
    pending, failed = RunTargetFactory.create(run=run), RunTargetFactory.create(run=run, status="failed", error="gone")
    assert carry_out(transitions.skip_unstarted(run.pk, NOW)) is False
    for target in (pending, failed):
        target.refresh_from_db()
    assert (failed.status, failed.error) == ("failed", "gone")
    skipped = (pending.status, pending.settled_at) == ("skipped", NOW)
    assert skipped is (status in LIVE)
    assert skipped or pending.status == "pending"


@pytest.mark.parametrize(
    ("in_flight", "first_attempt_at"), [(False, EARLIER), (True, None)], ids=["tried", "in flight"]
)
def test_a_run_that_was_tried_is_not_skipped_unstarted(in_flight: bool, first_attempt_at: datetime | None) -> None:
    run = make("running")
    target = RunTargetFactory.create(run=run)
    if in_flight:
        RunTargetFactory.create(run=run, status="sending", claimed_at=NOW)
    Run.objects.filter(pk=run.pk).update(first_attempt_at=first_attempt_at)
    carry_out(transitions.skip_unstarted(run.pk, NOW))
    target.refresh_from_db()
    assert target.status == "pending"


# --- Message 2 goes on ------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["", *PauseReason])
@pytest.mark.parametrize("status", STATUSES)
def test_message_2_is_taken_up_unless_something_stopped_it(status: str, reason: str) -> None:
    if (status == "paused") is not bool(reason):
        return
    run = make(status, pause_reason=reason)
    row = {"run": run.pk, "account": run.account_id, "closes_at": LATER, "paused": False, "now": NOW}
    taken = bool(carry_out(one_statement(transitions.TAKE_UP, row)))
    assert taken is (status in JUDGED or reason == "window_closed")
    assert fresh(run).status == ("queued" if taken else status)


def one_statement(statement: str, parameters: dict[str, Any]) -> Steps[Any]:
    return (yield statement, parameters)
