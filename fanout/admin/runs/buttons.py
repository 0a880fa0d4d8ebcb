"""What an operator can do with a run in its current state: buttons and bulk actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fanout.models import Run
from fanout.runs import controls
from fanout.runs.controls import ControlResult

Control = Callable[[Run, Any, datetime], ControlResult]
Test = Callable[[Run, datetime], bool]


@dataclass(frozen=True, slots=True)
class Button:
    name: str
    label: str
    past: str  # how the message about several runs begins
    offered: Test
    control: Control
    tone: str = ""
    on_row: bool = False
    bulk: bool = True
    confirm: str = ""

    @property
    def yes(self) -> str:
        """The button on the page with the question."""
        return f"{self.label} this run" if " " not in self.label else self.label


def _paused(run: Run, now: datetime) -> bool:
    return run.status == Run.Status.PAUSED


def _can_resume(run: Run, now: datetime) -> bool:
    return _paused(run, now) and run.window.is_open(now)


def _can_wait_for_opening(run: Run, now: datetime) -> bool:
    return _paused(run, now) and run.resume_at is None and not run.window.is_open(now)


def _goes_on_by_itself(run: Run, now: datetime) -> bool:
    return _paused(run, now) and run.resume_at is not None


def _can_retry(run: Run, now: datetime) -> bool:
    return run.failed > 0 and run.status in (Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.PAUSED)


def _can_archive(run: Run, now: datetime) -> bool:
    return not run.archived and run.status not in Run.LIVE


def _can_run_again(run: Run, now: datetime) -> bool:
    unsent = run.status in (Run.Status.FAILED, Run.Status.SKIPPED) and not run.sent and not run.unconfirmed
    return unsent and run.answers_id is None and not run.is_test


BUTTONS = (
    Button("resume", "Resume", "Resumed", _can_resume, controls.resume, "primary", on_row=True),
    # Outside the window a resume would be refused: this one is offered in its place.
    Button(
        "resume_when_open",
        "Resume when the window opens",
        "Resumed, or planned for the opening",
        _can_wait_for_opening,
        controls.resume_when_open,
        "primary",
        on_row=True,
        bulk=False,
    ),
    Button(
        "keep_paused",
        "Keep paused",
        "Planned resumes taken back",
        _goes_on_by_itself,
        controls.keep_paused,
        on_row=True,
    ),
    Button("pause", "Pause", "Paused", lambda run, now: run.status in Run.LIVE, controls.pause, on_row=True),
    Button("retry_failed", "Retry failed", "Retried", _can_retry, controls.retry_failed, on_row=True),
    Button(
        "cancel",
        "Cancel",
        "Canceled",
        lambda run, now: run.status not in Run.FINISHED,
        controls.cancel,
        tone="danger",
        confirm="Cancel this run? Pending targets will be skipped, and it cannot be resumed.",
    ),
    Button(
        "run_again",
        "Run again",
        "Run again",
        _can_run_again,
        controls.run_again,
        on_row=True,
        bulk=False,
        confirm="Fire this reminder again, as it is now, for all its targets?",
    ),
    Button("archive", "Archive", "Archived", _can_archive, controls.archive),
    Button(
        "unarchive",
        "Unarchive",
        "Unarchived",
        lambda run, now: run.archived,
        lambda run, user, now: controls.archive(run, user, now, archived=False),
    ),
)
BY_NAME = {button.name: button for button in BUTTONS}


def buttons_for(run: Run, now: datetime, rows_only: bool = False) -> list[Button]:
    return [button for button in BUTTONS if button.offered(run, now) and (button.on_row or not rows_only)]


def can_offload(run: Run) -> bool:
    return run.status not in Run.FINISHED and run.pending > 0 and run.answers_id is None
