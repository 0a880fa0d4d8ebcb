"""`manage.py export_recipients`: an operator's recipients as CSV, as import_recipients reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import QuerySet

from fanout.management.base import CrierCommand, NotDone, find_owner
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
            count = self.to_file(rows, Path(options["out"]))
            self.answer({"recipients": count, "file": options["out"]}, f"{count} recipients exported.")
        elif self.as_json:
            names = exports.recipient_columns(rows)
            self.answer({"recipients": [dict(zip(names, line)) for line in exports.recipient_rows(rows, names)]})
        else:
            _write(rows, sys.stdout if self._called_from_command_line else self.stdout)

    def to_file(self, rows: QuerySet[Recipient], path: Path) -> int:
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                return _write(rows, file)
        except OSError as problem:
            raise NotDone(f"{path} cannot be written: {problem.strerror}.") from None


def _write(rows: QuerySet[Recipient], file: Any) -> int:
    count = 0  # of the lines after the header
    for count, line in enumerate(exports.recipient_lines(rows)):  # noqa: B007
        file.write(line)
    return count
