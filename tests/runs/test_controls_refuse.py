"""Controls that must not say that something was done."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fanout.models import Event, LaneState, Run
from fanout.runs import controls, corrections, firing
from tests.factories import AccountFactory, ReminderFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
pytestmark = pytest.mark.django_db


def test_an_offload_to_another_channel_is_refused_and_moves_nothing() -> None:
    run = RunFactory.create(targets={"pending": 2}, status="running", scheduled_for=NOW)
    mail = AccountFactory.create(channel="smtp", owner=run.owner, label="Mail")
    answer = corrections.offload(run, mail, run.owner, NOW)
    assert (answer.ok, answer.text) == (False, "Mail is a smtp account, the run needs sandbox.")
    assert set(run.targets.values_list("account", flat=True)) == {run.account_id}
    assert not Event.objects.exists()
    assert not LaneState.objects.exists()


@pytest.mark.parametrize("status", ["success", "partial", "failed", "canceled", "skipped", "preparing"])
def test_a_run_that_does_not_send_is_not_offloaded(status: str) -> None:
    run = RunFactory.create(status=status, scheduled_for=NOW)
    other = AccountFactory.create(owner=run.owner)
    answer = corrections.offload(run, other, run.owner, NOW)
    assert not answer.ok
    assert Run.objects.get(pk=run.pk).lanes == [run.account_id]


def test_an_offload_with_nothing_to_move_is_not_done() -> None:
    run = RunFactory.create(targets={"sent": 1, "sending": 1}, status="running", scheduled_for=NOW)
    answer = corrections.offload(run, AccountFactory.create(owner=run.owner), run.owner, NOW)
    assert (answer.ok, answer.text) == (False, "There is nothing left to move.")
    assert Run.objects.get(pk=run.pk).lanes == [run.account_id]


def test_what_may_have_been_delivered_is_not_offloaded() -> None:
    run = RunFactory.create(targets={"pending": 1}, status="running", scheduled_for=NOW)
    doubtful = RunTargetFactory.create(run=run, in_doubt=True)
    other = AccountFactory.create(owner=run.owner)
    answer = corrections.offload(run, other, run.owner, NOW)
    assert answer.text.startswith(f"1 targets moved to {other.label}")
    assert answer.text.endswith(" 1 may have been delivered already and stay where they are.")
    doubtful.refresh_from_db()
    assert doubtful.account_id == run.account_id


@pytest.mark.parametrize(
    ("parts", "targets", "reason"),
    [
        pytest.param((), 1, "The reminder has no message.", id="no-message"),
        pytest.param(("Hello",), 0, "The reminder has no targets.", id="no-targets"),
    ],
)
def test_an_empty_reminder_does_not_fire(parts: tuple[str, ...], targets: int, reason: str) -> None:
    reminder = ReminderFactory.create(parts=parts, targets=targets)
    answer = controls.fire(reminder, reminder.owner, NOW)
    assert (answer.ok, answer.text) == (False, f"Nothing was sent: {reason}")
    run = Run.objects.get()
    assert (run.status, run.error_summary, run.finished_at, run.total) == ("skipped", reason, NOW, 0)
    assert firing.make_run(reminder, NOW, NOW) is None
