"""`manage.py calendar`: what fires when through which account, and how much each account has free."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import CrierCommand, find_account, find_owner, in_range, table
from fanout.management.options import parse_timezone
from fanout.plans.agenda import MOST_DAYS, AccountDay, Agenda, Entry, agenda, gap_in_words


class Command(CrierCommand):
    help = "Show the calendar of a person: firings, resumptions, and the capacity of each account, day by day."
    example = "calendar --days 7 --account 'Events line'"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=int, default=7, help=f"from today on, at most {MOST_DAYS} [7]")
        parser.add_argument("--account", help="number or label: only this account")
        parser.add_argument("--owner", metavar="USERNAME", help="whose calendar (default: the only administrator)")
        parser.add_argument("--tz", help="by the clock of this timezone (default: the server's)")

    def handle(self, *args: Any, **options: Any) -> None:
        now, user = timezone.now(), find_owner(options["owner"])
        zone = parse_timezone(options["tz"] or timezone.get_default_timezone_name())
        only = find_account(options["account"]).pk if options["account"] else None
        today = now.astimezone(ZoneInfo(zone)).date()
        days = [today + timedelta(days=n) for n in range(in_range("--days", options["days"], 1, MOST_DAYS))]
        found = agenda(user, days, zone, now, only)
        rows = [_row(entry, found, zone) for day in days for entry in found.on(day)]
        lines = table(("day", "begins", "account", "what", "targets", "says"), [list(row.values()) for row in rows])
        capacity = [_capacity(found.cells[account.pk, day], zone) for account in found.accounts for day in days]
        labels = {account.pk: account.label for account in found.accounts}
        free = table(("account", "day", "capacity"), [(labels[c["account"]], c["day"], c["words"]) for c in capacity])
        self.answer({"timezone": zone, "entries": rows, "capacity": capacity}, *lines, "", *free)


def _row(entry: Entry, found: Agenda, zone: str) -> dict[str, Any]:
    labels = {account.pk: account.label for account in found.accounts}
    return {
        "day": entry.day.isoformat(),
        "begins": entry.begins.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes"),
        "account": labels[entry.account],
        "title": entry.title,
        "targets": entry.targets,
        "words": f"conflict: {entry.words}" if entry.conflict else entry.words,
    }


def _capacity(cell: AccountDay, zone: str) -> dict[str, Any]:
    return {
        "account": cell.account,
        "day": cell.day.isoformat(),
        "sent": cell.used,
        "planned": cell.planned,
        "free": cell.free,
        "free_times": [gap_in_words(begin, end, zone) for begin, end in cell.gaps],
        "words": cell.words(zone),
    }
