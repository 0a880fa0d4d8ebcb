"""`manage.py retry_failed`: try failed targets again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.channels.base import Kind
from fanout.management.base import ControlCommand, find_run
from fanout.runs import controls
from fanout.runs.controls import retry_failed


class Command(ControlCommand):
    help = "Send again to the failed targets of a run: all of them, or those with some kinds of error."
    example = "retry_failed 12 --kind soft_bounce --follow"

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")
        kinds = [kind.value for kind in Kind]
        parser.add_argument("--kind", action="append", choices=kinds, metavar="KIND", help=", ".join(kinds))

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        return retry_failed(find_run(options["run"]), actor, timezone.now(), options["kind"])
