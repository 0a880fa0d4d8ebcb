"""`manage.py retry_failed`: try failed targets again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.transports.base import Kind
from fanout import controls
from fanout.management import finding
from fanout.management.following import ControlCommand


class Command(ControlCommand):
    help = "Try the failed targets of a run again: all of them, or those of some error kinds."
    example = "retry_failed 12 --kind soft_bounce --follow"

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")
        kinds = [kind.value for kind in Kind]
        parser.add_argument("--kind", action="append", choices=kinds, metavar="KIND", help=", ".join(kinds))

    def control(self, actor: Any, options: dict[str, Any]) -> controls.Done:
        return controls.retry_failed(finding.run(options["run"]), actor, timezone.now(), options["kind"])
