"""A run that delivered nothing is run again: once, and never to a recipient who may have got it."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction

from fanout.admin.run_status import buttons_for
from fanout.database import execute
from fanout.lanes.lane_rows import wake_after_clock_change
from fanout.models import Event, LaneState, Run
from fanout.runs import controls
from reminders.models import Reminder
from tests.factories import TEXT, ReminderFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 6, 12, tzinfo=UTC)
WAIT_FOR_US = "SELECT pid FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"


def failed_run(**facts: Any) -> Run:
    hours = {"delivery_window_start_hour": 6, "delivery_window_end_hour": 18}
    reminder = ReminderFactory.create(targets=3, **hours)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOON.replace(day=5), **facts)
    Run.objects.filter(pk=run.pk).update(status="failed")
    run.refresh_from_db()
    return run


def test_now_while_the_window_is_open():
    run = failed_run(targets={"skipped": 3})
    answer = controls.run_again(run, run.owner, NOON)
    assert answer.ok
    assert answer.run
    assert (answer.run.scheduled_for, answer.run.pending) == (NOON, 3)
    assert Event.objects.get(verb="run again").run == run


def test_a_second_click_does_not_send_it_twice():
    run = failed_run(targets={"skipped": 3})
    assert controls.run_again(run, run.owner, NOON).ok
    again = controls.run_again(run, run.owner, NOON.replace(second=1))
    assert (again.ok, again.text) == (False, f"“{run.reminder}” is going out already.")


def test_outside_the_window_it_starts_when_that_opens():
    run = failed_run(targets={"skipped": 3})
    answer = controls.run_again(run, run.owner, NOON.replace(hour=20))
    assert "It starts Wed 07 Jan 06:00 (UTC), when its window opens." in answer.text
    assert answer.run
    assert (answer.run.status, answer.run.scheduled_for) == ("queued", NOON.replace(day=7, hour=6))


def test_a_start_in_the_future_is_no_progress_in_the_future():
    """That would look as if the clock had been set back."""
    run, now = failed_run(targets={"skipped": 3}), NOON.replace(hour=20)
    controls.run_again(run, run.owner, now)
    lane = LaneState.objects.get(account=run.account)
    assert (lane.due_at, lane.progress_at) == (NOON.replace(day=7, hour=6), now)
    assert wake_after_clock_change(now) == 0


@pytest.mark.parametrize(
    ("targets", "is_test", "says"),
    [
        pytest.param({"unconfirmed": 2}, False, "may have been delivered", id="unconfirmed"),
        pytest.param({"failed": 1}, True, "This was a test", id="test"),
    ],
)
def test_not_where_a_message_could_be_repeated(targets, is_test, says):
    run = failed_run(targets=targets)
    Run.objects.update(is_test=is_test)
    answer = controls.run_again(run, run.owner, NOON)
    assert not answer.ok
    assert says in answer.text
    assert Run.objects.count() == 1


def test_a_follow_up_is_not_run_again():
    """The reminder would send its first message to everyone."""
    run = failed_run(targets={"failed": 1}, step=1, follow_up=True)
    answer = controls.run_again(run, run.owner, NOON)
    assert (answer.ok, "This was a follow-up" in answer.text) == (False, True)
    assert "run_again" not in [button.name for button in buttons_for(run, NOON)]
    assert Run.objects.count() == 1


def test_not_where_a_part_was_delivered():
    run = failed_run(targets={"failed": 2}, parts=[TEXT, TEXT])
    RunTargetFactory.create(run=run, status="failed", parts_sent=1)
    run.refresh_from_db()
    answer = controls.run_again(run, run.owner, NOON)
    assert (answer.ok, "Retry failed" in answer.text) == (False, True)
    assert Run.objects.count() == 1


def test_it_may_run_again_where_all_bounced():
    """A message of one part that bounced keeps its part."""
    run = failed_run()
    RunTargetFactory.create(run=run, status="failed", parts_sent=1)
    run.refresh_from_db()
    assert controls.run_again(run, run.owner, NOON).ok


@pytest.mark.django_db(transaction=True)
def test_not_while_another_run_of_the_reminder_is_being_made():
    run = failed_run(targets={"skipped": 3})
    answers: list[controls.ControlResult] = []

    def run_again() -> None:
        answers.append(controls.run_again(run, run.owner, NOON))
        connection.close()

    thread = threading.Thread(target=run_again)
    with transaction.atomic():
        Reminder.objects.select_for_update().get(pk=run.reminder_id)
        thread.start()
        until = time.monotonic() + 90
        while not execute(WAIT_FOR_US, []):
            assert time.monotonic() < until
            time.sleep(0.05)
        RunFactory.create(reminder=run.reminder, scheduled_for=NOON.replace(minute=1), status="queued")
    thread.join()
    assert "is going out already" in answers[0].text


@pytest.mark.parametrize("status", ["success", "partial", "canceled"])
def test_not_a_run_that_delivered_or_was_ended(status):
    run = failed_run(targets={"sent": 1})
    Run.objects.update(status=status)
    assert "only one that sent nothing is run again" in controls.run_again(run, run.owner, NOON).text
