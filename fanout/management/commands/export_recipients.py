"""`manage.py export_recipients`: an operator's recipients as CSV, as import_recipients reads it."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Func, QuerySet, TextField

from fanout.management import lookup
from fanout.management.base import CrierCommand, NotDone
from fanout.ops.csv_cells import cell
from reminders.erasure import present
from reminders.imports import COLUMNS
from reminders.models import Recipient


class Command(CrierCommand):
    help = "Export an operator's recipients as CSV, with a column for each of their own fields."
    example = "export_recipients --owner mei --tag choir --out choir.csv"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--owner", metavar="USERNAME", help="default: the only administrator")
        parser.add_argument("--tag", help="only those with this tag")
        parser.add_argument("--out", metavar="FILE", help="default: standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = present(Recipient.objects.filter(owner=lookup.owner(options["owner"]))).order_by("pk")
        rows = rows.filter(tags__contains=[options["tag"]]) if options["tag"] else rows
        if options["out"]:
            count = self.to_file(rows, Path(options["out"]))
            self.answer({"recipients": count, "file": options["out"]}, f"{count} recipients exported.")
        elif self.as_json:
            names = columns(rows)
            self.answer({"recipients": [dict(zip(names, line)) for line in lines(rows, names)]})
        else:
            write(rows, sys.stdout if self._called_from_command_line else self.stdout)

    def to_file(self, rows: QuerySet[Recipient], path: Path) -> int:
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                return write(rows, file)
        except OSError as problem:
            raise NotDone(f"{path} cannot be written: {problem.strerror}.") from None


def columns(rows: QuerySet[Recipient]) -> list[str]:
    key = Func("fields", function="jsonb_object_keys", output_field=TextField())
    fields = rows.order_by().annotate(key=key).values_list("key", flat=True).distinct()
    return [*COLUMNS, *sorted(fields)]


def lines(rows: QuerySet[Recipient], names: list[str]) -> Iterator[list[str]]:
    """The cells of each recipient, streamed."""
    for recipient in rows.iterator(chunk_size=2000):
        known = {
            "address": recipient.address,
            "name": recipient.name,
            "kind": recipient.kind,
            "tags": ";".join(recipient.tags),
        }
        yield [known.get(name, recipient.fields.get(name, "")) for name in names]


def write(rows: QuerySet[Recipient], file: Any) -> int:
    writer = csv.writer(file, lineterminator="\n")
    names, count = columns(rows), 0
    writer.writerow(names)
    for count, line in enumerate(lines(rows, names), start=1):  # noqa: B007
        writer.writerow([cell(value) for value in line])
    return count
