"""`manage.py resume`: continue a paused run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import BadInput, ControlCommand, find_account, find_run
from fanout.runs import controls


class Command(ControlCommand):
    help = (
        "Resume a paused run: only pending targets are sent. "
        "--account reactivates a paused or suspended account; resume its runs afterwards, one by one."
    )
    example = "resume 12 --follow"

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", nargs="?", help="the run's number")
        parser.add_argument("--at-opening", action="store_true", help="resume once, when the window next opens")
        parser.add_argument(
            "--until",
            type=int,
            metavar="HOUR",
            help="resume now and widen the run's delivery window to this hour, for today only",
        )
        parser.add_argument("--account", help="number or label of an account, instead of a run")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        if bool(options["run"]) == bool(options["account"]):
            raise BadInput("Name either a run or an account.")
        if options["until"] is not None and (options["account"] or options["at_opening"]):
            raise BadInput("--until resumes a run at once: omit --account and --at-opening.")
        if options["account"]:
            return controls.reactivate(find_account(options["account"]), actor, timezone.now())
        run = find_run(options["run"])
        if options["until"] is not None:
            return controls.widen(run, options["until"], actor, timezone.now())
        if not options["at_opening"]:
            return controls.resume(run, actor, timezone.now())
        if options["follow"]:
            raise BadInput("--at-opening schedules the resume for later: omit --follow.")
        return controls.resume_at_opening(run, actor, timezone.now())
