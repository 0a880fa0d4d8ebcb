"""`manage.py limits`: every inconsistency is found, and repaired where possible."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from fanout.models import Activity, LaneState, Run, RunTarget
from fanout.ops import audit
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    DailyLimitFactory,
    EventFactory,
    LaneStateFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db


def sent_target(run: Run, activity: bool = True) -> RunTarget:
    now = timezone.now()
    target = RunTargetFactory.create(run=run, status="sent", parts_sent=1, claimed_at=now, settled_at=now)
    if activity:
        ActivityFactory(account=run.account, run_target=target)
    return target


def broken(statement: str, *parameters: int) -> None:
    """Behind the trigger's back."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


# --- limits -------------------------------------------------------------------------------------------------


def checks_of() -> list[str]:
    """The names of what is wrong."""
    now = timezone.now()
    return sorted({violation.check for violation in audit.examine(now - timedelta(days=30), now)})


def test_good_books_agree():
    run = RunFactory.create(status="running")
    sent_target(run)
    LaneStateFactory(account=run.account, due_at=timezone.now())
    assert data("limits", "--check") == {"violations": [], "repaired": []}


def test_wrong_counters_are_counted_again():
    run = RunFactory.create(targets={"pending": 2}, status="paused", pause_reason="operator")
    broken("UPDATE fanout_run SET pending = 1, sent = 1 WHERE id = %s", run.pk)
    assert checks_of() == ["counters"]
    assert "Inconsistencies: 1" in not_done("limits")
    (mended,) = data("limits", "--repair")["repaired"]
    assert mended["text"] == f"{run.title}: says 1 pending, 1 sent, has 2 pending."
    run.refresh_from_db()
    assert (run.pending, run.sent) == (2, 0)


def test_a_delivery_that_no_cap_counts_is_added():
    target = sent_target(RunFactory.create(), activity=False)
    assert checks_of() == ["activity"]
    text("limits", "--repair")
    activity = Activity.objects.get()
    assert (activity.run_target, activity.kind, activity.at) == (target, "repaired", target.settled_at)


def test_a_part_that_would_go_out_twice_is_remembered():
    run = RunFactory.create(parts=[{"kind": "text", "text": "a"}] * 2, status="paused", pause_reason="operator")
    target = RunTargetFactory.create(run=run, claimed_at=timezone.now())
    ActivityFactory(account=run.account, run_target=target, part=0)
    assert checks_of() == ["parts"]
    text("limits", "--repair")
    target.refresh_from_db()
    assert target.parts_sent == 1


def test_double_sends_are_reported_and_kept():
    target = sent_target(RunFactory.create())
    ActivityFactory(account=target.account, run_target=target)
    assert "Inconsistencies: 1." in not_done("limits", "--repair")
    assert Activity.objects.count() == 2


def test_a_broken_cap_is_said():
    limit = DailyLimitFactory.create(limit=1)
    for _ in range(2):
        ActivityFactory(account=limit.account)
    assert checks_of() == ["cap"]


def test_a_day_over_its_cap_is_said_for_every_day_looked_at():
    limit = DailyLimitFactory.create(limit=1)
    for _ in range(2):
        ActivityFactory(account=limit.account, at=timezone.now() - timedelta(days=5))
    assert checks_of() == ["cap"]
    assert data("limits", "--check", "--days", "2")["violations"] == []
    # Lowering the cap later breaks nothing.
    EventFactory(run=None, account=limit.account, verb="tuned", detail="daily_limit_message: 9 → 1")
    assert checks_of() == []


def test_a_plan_beyond_the_cap_is_reported_and_planned_again():
    run = RunFactory.create(status="queued", scheduled_for=timezone.now())
    LaneStateFactory(account=run.account, due_at=timezone.now())
    DailyLimitFactory(account=run.account, limit=2)
    for position in range(5):
        RunTargetFactory(run=run, position=position, planned_at=timezone.now() + timedelta(days=3))
    assert checks_of() == ["plan"]
    text("limits", "--repair")
    assert checks_of() == []
    days = [target.planned_at.date() for target in run.targets.order_by("position") if target.planned_at]
    assert len(days) == 5
    assert days == sorted(days)
    assert max(Counter(days).values()) == 2


def test_a_paused_run_has_no_place_in_the_plan():
    """A run that waits for its operator and one that goes on may be planned for the same day."""
    run = RunFactory.create(status="paused", pause_reason="operator")
    DailyLimitFactory(account=run.account, limit=1)
    for _ in range(2):
        RunTargetFactory(run=run, planned_at=timezone.now() + timedelta(days=3))
    assert checks_of() == []


def test_a_lane_that_the_run_forgot_is_named():
    run = RunFactory.create(status="running")
    other = AccountFactory.create(owner=run.owner)
    RunTargetFactory(run=run, account=other)
    LaneStateFactory(account=run.account, due_at=timezone.now())
    assert checks_of() == ["lanes"]
    text("limits", "--repair")
    run.refresh_from_db()
    assert run.lanes == sorted([run.account_id, other.pk])
    assert LaneState.objects.get(account=other).due_at is not None


def test_work_without_a_due_lane_wakes_its_lane():
    run = RunFactory.create(targets={"pending": 1}, status="running")
    LaneStateFactory(account=run.account, due_at=None)
    assert checks_of() == ["asleep"]
    text("limits", "--repair")
    assert LaneState.objects.get().due_at is not None


def test_a_wrong_verdict_is_judged_again():
    run = RunFactory.create()
    sent_target(run)
    RunTargetFactory(run=run, status="failed")
    Run.objects.filter(pk=run.pk).update(status="success")
    assert checks_of() == ["verdict"]
    text("limits", "--repair")
    run.refresh_from_db()
    assert run.status == "partial"


def test_limits_refuses_nonsense():
    assert "--days" in bad_input("limits", "--days", "0")
    assert "not allowed with" in bad_input("limits", "--check", "--repair")


def test_limits_look_back_a_century_at_most():
    assert "--days takes a whole number from 1 to 36500" in bad_input("limits", "--days", "999999999")
