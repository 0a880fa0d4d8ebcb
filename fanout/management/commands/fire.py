"""`manage.py fire`: send a reminder now."""

from __future__ import annotations

from dataclasses import replace
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
        parser.add_argument("--again", action="store_true", help="fire it although it was fired a moment ago")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        reminder = find_reminder(options["reminder"])
        answer = controls.fire(reminder, actor, timezone.now())
        if answer.asks and answer.run is not None:
            if not options["again"]:
                return replace(answer, text=f"{answer.text} Add --again if you want that.")
            answer = controls.fire(reminder, actor, timezone.now(), after=answer.run.pk)
        return answer
