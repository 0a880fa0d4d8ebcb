"""`manage.py why`: what holds each account and run back right now?"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.models import Account
from fanout.management import lookup
from fanout.management.base import BadInput, CrierCommand, table
from fanout.models import Run
from fanout.runs.why import why_account, why_run

MOST = 200


class Command(CrierCommand):
    help = "Show which limit holds each account and unfinished run back, and when the next message is sent."
    example = "why"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", help="only this account and its runs")
        parser.add_argument("--run", help="only this run")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["account"] and options["run"]:
            raise BadInput("Name either an account or a run.")
        now = timezone.now()
        accounts, runs = chosen(options)
        lines = [account_line(account, now) for account in accounts] + [run_line(run, now) for run in runs]
        rows = [(line["what"], line["label"], line["why"]) for line in lines]
        self.answer({"why": lines}, *table(("what", "name", "why"), rows))


def chosen(options: dict[str, Any]) -> tuple[list[Account], list[Run]]:
    if options["run"]:
        return [], [lookup.run(options["run"])]
    runs = Run.objects.filter(status__in=(*Run.LIVE, Run.Status.PAUSED), archived=False)
    if options["account"]:
        account = lookup.account(options["account"])
        return [account], list(runs.filter(lanes__contains=[account.pk])[:MOST])
    return list(Account.objects.all()[:MOST]), list(runs[:MOST])


def account_line(account: Account, now: datetime) -> dict[str, Any]:
    why = why_account(account, now)
    return _line("account", account.pk, account.label, why.text, why.next_send_at)


def run_line(run: Run, now: datetime) -> dict[str, Any]:
    why = why_run(run, now)
    return _line("run", run.pk, run.title, why.text, why.next_send_at)


def _line(kind: str, pk: int, label: str, text: str, at: datetime | None) -> dict[str, Any]:
    return {"what": f"{kind} {pk}", "label": label, "why": text, "next_send_at": at and at.isoformat()}
