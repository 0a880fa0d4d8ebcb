"""`manage.py runs`: list runs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Q, QuerySet
from django.utils import timezone

from fanout.management.base import CrierCommand, find_account, in_range, table
from fanout.models import Run
from fanout.runs.controls import by_itself
from fanout.runs.message_2 import listed
from fanout.runs.progress import NO_PROGRESS, RunProgress, progress_of
from fanout.runs.why import short_why
from reminders.moments import moment

MOST = 100_000
MOST_FORECAST = 200  # more runs are listed without their expected end, which takes time to forecast
COUNTS = ("total", "sent", "failed", "skipped", "pending", "sending", "unconfirmed")
HEADERS = ("run", "status", "sent", "left", "rate", "done", "scheduled", "account", "title", "why")


class Command(CrierCommand):
    help = "List runs, newest first, with what each one waits for."
    example = "runs --live"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--live",
            action="store_true",
            help="only runs that send by themselves: queued, running, waiting, being prepared, or paused until a known "
            "time; archived ones and Message 2 too",
        )
        parser.add_argument("--status", choices=Run.Status.values, action="append", help="may be repeated")
        parser.add_argument("--account", help="only runs of this account")
        parser.add_argument("--archived", action="store_true", help="include archived runs")
        parser.add_argument("--message-2", action="store_true", help="the runs of Message 2 instead of all others")
        parser.add_argument("--limit", type=int, default=20)

    def handle(self, *args: Any, **options: Any) -> None:
        in_range("--limit", options["limit"], 1, MOST)
        runs = list(chosen(options)[: options["limit"]])
        going = progress_of(runs[:MOST_FORECAST], timezone.now())
        stands = [(run, going.get(run.pk, NO_PROGRESS)) for run in runs]
        self.answer({"runs": [facts(*pair) for pair in stands]}, *table(HEADERS, (row(*pair) for pair in stands)))


def chosen(options: dict[str, Any]) -> QuerySet[Run]:
    runs = Run.objects.select_related("account")
    chosen = Q(status__in=options["status"] or ())
    if options["live"]:
        chosen |= by_itself()
    if options["live"] or options["status"]:
        runs = runs.filter(chosen)
    if options["account"]:
        runs = runs.filter(account=find_account(options["account"]))
    # --live lists all runs that send by themselves: a script that pauses them must not miss any.
    if not options["archived"] and not options["live"]:
        runs = runs.filter(archived=False)
    if options["message_2"]:
        return runs.filter(answers__isnull=False)
    return runs if options["live"] else listed(runs)


def facts(run: Run, going: RunProgress) -> dict[str, Any]:
    moments = ("scheduled_for", "started_at", "finished_at", "waiting_until", "resume_at", "window_closes_at")
    return {
        "run": run.pk,
        "title": run.title,
        "reminder": run.reminder_id,
        "answers": run.answers_id,
        "account": run.account.label,
        "status": run.status,
        "pause_reason": run.pause_reason,
        "waiting_why": short_why(run, going.behind),
        "error_summary": run.error_summary,
        **{word: getattr(run, word) for word in COUNTS},
        "per_minute": going.per_minute,
        "expected_end": going.ends_at.isoformat() if going.ends_at else None,
        **{name: at.isoformat() if (at := getattr(run, name)) else None for name in moments},
    }


def row(run: Run, going: RunProgress) -> tuple[Any, ...]:
    status = f"{run.status} ({run.get_pause_reason_display()})" if run.pause_reason else run.status
    when = moment(run.scheduled_for, run.timezone)
    sent, left = f"{run.sent}/{run.total}", run.pending + run.sending
    done = moment(going.ends_at, run.timezone, timezone.now()) if going.ends_at else "–"
    why = short_why(run, going.behind)
    if run.status == Run.Status.PAUSED and run.resume_at:
        why = f"resumes {moment(run.resume_at, run.timezone)}"
    return run.pk, status, sent, left, going.rate, done, when, run.account.label, run.title, why
