"""fire, pause, resume, cancel, retry_failed, offload."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import time_machine
from django.utils import timezone

from fanout.management.base import Progress, show_step
from fanout.models import Event, LaneState, Run, RunTarget
from fanout.runs import freezing
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import AccountFactory, ReminderFactory, RunFactory, UserFactory

pytestmark = pytest.mark.django_db

SHAPE = {"run", "status", "total", "sent", "failed", "skipped", "pending", "unconfirmed", "seconds", "error_summary"}


def test_fire_by_title():
    ReminderFactory(title="Friday market", targets=2)
    found = data("fire", "friday MARKET")
    assert set(found) >= SHAPE
    assert (found["status"], found["pending"]) == ("queued", 2)
    assert LaneState.objects.get().due_at is not None


def test_fire_says_why_nothing_was_sent():
    ReminderFactory(title="Empty")
    assert "no targets" in not_done("fire", "Empty")


def test_two_of_the_same_title_want_a_number():
    first = ReminderFactory.create(title="Twin", targets=1)
    ReminderFactory(title="Twin")
    assert "Several reminders are called 'Twin'" in bad_input("fire", "Twin")
    assert data("fire", str(first.pk))["total"] == 1


def test_follow_ends_with_one_object(monkeypatch):
    reminder = ReminderFactory.create(targets=3)

    def deliver(seconds: float) -> None:
        run = Run.objects.get()
        run.targets.update(status="sent")
        Run.objects.filter(pk=run.pk).update(status="success")

    monkeypatch.setattr("fanout.management.base.time.sleep", deliver)
    found = data("fire", str(reminder.pk), "--follow")
    assert set(found) == SHAPE
    assert (found["status"], found["sent"]) == ("success", 3)


def test_follow_waits_while_a_large_run_is_being_prepared(monkeypatch):
    reminder = ReminderFactory.create(targets=7)
    monkeypatch.setattr("fanout.runs.firing.LARGE", 4)
    seen = []

    def go_on(seconds: float) -> None:
        run = Run.objects.get()
        seen.append(run.status)
        if run.status == "preparing":
            assert freezing.prepare(run.pk, timezone.now())
        else:
            run.targets.update(status="sent")
            Run.objects.filter(pk=run.pk).update(status="success")

    monkeypatch.setattr("fanout.management.base.time.sleep", go_on)
    found = data("fire", str(reminder.pk), "--follow")
    assert seen == ["preparing", "queued"]
    assert (found["status"], found["total"], found["sent"]) == ("success", 7, 7)


def test_follow_of_a_run_that_does_not_succeed_is_not_done(monkeypatch):
    reminder = ReminderFactory.create(targets=1)
    monkeypatch.setattr(
        "fanout.management.base.time.sleep",
        lambda s: Run.objects.update(status="paused", pause_reason="account_down"),
    )
    assert "paused" in not_done("fire", str(reminder.pk), "--follow")


def test_follow_stops_watching_after_its_time():
    reminder = ReminderFactory.create(targets=1)
    said = not_done("fire", str(reminder.pk), "--follow", "--timeout", "0")
    assert "still queued after 0 s: no driver is alive: nothing is sent until one starts." in said


def test_follow_shows_the_why_line_and_the_providers_words_while_nothing_moves():
    run = RunFactory.create(targets={"pending": 3}, status="running")
    first, *_, last = run.targets.all()
    RunTarget.objects.filter(pk=first.pk).update(error="Connection refused")
    progress = ShownProgress()
    assert show_step(run, progress)
    assert progress.notes == ["running"]
    progress.moved_at -= ShownProgress.STILL_SECONDS
    show_step(run, progress)
    assert progress.notes[1] == "running: no driver is alive: nothing is sent until one starts (Connection refused)"
    RunTarget.objects.filter(pk=last.pk).update(status="sent")
    show_step(run, progress)
    assert progress.notes[2] == "running"


class ShownProgress(Progress):
    def __init__(self) -> None:
        super().__init__(None, 3, "run")
        self.notes: list[str] = []

    def show(self, done: int, note: str = "") -> None:
        self.notes.append(note)


def test_pause_and_resume_a_run():
    run = RunFactory.create(targets={"pending": 2, "sent": 1}, status="running")
    assert data("pause", str(run.pk))["status"] == "paused"
    assert "only a run that is going on" in not_done("pause", str(run.pk))
    assert data("resume", str(run.pk))["status"] == "queued"


def test_resume_at_the_next_opening():
    run = RunFactory.create(targets={"pending": 1}, status="paused", pause_reason="operator")
    assert "goes on" in text("resume", str(run.pk), "--at-opening")
    run.refresh_from_db()
    assert run.resume_at is not None
    assert "omit --follow" in bad_input("resume", str(run.pk), "--at-opening", "--follow")


@pytest.mark.parametrize(
    ("until", "says"),
    [
        pytest.param("20", "this run closes at 20:00 (UTC) today. Resumed: 2 still to send.", id="widened"),
        pytest.param("18", "closes at 18:00 today already", id="not-later"),
        pytest.param("19", "It is past 19:00 in UTC already", id="past"),
        pytest.param("25", "must end at an hour from 1 to 24", id="no-hour"),
    ],
)
def test_resume_until_a_later_hour(until, says):
    evening = datetime(2026, 1, 5, 19, 30, tzinfo=UTC)
    run = RunFactory.create(
        targets={"pending": 2, "sent": 1},
        status="paused",
        pause_reason="window_closed",
        window_start_hour=6,
        window_end_hour=18,
        scheduled_for=evening.replace(hour=9),
    )
    with time_machine.travel(evening, tick=False):
        said = (
            text("resume", str(run.pk), "--until", until)
            if until == "20"
            else not_done("resume", str(run.pk), "--until", until)
        )
    assert says in said
    run.refresh_from_db()
    widened = until == "20"
    assert (run.status, run.window_end_hour) == ("queued" if widened else "paused", 18)
    assert (run.window_closes_at == evening.replace(hour=20, minute=0)) == widened
    assert run.reminder.delivery_window_end_hour == 24
    assert run.events.filter(verb="window widened").exists() == widened
    planned = [at for (at,) in run.targets.filter(status="pending").values_list("planned_at")]
    assert all(at and evening <= at < run.window_closes_at for at in planned) == widened, "the plan is of now"


def test_until_is_for_a_run_at_once():
    assert "omit --account" in bad_input("resume", "--account", "Line", "--until", "20")


def test_pause_and_resume_an_account():
    account = AccountFactory.create(label="Line")
    text("pause", "--account", "line", "--reason", "holiday")
    account.refresh_from_db()
    assert (account.status, account.status_reason) == ("paused", "holiday")
    text("resume", "--account", "line")
    account.refresh_from_db()
    assert account.status == "active"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_run_or_an_account(command):
    assert "Name either" in bad_input(command)


def test_cancel():
    run = RunFactory.create(targets={"pending": 2, "sent": 1}, status="running")
    found = data("cancel", str(run.pk))
    assert (found["status"], found["skipped"], found["sent"]) == ("canceled", 2, 1)
    assert "canceled already" in not_done("cancel", str(run.pk))


def test_cancel_only_the_follow_ups():
    run = RunFactory.create(targets={"sent": 1}, status="success", next_step_at=timezone.now())
    found = data("cancel", str(run.pk), "--follow-ups")
    assert (found["status"], found["text"]) == ("success", "No further follow-ups are sent.")
    assert Run.objects.get().next_step_at is None
    assert "No follow-up of this run is to come." in not_done("cancel", str(run.pk), "--follow-ups")
    Run.objects.update(next_step_at=timezone.now())
    assert data("cancel", str(run.pk), "--follow-ups", "--follow")["status"] == "success", "stopped, and done"


def test_retry_failed_of_a_kind():
    run = RunFactory.create(targets={"failed": 3, "sent": 1})
    Run.objects.filter(pk=run.pk).update(status="partial")
    run.targets.filter(pk=run.targets.filter(status="failed")[0].pk).update(error_kind="soft_bounce")
    assert data("retry_failed", str(run.pk), "--kind", "soft_bounce")["pending"] == 1
    assert "invalid choice" in bad_input("retry_failed", str(run.pk), "--kind", "tired")


def test_offload():
    run = RunFactory.create(targets={"pending": 3}, status="running")
    AccountFactory(label="Other", owner=run.owner)
    assert "3 targets moved to Other: 3 via Other." in text("offload", str(run.pk), "Other")
    AccountFactory(label="Asleep", status="paused")
    assert "choose an active account" in not_done("offload", str(run.pk), "Asleep")


def test_offload_without_an_account_shows_when_each_would_be_done():
    now = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    run = RunFactory.create(
        targets={"pending": 189},
        status="running",
        title="Bazaar",
        reminder__account__label="Office line",
        reminder__account__min_gap_seconds=240,
        reminder__account__max_gap_seconds=240,
        scheduled_for=now,
        window_start_hour=6,
        window_end_hour=18,
        window_closes_at=now.replace(hour=18),
    )
    AccountFactory.create(label="Events line", owner=run.owner, max_send_per_minute=60)
    proposed = "Offload 189 to Events line: done 09:03 instead of Tue 09:32"
    with time_machine.travel(now, tick=False):
        said = text("offload", str(run.pk))
        found = data("offload", str(run.pk))
        done = text("offload", str(run.pk), "Events line")
    assert f'{proposed}:\n  manage.py offload {run.pk} "Events line"' in said
    assert found["proposal"] == proposed
    assert [one["account"] for one in found["accounts"]] == ["Events line"]
    assert "done about 09:03; fits." in found["accounts"][0]["forecast"]
    assert "189 targets moved to Events line" in done
    assert "done about 09:03; fits." in done
    stranger = UserFactory.create(username="stranger")
    assert "belongs to another operator" in not_done("offload", str(run.pk), "--as", stranger.username)
    Run.objects.filter(pk=run.pk).update(status="canceled")
    assert "there is nothing to offload" in not_done("offload", str(run.pk))


@pytest.mark.parametrize(
    ("words", "status"),
    [pytest.param((), "queued", id="goes on"), pytest.param(("--keep-paused",), "paused", id="kept")],
)
def test_an_offload_resumes(words, status):
    run = RunFactory.create(targets={"pending": 3}, status="paused", pause_reason="account_down")
    AccountFactory(label="Other", owner=run.owner)
    assert data("offload", str(run.pk), "Other", *words)["status"] == status


def test_an_operator_acts_with_their_own_rights():
    run = RunFactory.create(targets={"pending": 1}, status="running")
    stranger = UserFactory.create(username="stranger")
    assert "belongs to another operator" in not_done("pause", str(run.pk), "--as", stranger.username)
    text("pause", str(run.pk), "--as", run.owner.username)
    assert Event.objects.get(verb="paused").actor == run.owner


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(("cancel", "9999"), "There is no run 9999.", id="no such run"),
        pytest.param(("cancel", "mine"), "named by its number", id="a run by name"),
        pytest.param(("fire", "nothing"), "There is no reminder 'nothing'.", id="no such reminder"),
        pytest.param(("cancel", "1", "--as", "nobody"), "There is no", id="no such user"),
    ],
)
def test_unknown_objects_are_bad_input(words, says):
    assert says in bad_input(*words)
