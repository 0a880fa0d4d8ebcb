"""What an operator can do with a run in its current state: buttons and bulk actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fanout.models import Run
from fanout.runs import controls
from fanout.runs.controls import Answer

Control = Callable[[Run, Any, datetime], Answer]
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


def _paused(run: Run, now: datetime) -> bool:
    return run.status == Run.Status.PAUSED


def _can_retry(run: Run, now: datetime) -> bool:
    return run.failed > 0 and run.status in (Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.PAUSED)


def _can_archive(run: Run, now: datetime) -> bool:
    return not run.archived and run.status not in Run.LIVE


BUTTONS = (
    Button("resume", "Resume", "Resumed", _paused, controls.resume, "primary", on_row=True),
    Button(
        "resume_at_opening",
        "Resume when the window opens",
        "Will resume when the window opens",
        lambda run, now: _paused(run, now) and run.resume_at is None and not run.window.is_open(now),
        controls.resume_at_opening,
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


def widen_from(run: Run, now: datetime) -> int | None:
    """The first hour to which a paused run's window can be widened today; None where there is none."""
    hours = range(run.window_end_hour + 1, 25)
    return next((hour for hour in hours if not controls.widening_problem(run, hour, now)), None)
