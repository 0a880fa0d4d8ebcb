"""The controls from the shell, and a run watched to its end."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser

from accounts import access
from fanout.management import lookup
from fanout.management.base import CrierCommand, NotDone
from fanout.models import Run
from fanout.runs import controls

POLL_SECONDS = 0.5


class ControlCommand(CrierCommand):
    """One control on one run; with --follow it stays until the run stops."""

    def arguments(self, parser: CommandParser) -> None:
        self.subject(parser)
        lookup.add_actor(parser)
        parser.add_argument("--follow", action="store_true", help="watch the run until it stops")
        parser.add_argument("--timeout", type=float, metavar="SECONDS", help="with --follow: watch no longer")

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.Answer:
        """Call the control."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        try:
            done = self.control(lookup.actor(options["actor"]), options)
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        if not done.ok:
            raise NotDone(done.text, facts(done.run, began) if done.run else {})
        if options["follow"] and done.run is not None:
            self.say(done.text)
            self.follow(done.run, began, options["timeout"])
        else:
            self.answer({"text": done.text, **(facts(done.run, began) if done.run else {})}, done.text)

    # --- following ----------------------------------------------------------------------------------------

    def follow(self, run: Run, began: float, timeout: float | None) -> None:
        if not self.watch(run, began, timeout):
            raise NotDone(f"Run {run.pk} is still {run.status} after {timeout:g} s.", facts(run, began))
        found = facts(run, began)
        summary = run.error_summary or f"{run.sent} of {run.total} delivered."
        # What pause and cancel ask for is not a success of the run.
        if run.status in self.wanted():
            self.answer(found, f"Run {run.pk}: {run.status}. {summary}")
        else:
            raise NotDone(f"Run {run.pk}: {run.status}. {summary}", found)

    def wanted(self) -> tuple[str, ...]:
        """How a followed run should end."""
        return (Run.Status.SUCCESS,)

    def watch(self, run: Run, began: float, timeout: float | None) -> bool:
        """False: it went on for longer than we may wait."""
        progress = self.progress(run.total, f"run {run.pk}")
        try:
            while step(run, progress):
                if timeout is not None and time.monotonic() - began > timeout:
                    return False
                time.sleep(POLL_SECONDS)
        finally:
            progress.end()
        return True


def step(run: Run, progress: Any) -> bool:
    """One look at the run: whether it goes on."""
    run.refresh_from_db()
    note = f"{run.status}: {run.waiting_why}" if run.waiting_why else run.status
    progress.show(run.total - run.pending - run.sending, note)
    return run.status in Run.LIVE


def facts(run: Run, began: float) -> dict[str, Any]:
    run.refresh_from_db()
    words = ("total", "sent", "failed", "skipped", "pending", "unconfirmed")
    return {
        "run": run.pk,
        "status": run.status,
        **{word: getattr(run, word) for word in words},
        "seconds": round(time.monotonic() - began, 2),
        "error_summary": run.error_summary,
    }
