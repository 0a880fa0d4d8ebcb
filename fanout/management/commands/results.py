"""`manage.py results`: what was sent and what came back, per day, account or reminder, and two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.models import Account
from fanout.lanes import results
from fanout.lanes.reputation import Trend, trends
from fanout.lanes.results import NAMES, Result
from fanout.management.base import CrierCommand, find_account, find_reminder, find_run, in_range, table
from reminders.models import Reminder

MOST_WEEKS = 520
GROUPS = ("day", "account", "reminder")


class Command(CrierCommand):
    help = "Show what was sent, failed, received, read, replied to and opted out of, in the last weeks or of two runs."
    example = "results --weeks 4 --by account"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--weeks", type=int, default=4, help="how many weeks, until today [4]")
        parser.add_argument("--by", choices=GROUPS, default="day", help="[day]")
        parser.add_argument("--account", help="only what this account sent")
        parser.add_argument("--reminder", help="only runs of this reminder")
        parser.add_argument(
            "--reputation", action="store_true", help="replies and opt-outs of accounts, this week and the one before"
        )
        parser.add_argument("--runs", nargs=2, metavar=("A", "B"), help="these two runs side by side instead")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reputation"]:
            self.show_reputation(options["account"])
            return
        if options["runs"]:
            runs = [find_run(word) for word in options["runs"]]
            counted = results.of_runs(run.pk for run in runs)
            self.show("run", {run.pk: results.whole(counted[run.pk]) for run in runs}, {r.pk: r.title for r in runs})
            return
        wanted = results.span(
            in_range("--weeks", options["weeks"], 1, MOST_WEEKS),
            timezone.localdate(),
            account=find_account(options["account"]).pk if options["account"] else None,
            reminder=find_reminder(options["reminder"]).pk if options["reminder"] else None,
        )
        if options["by"] == "account":
            by_account = results.by_account(wanted)
            self.show("account", by_account, _names(Account, by_account, "label"))
        elif options["by"] == "reminder":
            by_reminder = results.by_reminder(wanted)
            self.show("reminder", by_reminder, _names(Reminder, by_reminder, "title"))
        else:
            by_day = {day.isoformat(): one for day, one in results.by_day(wanted).items()}
            self.show("day", by_day, {})

    def show_reputation(self, account: str | None) -> None:
        """Show accounts that sent something, those with a warning first."""
        chosen = [find_account(account)] if account else list(Account.objects.filter(archived=False).order_by("label"))
        found = trends(chosen, timezone.now())
        rows = [(one, found[one.pk]) for one in chosen if found[one.pk].week.sent or found[one.pk].before.sent]
        rows.sort(key=lambda row: not row[1].warning)
        self.answer(
            {"accounts": [_reputation(*row) for row in rows]},
            *table(("account", "sent", "replies", "opt-outs", ""), (_line(*row) for row in rows)),
        )

    def show(self, what: str, counted: Mapping[Any, Result], names: Mapping[Any, str]) -> None:
        named = {key: {"name": names[key]} if key in names else {} for key in counted}
        self.answer(
            {"results": [{what: key, **named[key], **one.as_dict()} for key, one in counted.items()]},
            *table((what, *NAMES), ((names.get(key, key), *one.as_dict().values()) for key, one in counted.items())),
        )


def _names(model: Any, ids: Mapping[int, Result], name: str) -> dict[int, str]:
    return dict(model.objects.filter(pk__in=ids).values_list("pk", name))


def _reputation(account: Account, trend: Trend) -> dict[str, Any]:
    rates = {
        f"{name}_per_1000{when}": round(week.per_thousand(name), 1)
        for name in ("replied", "opted_out")
        for when, week in (("", trend.week), ("_before", trend.before))
    }
    sent = {"sent": trend.week.sent, "sent_before": trend.before.sent}
    return {"account": account.pk, "name": account.label, **sent, **rates, "warning": trend.warning}


def _line(account: Account, trend: Trend) -> tuple[Any, ...]:
    return account.label, trend.week.sent, trend.line("replied"), trend.line("opted_out"), trend.warning
