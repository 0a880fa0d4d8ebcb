"""`manage.py offload`: send the rest of a run through another account."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import ControlCommand, find_account, find_run
from fanout.models import Offload, Run
from fanout.runs import controls, corrections

SHOWN_EVERY = 2.0  # seconds


class Command(ControlCommand):
    help = (
        "Move the pending targets of a run to another account of the same channel; "
        "a paused run goes on with it, now or when its window opens."
    )
    example = 'offload 12 "Events line"'

    def subject(self, parser: CommandParser) -> None:
        super().subject(parser)
        parser.add_argument("account", help="the other account's number or label")
        parser.add_argument("--keep-paused", action="store_true", help="leave a paused run paused")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        run, account = find_run(options["run"]), find_account(options["account"])
        answer = corrections.offload(run, account, actor, timezone.now(), and_resume=not options["keep_paused"])
        return self.to_the_end(run, answer)

    def to_the_end(self, run: Run, answer: controls.ControlResult) -> controls.ControlResult:
        """Carry a large offload to its end, and show how far it is. Interrupted, it is carried on by a task."""
        progress = None
        under_way = Offload.objects.filter(run=run).select_related("run__account", "account", "actor")
        while (offload := under_way.first()) is not None:
            progress = progress or self.progress(offload.total, "targets moved")
            progress.show(offload.moved)
            answer = corrections.carry_on(offload, timezone.now(), SHOWN_EVERY)
        if progress is not None:
            progress.end()
        return answer
