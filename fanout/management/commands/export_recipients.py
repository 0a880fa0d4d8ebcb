"""`manage.py export_recipients`: an operator's recipients as CSV, as import_recipients reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from fanout.management.base import CrierCommand, find_owner
from fanout.ops import exports
from reminders.erasure import present
from reminders.models import Recipient


class Command(CrierCommand):
    help = "Export an operator's recipients as CSV, with a column for each of their own fields."
    example = "export_recipients --owner mei --tag choir --out choir.csv"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--owner", metavar="USERNAME", help="default: the only administrator")
        parser.add_argument("--tag", help="only those with this tag")
        parser.add_argument("--out", metavar="FILE", help="default: standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = present(Recipient.objects.filter(owner=find_owner(options["owner"]))).order_by("pk")
        rows = rows.filter(tags__contains=[options["tag"]]) if options["tag"] else rows
        if options["out"]:
            count = self.write_csv(Path(options["out"]), exports.recipient_lines(rows))
            self.answer({"recipients": count, "file": options["out"]}, f"{count} recipients exported.")
        elif self.as_json:
            names = exports.recipient_columns(rows)
            self.answer({"recipients": [dict(zip(names, line)) for line in exports.recipient_rows(rows, names)]})
        else:
            self.print_csv(exports.recipient_lines(rows))
