"""`manage.py fire`: send a reminder now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import ControlCommand, find_reminder
from fanout.runs import controls


class Command(ControlCommand):
    help = "Fire a reminder now. Its schedule is not changed."
    example = 'fire "Friday market" --follow'

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("reminder", help="the reminder's number or title")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        return controls.fire(find_reminder(options["reminder"]), actor, timezone.now())
