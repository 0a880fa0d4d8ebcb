"""The base of the commands that control a run, and following it to its end."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts import access
from fanout.management import lookup
from fanout.management.base import CrierCommand, NotDone, Progress
from fanout.models import Run, RunTarget
from fanout.runs import controls
from fanout.runs.why import reason, why_run

POLL_SECONDS = 0.5


class ControlCommand(CrierCommand):
    """One control on one run; with --follow it stays until the run stops."""

    def arguments(self, parser: CommandParser) -> None:
        self.subject(parser)
        lookup.add_actor(parser)
        parser.add_argument("--follow", action="store_true", help="show progress until the run stops")
        parser.add_argument(
            "--timeout", type=float, metavar="SECONDS", help="with --follow: stop watching after this time"
        )

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        """Call the control."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        try:
            answer = self.control(lookup.actor(options["actor"]), options)
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        if not answer.ok:
            raise NotDone(answer.text, as_data(answer.run, began) if answer.run else {})
        if options["follow"] and answer.run is not None:
            self.say(answer.text)
            self.follow(answer.run, began, options["timeout"])
        else:
            self.answer({"text": answer.text, **(as_data(answer.run, began) if answer.run else {})}, answer.text)

    # --- following ----------------------------------------------------------------------------------------

    def follow(self, run: Run, began: float, timeout: float | None) -> None:
        if not self.watch(run, began, timeout):
            reason = held_up(run).rstrip(".")
            raise NotDone(f"Run {run.pk} is still {run.status} after {timeout:g} s: {reason}.", as_data(run, began))
        data = as_data(run, began)
        summary = run.error_summary or f"{run.sent} of {run.total} delivered."
        # For pause and cancel the wanted end is another status than success.
        if run.status in self.wanted():
            self.answer(data, f"Run {run.pk}: {run.status}. {summary}")
        else:
            raise NotDone(f"Run {run.pk}: {run.status}. {summary}", data)

    def wanted(self) -> tuple[str, ...]:
        """The statuses in which a followed run should end."""
        return (Run.Status.SUCCESS,)

    def watch(self, run: Run, began: float, timeout: float | None) -> bool:
        """Show progress until the run stops; False when the timeout came first."""
        progress = self.progress(run.total, f"run {run.pk}")
        try:
            while step(run, progress):
                if timeout is not None and time.monotonic() - began > timeout:
                    return False
                time.sleep(POLL_SECONDS)
        finally:
            progress.end()
        return True


def step(run: Run, progress: Progress) -> bool:
    """Read the run and show its progress; returns whether it goes on. One that is being prepared gets its targets
    meanwhile."""
    run.refresh_from_db()
    progress.total = run.total
    done = run.total - run.pending - run.sending
    progress.show(done, f"{run.status}: {held_up(run)}" if progress.stands_at(done) else run.status)
    return run.status in (*Run.LIVE, Run.Status.PREPARING)


def held_up(run: Run) -> str:
    """Why nothing moves: the line of `manage.py why`, with what the provider last answered."""
    why = why_run(run, timezone.now()).text
    cause = reason(run) or _last_error(run)
    return f"{why} ({cause})" if cause and cause not in why else why


def _last_error(run: Run) -> str:
    pending = run.targets.filter(status=RunTarget.Status.PENDING).exclude(error="")
    return pending.order_by("position", "id").values_list("error", flat=True).first() or ""


def as_data(run: Run, began: float) -> dict[str, Any]:
    run.refresh_from_db()
    words = ("total", "sent", "failed", "skipped", "pending", "unconfirmed")
    return {
        "run": run.pk,
        "status": run.status,
        **{word: getattr(run, word) for word in words},
        "seconds": round(time.monotonic() - began, 2),
        "error_summary": run.error_summary,
    }
