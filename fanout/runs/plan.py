"""A target's planned time as people read it, and why it has slipped."""

from __future__ import annotations

from datetime import datetime

from fanout.models import Run, RunTarget


def planned_time(target: RunTarget, run: Run) -> datetime | None:
    """When the target is expected to go out; None where nobody knows."""
    return target.planned_at


def slip_reason(target: RunTarget, run: Run) -> str:
    """Why it goes out later than first planned; empty where it does not."""
    return target.plan_note
