"""Runs at nine on a Monday, in a window from 6 to 18 o'clock, for the tests of controls and corrections."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fanout.models import Event, LaneState, Run
from tests.factories import RunFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
FINISHED = ("success", "partial", "failed", "skipped", "canceled")
TEXT = {"kind": "text", "text": "Hi"}


def make(status: str = "running", **fields: Any) -> Run:
    reason = fields.pop("reason", "operator" if status == "paused" else "")
    facts = {"scheduled_for": NOW, "status": status, "pause_reason": reason}
    hours = {"window_start_hour": 6, "window_end_hour": 18}
    run: Run = RunFactory.create(**facts | hours | fields)
    return run


def message_2(run: Run, status: str, **fields: Any) -> Run:
    return make(status, account=run.account, answers=run, scheduled_for=NOW + MINUTE, **fields)


def log(run: Run) -> list[tuple[str, str]]:
    return list(Event.objects.filter(run=run).order_by("pk").values_list("verb", "detail"))


def was_woken(account: int) -> bool:
    return LaneState.objects.filter(account=account, wake_count__gt=0, due_at=NOW).exists()


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)
