"""“Backup and restore” in docs/operations.md: after its steps nothing is sent by itself."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command

from fanout.models import PauseReason, Run
from fanout.ops import tasks
from fanout.runs import controls, firing, freezing
from reminders.moments import moment
from tests.commands.calling import bad_input, data, not_done, text
from tests.engine.stage import Stage, fresh
from tests.factories import RunFactory, UserFactory

OPERATIONS = Path(settings.BASE_DIR, "docs", "operations.md")
MANAGE = ".venv/bin/python manage.py "


def documented_steps() -> list[list[str]]:
    """The commands of ours between the restore and the start, each with its arguments."""
    section = OPERATIONS.read_text().split("**A restored database")[1]
    match = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert match is not None
    lines = match[1].splitlines()
    assert lines[-1].startswith("systemctl start")
    assert not [line for line in lines if "manage.py" in line and not line.startswith(MANAGE)], "a step is not run here"
    return [shlex.split(line.removeprefix(MANAGE), comments=True) for line in lines if line.startswith(MANAGE)]


def in_a_dump(stage: Stage, name: str, first: int, **facts: Any) -> Run:
    """A run with two recipients as the dump has it."""
    run = stage.fire(stage.reminder(stage.account(), groups=2, first=first, title=name))
    Run.objects.filter(pk=run.pk).update(first_attempt_at=stage.now, **facts)
    return fresh(run)


@pytest.mark.slow
def test_after_the_documented_steps_nothing_is_sent_by_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paused: dict[str, Any] = {"status": "paused", "pause_reason": PauseReason.WINDOW_CLOSED}
    tomorrow = stage.now + timedelta(hours=21)
    going_on = {
        "queued": in_a_dump(stage, "queued", 0),
        "running": in_a_dump(stage, "running", 10, status="running"),
        "waiting": in_a_dump(stage, "waiting", 20, status="waiting", waiting_until=tomorrow),
        "resumes": in_a_dump(stage, "resumes", 30, **paused, resume_at=tomorrow),
        "archived": in_a_dump(stage, "archived", 40, **paused, resume_at=tomorrow, archived=True),
    }
    answers = in_a_dump(stage, "Message 2", 50, **paused, resume_at=tomorrow, answers=going_on["queued"])
    held = in_a_dump(stage, "held by its operator", 60, status="paused", pause_reason=PauseReason.OPERATOR)
    monkeypatch.setattr(firing, "LARGE", 1)
    monkeypatch.setattr(freezing, "CHUNK", 1)
    going_on["preparing"] = stage.fire(stage.reminder(stage.account(), groups=2, first=70, title="preparing"))
    assert going_on["preparing"].status == Run.Status.PREPARING
    due = stage.reminder(stage.account(), groups=2, first=80, title="due", fire_at=stage.now, next_fire_at=stage.now)

    for step in documented_steps():
        call_command(*step)
    printed = capsys.readouterr().out
    assert str(due.pk) in printed.split()

    begun = stage.now
    for hours in range(26):  # a day with an opening in it
        stage.now = begun + timedelta(hours=hours)
        for work in tasks.STEPS:
            work(stage.now)
        for run_id in freezing.unprepared():
            freezing.prepare(run_id, stage.now)
        stage.play(60)
    assert stage.book.deliveries() == []
    for run in (*going_on.values(), answers, held):
        assert (fresh(run).status, run.pause_reason, run.pending) == ("paused", PauseReason.OPERATOR, 2)

    # Every one of them goes out when its operator says so, whole.
    stage.now = begun + timedelta(days=1, hours=1)
    for run in (*going_on.values(), held):
        assert controls.resume(fresh(run), stage.user, stage.now).ok, run
    stage.play()
    assert len(stage.book.deliveries()) == 2 * 8
    assert not stage.book.duplicates("to", "part")


@pytest.mark.django_db
def test_live_runs_are_all_that_send_by_themselves_and_when() -> None:
    at = datetime(2026, 1, 6, 6, tzinfo=UTC)
    paused = {"status": "paused", "pause_reason": "window_closed"}
    resumes = RunFactory.create(targets={"pending": 1}, resume_at=at, archived=True, **paused)
    preparing_run = RunFactory.create(status="preparing")
    RunFactory.create(targets={"pending": 1}, **paused)
    RunFactory.create(status="canceled")
    rows = {row["run"]: row for row in data("runs", "--live")["runs"]}
    assert set(rows) == {resumes.pk, preparing_run.pk}
    assert rows[resumes.pk]["resume_at"] == at.isoformat()
    assert f"resumes {moment(at, 'UTC')}" in text("runs", "--live")


@pytest.mark.django_db
def test_pause_all_pauses_only_runs_the_actor_may_change() -> None:
    mine, theirs = (RunFactory.create(status="running", targets={"pending": 1}) for _ in range(2))
    assert data("pause", "--all", "--as", mine.owner.username)["text"] == "Paused: 1 run."
    assert (fresh(mine).status, fresh(theirs).status) == ("paused", "running")
    assert data("pause", "--all")["text"] == "Paused: 1 run."
    assert data("pause", "--all")["text"] == "Paused: 0 runs."
    assert fresh(theirs).status == "paused"
    assert data("pause", "--all", "--as", UserFactory.create().username)["text"] == "Paused: 0 runs."
    for words in ([], [str(mine.pk), "--all"], ["--all", "--account", "x"]):
        assert "Name either a run or an account, or choose --all." in bad_input("pause", *words)


@pytest.mark.django_db
def test_a_planned_resume_is_taken_back_by_a_pause() -> None:
    run = RunFactory.create(targets={"pending": 1}, status="paused", pause_reason="window_closed")
    Run.objects.filter(pk=run.pk).update(resume_at=run.scheduled_for, finished_at=run.scheduled_for)
    assert data("pause", str(run.pk))["status"] == "paused"
    assert (fresh(run).pause_reason, run.resume_at, run.finished_at) == ("operator", None, run.scheduled_for)
    assert "only a run that is going on" in not_done("pause", str(run.pk))
