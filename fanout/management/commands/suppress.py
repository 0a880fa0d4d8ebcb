"""`manage.py suppress add|remove|import|export`: addresses that get no more messages."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.addresses import AddressError, guess_kind, normalise
from fanout.management.base import BadInput, CrierCommand, NotDone, in_range
from fanout.management.options import PROBLEMS_SHOWN, read_text
from fanout.ops import exports, list_changes
from reminders import imports, suppressions
from reminders.models import Suppression

LONGEST_DAYS = 36_500


class Command(CrierCommand):
    help = "Suppress addresses: they get no more messages, from any account."
    example = "suppress add ann@example.com --detail 'asked by phone' --days 90"

    def arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|remove|import|export")
        add = actions.add_parser("add", help="suppress addresses")
        add.add_argument("addresses", nargs="+", metavar="ADDRESS")
        add.add_argument("--reason", choices=Suppression.Reason.values, default=Suppression.Reason.MANUAL.value)
        add.add_argument("--detail", default="", help="why, in your own words")
        add.add_argument("--days", type=int, help="for how long [for ever]")
        remove = actions.add_parser("remove", help="write to them again")
        remove.add_argument("addresses", nargs="+", metavar="ADDRESS")
        load = actions.add_parser("import", help="an address per line, or CSV as `export` writes it")
        load.add_argument("file", help="path, or - for standard input")
        load.add_argument("--skip-invalid", action="store_true", help="skip unusable lines and import the rest")
        save = actions.add_parser("export", help="the whole list as CSV")
        save.add_argument("--out", metavar="FILE", help="default: standard output")
        for action in actions.choices.values():
            # Also after the subcommand. SUPPRESS: its absence there must not undo a --json before it.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        actions = {"add": self.add, "remove": self.remove, "import": self.load, "export": self.save}
        actions[options["action"]](options)

    def add(self, options: dict[str, Any]) -> None:
        now, source = timezone.now(), Suppression.Source.OPERATOR.value
        until, detail = end_of(options["days"], now), options["detail"].replace("\x00", "")[:500]
        addresses = normal(options["addresses"])
        news = [suppressions.NewSuppression(one, options["reason"], source, detail, now, until) for one in addresses]
        added = list_changes.suppress(news, None, now)
        self.answer({"added": added, "known": len(news) - added}, added_line(added, len(news)))

    def remove(self, options: dict[str, Any]) -> None:
        addresses = normal(options["addresses"])
        lifted = list_changes.lift(addresses, None, timezone.now())
        if not lifted:
            raise NotDone("None of these addresses is suppressed.")
        self.answer({"removed": lifted}, f"{len(lifted)} of {len(addresses)} addresses may be written to again.")

    def load(self, options: dict[str, Any]) -> None:
        now = timezone.now()
        listed = suppressions.read_list(read_text(options["file"]), None, now)
        if listed.problems and not options["skip_invalid"]:
            shown = "; ".join(imports.first_problems(listed.problems, PROBLEMS_SHOWN))
            raise BadInput(f"{len(listed.problems)} unusable lines ({shown}); nothing was changed.")
        added = list_changes.import_suppressions(listed.entries, None, now)
        data = {"read": len(listed.entries), "added": added, "invalid": listed.problems}
        self.answer(data, added_line(added, len(listed.entries)), *listed.problems)

    def save(self, options: dict[str, Any]) -> None:
        if options["out"]:
            count = self.write_csv(Path(options["out"]), exports.suppression_lines())
            self.answer({"suppressions": count, "file": options["out"]}, f"{count} suppressions exported.")
        elif self.as_json:
            rows = [dict(zip(suppressions.COLUMNS, row)) for row in exports.suppression_rows()]
            self.answer({"suppressions": rows})
        else:
            self.print_csv(exports.suppression_lines())


def normal(words: list[str]) -> list[str]:
    try:
        return [normalise(guess_kind(word), word) for word in words]
    except AddressError as problem:
        raise BadInput(str(problem)) from None


def end_of(days: int | None, now: datetime) -> datetime | None:
    """Return when a suppression of so many days expires; None if never."""
    return None if days is None else now + timedelta(days=in_range("--days", days, 1, LONGEST_DAYS))


def added_line(added: int, total: int) -> str:
    return f"{added} of {total} addresses are suppressed now; {total - added} were already."
