"""`manage.py cancel`: end a run for good."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import ControlCommand, find_run
from fanout.models import Run
from fanout.runs import controls


class Command(ControlCommand):
    help = (
        "Cancel a run: pending targets are skipped. It cannot be resumed. --follow-ups keeps the run and stops the "
        "follow-ups that it would send by itself."
    )
    example = "cancel 12"

    def subject(self, parser: CommandParser) -> None:
        super().subject(parser)
        parser.add_argument("--follow-ups", action="store_true", help="only its follow-ups, not the run itself")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        self.ends = Run.FINISHED if options["follow_ups"] else (Run.Status.CANCELED,)
        control = controls.stop_follow_ups if options["follow_ups"] else controls.cancel
        return control(find_run(options["run"]), actor, timezone.now())

    def wanted(self) -> tuple[str, ...]:
        return self.ends
