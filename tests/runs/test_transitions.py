"""A run's status changes by one statement each, which engine and controls share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from fanout.database import carry_out
from fanout.models import Event, LaneState, Notification, PauseReason, Run, RunTarget
from fanout.plans.plan import delay_reason, planned_time
from fanout.rules.gates import AccountFacts, Close, Wait
from fanout.runs import transitions
from reminders.window import BusinessHours
from tests.factories import AccountFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
case = pytest.param
pytestmark = pytest.mark.django_db


def make(**fields: Any) -> Run:
    """A run of today, 6 to 18 in UTC."""
    run: Run = RunFactory.create(scheduled_for=NOW, timezone="UTC", window_start_hour=6, window_end_hour=18, **fields)
    run.refresh_from_db()
    return run


def settle(run: Run, was: str, becomes: str) -> None:
    target = run.targets.filter(status=was)[0]
    RunTarget.objects.filter(pk=target.pk).update(status=becomes)


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


@pytest.mark.parametrize(
    ("targets", "verdict"),
    [
        case({"sent": 2}, "success", id="all-sent"),
        case({"sent": 1, "failed": 1}, "partial", id="one-failed"),
        case({"sent": 1, "unconfirmed": 1}, "partial", id="one-unconfirmed"),
        case({"failed": 1, "skipped": 1}, "failed", id="none-sent"),
        case({}, "failed", id="no-targets"),
    ],
)
def test_the_verdict(targets: dict[str, int], verdict: str) -> None:
    run = make(status="running", targets=targets)
    assert carry_out(transitions.finish(run.pk, NOW))
    assert (fresh(run).status, fresh(run).finished_at) == (verdict, NOW)
    assert Event.objects.filter(run=run, verb=verdict).count() == 1
    assert not carry_out(transitions.finish(run.pk, NOW))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        case({}, "skipped", id="all-opted-out"),
        case({"status": "waiting"}, "skipped", id="before-it-began"),
        case({"first_attempt_at": NOW}, "failed", id="the-provider-refused-them"),
        case({"window_closes_at": NOW}, "failed", id="the-window-closed-first"),
        case({"is_test": True}, "failed", id="a-test"),
        case({"collects": "a key"}, "failed", id="single-messages-go-on"),
    ],
)
def test_a_run_that_tried_no_one_is_skipped(fields: dict[str, Any], status: str) -> None:
    run = make(**{"status": "running", "targets": {"skipped": 3}} | fields)
    run.targets.update(error="address is suppressed")
    assert carry_out(transitions.finish(run.pk, NOW))
    run = fresh(run)
    assert (run.status, run.finished_at) == (status, NOW)
    if status == "skipped":
        assert run.error_summary == "No one was written to: 3 address is suppressed."
        assert not Notification.objects.filter(run=run).exists()
        assert Event.objects.filter(run=run, verb="skipped").count() == 1
    carry_out(transitions.rejudge(run.pk, NOW))
    assert fresh(run).status == status


@pytest.mark.parametrize("left", ["pending", "sending"])
def test_a_run_with_something_left_is_not_finished(left: str) -> None:
    run = make(status="running", targets={"sent": 1, left: 1})
    assert not carry_out(transitions.finish(run.pk, NOW))
    assert fresh(run).status == "running"


@pytest.mark.parametrize(
    ("was", "becomes", "verdict", "summary"),
    [
        case(
            "sent",
            "failed",
            "partial",
            "Sent to 2 of 4 groups, 1 failed (no reason recorded), 1 unconfirmed.",
            id="a-bounce",
        ),
        case("unconfirmed", "sent", "success", "", id="it-was-delivered"),
    ],
)
def test_another_verdict_has_another_summary_a_line_and_a_notification(
    was: str, becomes: str, verdict: str, summary: str
) -> None:
    run = make(status="running", targets={"sent": 3, "unconfirmed": 1})
    carry_out(transitions.finish(run.pk, NOW))
    if verdict == "partial":
        Run.objects.filter(pk=run.pk).update(status="success")
    settle(run, was, becomes)
    carry_out(transitions.rejudge(run.pk, NOW + timedelta(hours=1)))
    run = fresh(run)
    assert (run.status, run.error_summary, run.finished_at) == (verdict, summary, NOW)
    assert Event.objects.filter(run=run, verb=verdict, at=NOW + timedelta(hours=1)).exists()
    assert Notification.objects.filter(run=run, created_at=NOW + timedelta(hours=1)).exists()


def test_partly_delivered_names_the_reminder_and_the_causes() -> None:
    run = make(status="running", title="Rent", targets={"sent": 1, "failed": 3, "skipped": 1})
    failed = run.targets.filter(status="failed")
    failed.update(error_kind="recipient_gone")
    RunTarget.objects.filter(pk=failed[0].pk).update(error_kind="network")
    run.targets.filter(status="skipped").update(error="address is suppressed")
    carry_out(transitions.finish(run.pk, NOW))
    told = Notification.objects.get(run=run)
    assert (told.title, told.body) == (
        "Reminder partly sent",
        "Rent: Sent to 1 of 5 groups, 3 failed (mostly: group or person is gone), 1 skipped (address is suppressed).",
    )


def test_the_same_verdict_with_other_counts_renews_the_summary_only() -> None:
    run = make(status="running", targets={"sent": 3, "unconfirmed": 2})
    carry_out(transitions.finish(run.pk, NOW))
    settle(run, "unconfirmed", "sent")
    carry_out(transitions.rejudge(run.pk, NOW))
    assert fresh(run).error_summary == "Sent to 4 of 5 groups, 1 unconfirmed."
    assert Event.objects.filter(run=run).count() == 1


@pytest.mark.parametrize("status", ["paused", "canceled", "running"])
def test_only_a_finished_run_is_judged_again(status: str) -> None:
    reason = "operator" if status == "paused" else ""
    run = make(status=status, pause_reason=reason, targets={"sent": 1, "pending": 1}, error_summary="as it was")
    carry_out(transitions.rejudge(run.pk, NOW))
    assert (fresh(run).status, fresh(run).error_summary) == (status, "as it was")


def test_unstarted_at_the_windows_end() -> None:
    run = make(status="waiting", targets={"pending": 3})
    assert carry_out(transitions.fail_unstarted(run.pk, NOW))
    run = fresh(run)
    assert (run.status, run.skipped, run.pending) == ("failed", 3, 0)
    assert run.error_summary.startswith("Delivery window closed at 18:00 (UTC) before the first message")
    assert Notification.objects.get(run=run).title == "Reminder failed"


def test_a_run_that_was_attempted_does_not_fail_for_the_window() -> None:
    run = make(status="running", targets={"pending": 3}, first_attempt_at=NOW)
    assert not carry_out(transitions.fail_unstarted(run.pk, NOW))
    assert (fresh(run).status, fresh(run).pending) == ("running", 3)


HOURS = BusinessHours("UTC", 10, 12)


@pytest.mark.parametrize(
    ("auto", "reason", "facts", "resume_at"),
    [
        case(False, PauseReason.WINDOW_CLOSED, AccountFacts("active", "", None, HOURS), None, id="not-asked-for"),
        case(False, PauseReason.ACCOUNT_HOURS, AccountFacts("active", "", None, HOURS), None, id="nor-after-a-limit"),
        case(True, PauseReason.CIRCUIT_BREAKER, AccountFacts("active", "", None, HOURS), None, id="needs-a-person"),
        case(
            True, PauseReason.WINDOW_CLOSED, AccountFacts("active", "", None, HOURS), NOW.replace(hour=10), id="hours"
        ),
        case(
            True,
            PauseReason.ACCOUNT_HOURS,
            AccountFacts("active", "", None, HOURS),
            NOW.replace(hour=10),
            id="outside-its-hours",
        ),
        case(
            True,
            PauseReason.ACCOUNT_CAPACITY,
            AccountFacts("active", "", None, HOURS, 5, 5, NOW.replace(day=6, hour=0)),
            NOW.replace(day=6, hour=10),
            id="cap",
        ),
        case(
            True,
            PauseReason.ACCOUNT_CAPACITY,
            AccountFacts("suspended", "ban", NOW.replace(day=7), BusinessHours("UTC")),
            NOW.replace(day=7),
            id="ban",
        ),
        case(
            True,
            PauseReason.WINDOW_CLOSED,
            AccountFacts("active", "", None, BusinessHours("UTC", 20, 22)),
            None,
            id="never",
        ),
    ],
)
def test_when_a_paused_run_goes_on(
    auto: bool, reason: PauseReason, facts: AccountFacts, resume_at: datetime | None
) -> None:
    after_its_window = reason == PauseReason.WINDOW_CLOSED
    # The other switch says the opposite: it is not asked.
    switches = {"auto_resume": auto == after_its_window, "resume_after_limit": auto != after_its_window}
    run = make(status="running", targets={"sent": 1, "pending": 1}, **switches, action="message")
    assert carry_out(transitions.pause(run.pk, Close(reason, "why"), {"message": facts}, NOW))
    assert (fresh(run).status, fresh(run).pause_reason, fresh(run).resume_at) == ("paused", reason, resume_at)


def test_a_gate_waits_for_what_is_in_flight_and_an_operator_does_not() -> None:
    run = make(status="running", targets={"sending": 1, "pending": 1})
    assert not carry_out(transitions.pause(run.pk, Close(PauseReason.WINDOW_CLOSED, ""), {}, NOW))
    assert carry_out(transitions.pause_by_operator(run.pk, None, NOW))
    assert fresh(run).error_summary.startswith("Paused by an operator. Sent to 0 of 2 groups, 1 still pending.")
    assert not Notification.objects.exists()
    assert not carry_out(transitions.pause_by_operator(run.pk, None, NOW))


@pytest.mark.parametrize("probe", [True, False])
def test_resume_is_for_paused_runs_only(probe: bool) -> None:
    run = make(status="paused", pause_reason="operator", targets={"pending": 1})
    closes = NOW + timedelta(hours=1)
    assert carry_out(transitions.resume(run.pk, [run.account_id], closes, NOW, probe))
    assert (fresh(run).status, fresh(run).window_closes_at, fresh(run).pause_reason) == ("queued", closes, "")
    assert LaneState.objects.get(account=run.account_id).probing is probe
    assert not carry_out(transitions.resume(run.pk, [run.account_id], closes, NOW, probe))


def test_cancel_skips_what_is_pending_and_lets_the_rest_land() -> None:
    run = make(status="running", targets={"sent": 1, "sending": 1, "pending": 2})
    assert carry_out(transitions.cancel(run.pk, None, NOW))
    assert not carry_out(transitions.skip_canceled(run.pk, NOW))
    run = fresh(run)
    assert (run.status, run.sent, run.sending, run.skipped, run.pending) == ("canceled", 1, 1, 2, 0)
    assert Event.objects.get(run=run).detail == "2 skipped"
    assert not carry_out(transitions.cancel(run.pk, None, NOW))


def test_a_wait_moves_the_plan_and_says_why() -> None:
    run = make(status="running", targets={"pending": 2})
    for n, target in enumerate(run.targets.order_by("position")):
        RunTarget.objects.filter(pk=target.pk).update(planned_at=NOW + timedelta(minutes=n))
    until = NOW + timedelta(hours=2)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(until, "daily cap"), NOW))
    run.refresh_from_db()
    planned = [(planned_time(t, run), delay_reason(t, run)) for t in run.targets.order_by("position")]
    assert planned == [(until, "daily cap"), (until + timedelta(minutes=1), "daily cap")]
    assert (fresh(run).status, fresh(run).waiting_until, fresh(run).seconds_waiting) == ("waiting", until, 7200)
    # The same once more is no news, and is not counted again.
    assert not carry_out(transitions.wait(run.pk, run.account_id, Wait(until, "daily cap"), NOW))


def test_a_lane_steps_aside_only_while_another_has_something_to_send() -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    run = make(account=one, lanes=[one.pk, two.pk], status="running")
    RunTargetFactory.create(run=run, account=one)
    other = RunTargetFactory.create(run=run, account=two)
    assert carry_out(transitions.step_aside(run.pk, one.pk, "One", "daily cap", NOW))
    assert fresh(run).lanes == [two.pk]
    assert Event.objects.get(run=run).detail == "One: daily cap"
    RunTarget.objects.filter(pk=other.pk).update(status="sent")
    assert not carry_out(transitions.step_aside(run.pk, two.pk, "Two", "daily cap", NOW))


def test_a_chunk_is_no_larger_than_its_limit_however_it_is_planned() -> None:
    """Behind IN, a list that was read again for every row had more rows than its limit."""
    run = make(status="canceled")
    for _ in range(7):
        RunTargetFactory.create(run=run)
    statement = transitions.SKIP_CANCELED.replace(f"LIMIT {transitions.CHUNK}", "LIMIT 2")
    with connection.cursor() as cursor:
        for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize", "incremental_sort"):
            cursor.execute(f"SET LOCAL enable_{way} = off")
        skipped = []
        for _ in range(5):
            cursor.execute(statement, {"run": run.pk, "why": "canceled", "now": NOW})
            skipped.append(cursor.rowcount)
    assert skipped == [2, 2, 2, 1, 0]
