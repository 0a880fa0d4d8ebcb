"""`manage.py why`: show the limit that holds each account and run back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from fanout.management.base import BadInput, CrierCommand, find_account, find_run, table
from fanout.models import Run, RunTarget
from fanout.plans.plan import delay_reason, planned_time
from fanout.runs.why import why_account, why_run
from reminders.models import Reminder
from reminders.moments import moment

MOST = 200
NO_PLAN = {"planned": None, "planned_for": None, "delay_reason": ""}


class Command(CrierCommand):
    help = (
        "Show which limit holds each account and unfinished run back, and when the next message is sent; and reminders "
        "that could not be fired."
    )
    example = "why"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", help="only this account and its runs")
        parser.add_argument("--run", help="only this run")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["account"] and options["run"]:
            raise BadInput("Name either an account or a run.")
        now = timezone.now()
        accounts, runs, reminders = chosen(options)
        lines = [account_line(account, now) for account in accounts] + [run_line(run, now) for run in runs]
        lines += [reminder_line(reminder) for reminder in reminders]
        names = ("what", "name", "why", "planned for", "delayed because of")
        rows = [(line["what"], line["label"], line["why"], line["planned"], line["delay_reason"]) for line in lines]
        self.answer({"why": lines}, *table(names, rows))


def chosen(options: dict[str, Any]) -> tuple[list[Account], list[Run], list[Reminder]]:
    if options["run"]:
        return [], [find_run(options["run"])], []
    runs = Run.objects.filter(status__in=(*Run.LIVE, Run.Status.PAUSED), archived=False)
    reminders = Reminder.objects.filter(archived=False).exclude(firing_problem="")
    if options["account"]:
        account = find_account(options["account"])
        mine = reminders.filter(Q(account=account) | Q(further_senders__account=account)).distinct()
        return [account], list(runs.filter(lanes__contains=[account.pk])[:MOST]), list(mine[:MOST])
    return list(Account.objects.all()[:MOST]), list(runs[:MOST]), list(reminders[:MOST])


def account_line(account: Account, now: datetime) -> dict[str, Any]:
    why = why_account(account, now)
    return _line("account", account.pk, account.label, why.text, why.next_send_at) | NO_PLAN


def reminder_line(reminder: Reminder) -> dict[str, Any]:
    return _line("reminder", reminder.pk, reminder.title, reminder.firing_problem, None) | NO_PLAN


def run_line(run: Run, now: datetime) -> dict[str, Any]:
    """Return the run's line, with the planned time of its next target and why it is delayed."""
    why = why_run(run, now)
    target = run.targets.filter(status=RunTarget.Status.PENDING).order_by("position", "id").first()
    at = planned_time(target, run) if target else None
    plan = {
        "planned": moment(at, run.timezone, now) if at else None,
        "planned_for": at and at.isoformat(),
        "delay_reason": delay_reason(target, run) if target else "",
    }
    return _line("run", run.pk, run.title, why.text, why.next_send_at) | plan


def _line(kind: str, pk: int, label: str, text: str, at: datetime | None) -> dict[str, Any]:
    return {"what": f"{kind} {pk}", "label": label, "why": text, "next_send_at": at and at.isoformat()}
