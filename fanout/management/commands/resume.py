"""`manage.py resume`: go on with a paused run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management import lookup
from fanout.management.base import BadInput
from fanout.management.following import ControlCommand
from fanout.runs import controls


class Command(ControlCommand):
    help = (
        "Resume a paused run: only what is still pending is sent. "
        "--account lets a paused or suspended account send again; its runs are resumed one by one."
    )
    example = "resume 12 --follow"

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", nargs="?", help="the run's number")
        parser.add_argument("--at-opening", action="store_true", help="once, when the window next opens")
        parser.add_argument("--account", help="instead of a run: an account's number or label")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.Answer:
        if bool(options["run"]) == bool(options["account"]):
            raise BadInput("Name a run or an account, one of the two.")
        if options["account"]:
            return controls.reactivate(lookup.account(options["account"]), actor, timezone.now())
        run = lookup.run(options["run"])
        if not options["at_opening"]:
            return controls.resume(run, actor, timezone.now())
        if options["follow"]:
            raise BadInput("--at-opening only plans the resume: there is nothing to follow yet.")
        return controls.resume_at_opening(run, actor, timezone.now())
