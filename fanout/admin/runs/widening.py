"""Until when a paused run's own window can be widened today, and how late is late enough."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from fanout.models import Run
from fanout.plans.forecast import forecast_run
from fanout.runs import controls
from reminders.window import Window


@dataclass(frozen=True, slots=True)
class Widening:
    """`first` is the earliest hour that helps, `proposed` the one by which all would be sent, at `done_at`. `fits` is
    False where not all can be sent today, None where nobody has counted."""

    first: int
    proposed: int
    fits: bool | None = None
    done_at: datetime | None = None


def widening(run: Run, now: datetime) -> Widening | None:
    """None where there is nothing to widen, such as a window that ends at midnight."""
    hours = range(run.window_end_hour + 1, 25)
    first = next((hour for hour in hours if not controls.widening_problem(run, hour, now)), None)
    if first is None:
        return None
    if len(run.lanes) > 1:
        return Widening(first, first)  # a forecast over many accounts takes more queries than the page has left
    done_at = _done_at(run, now)
    if done_at is None:
        return Widening(first, 24, fits=False)
    return Widening(first, max(first, done_at.astimezone(ZoneInfo(run.timezone)).hour + 1), True, done_at)


def _done_at(run: Run, now: datetime) -> datetime | None:
    """When all would be sent if the window stayed open until midnight; None: not today."""
    widened = copy(run)
    # It goes on at once then, whatever was planned.
    widened.resume_at = None
    widened.window_closes_at = Window(run.timezone, run.window_start_hour, 24).closes_on(now)
    ends_at = forecast_run(widened, now).ends_at
    return ends_at if ends_at is not None and ends_at < widened.window_closes_at else None
