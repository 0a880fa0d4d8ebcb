"""`manage.py pause`: stop a run, all runs, or an account with all its runs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import BadInput, ControlCommand, find_account, find_run
from fanout.models import Run
from fanout.runs import controls


class Command(ControlCommand):
    help = (
        "Pause a run: messages in flight are completed, no others are sent, and a planned resume is taken back. "
        "--all pauses every run that would send by itself, --account an account instead."
    )
    example = "pause 12"

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", nargs="?", help="the run's number")
        parser.add_argument("--all", action="store_true", help="all runs that `runs --live` lists, instead of one")
        parser.add_argument("--account", help="number or label of an account, instead of a run")
        parser.add_argument("--reason", default="paused by an operator", help="with --account: the reason to show")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        if bool(options["run"]) + bool(options["account"]) + options["all"] != 1:
            raise BadInput("Name either a run or an account, or choose --all.")
        if options["all"]:
            return controls.pause_all(actor, timezone.now())
        if options["account"]:
            account = find_account(options["account"])
            return controls.pause_account(account, actor, timezone.now(), options["reason"])
        return controls.pause(find_run(options["run"]), actor, timezone.now())

    def wanted(self) -> tuple[str, ...]:
        return (Run.Status.PAUSED,)
