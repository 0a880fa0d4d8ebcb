"""`manage.py cancel`: end a run for good."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from fanout.management.base import ControlCommand, find_run
from fanout.models import Run
from fanout.runs import controls


class Command(ControlCommand):
    help = "Cancel a run: pending targets are skipped. It cannot be resumed."
    example = "cancel 12"

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        return controls.cancel(find_run(options["run"]), actor, timezone.now())

    def wanted(self) -> tuple[str, ...]:
        return (Run.Status.CANCELED,)
