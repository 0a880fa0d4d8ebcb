"""`manage.py offload`: send the rest of a run through another account."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts import access
from fanout.management.base import ControlCommand, NotDone, find_account, find_actor, find_run, table
from fanout.models import Offload, Run
from fanout.plans.forecast import forecast_run
from fanout.plans.offloads import FORECASTS, accounts_for, can_offload, offload_forecasts, propose
from fanout.runs import controls, corrections

SHOWN_EVERY = 2.0  # seconds


class Command(ControlCommand):
    help = (
        "Move the pending targets of a run to another account of the same channel; "
        "a paused run goes on with it, now or when its window opens. Without an account it changes nothing and shows "
        "when each account would be done."
    )
    example = 'offload 12 "Events line"'

    def subject(self, parser: CommandParser) -> None:
        super().subject(parser)
        parser.add_argument("account", nargs="?", help="the other account's number or label")
        parser.add_argument("--keep-paused", action="store_true", help="leave a paused run paused")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["account"] is None:
            self.show_choices(find_run(options["run"]), find_actor(options["actor"]), timezone.now())
        else:
            super().handle(*args, **options)

    def show_choices(self, run: Run, actor: Any, now: datetime) -> None:
        """Show the run's own forecast, those of the most idle accounts, and the one that would help."""
        try:
            access.require(actor, run)
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        if not can_offload(run):
            raise NotDone(f"Run {run.pk} is {run.status} and has {run.pending} pending: there is nothing to offload.")
        present = forecast_run(run, now)
        expected = offload_forecasts([run], accounts_for([run], actor)[:FORECASTS], actor, now)
        proposal = propose(run, present, actor, now)
        data = {
            "run": run.pk,
            "forecast": present.sentence,
            "proposal": proposal.sentence if proposal else None,
            "accounts": [{"account": str(account), "forecast": after.sentence} for account, after in expected],
        }
        rows = table(("account", "forecast"), [("as it is", present), *expected])
        command = f'manage.py offload {run.pk} "{proposal.account}"' if proposal else ""
        self.answer(data, *rows, *([f"{proposal.sentence}:", f"  {command}"] if proposal else []))

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        run, account = find_run(options["run"]), find_account(options["account"])
        answer = corrections.offload(run, account, actor, timezone.now(), and_resume=not options["keep_paused"])
        answer = self.to_the_end(run, answer)
        if not answer.ok or answer.run is None or answer.run.status not in Run.LIVE:
            return answer
        return replace(answer, text=f"{answer.text} {forecast_run(answer.run, timezone.now()).sentence}")

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
