"""`manage.py export_run`: a run as CSV, a line per target."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import OuterRef, Subquery

from fanout.management import lookup
from fanout.management.base import CrierCommand, NotDone
from fanout.models import Run, RunTarget
from fanout.runs.plan import planned_time, slip_reason

COLUMNS = (
    "position",
    "address",
    "name",
    "account",
    "status",
    "parts_sent",
    "attempts",
    "planned_for",
    "slip_reason",
    "claimed_at",
    "settled_at",
    "delivered_at",
    "read_at",
    "replied_at",
    "latency_ms",
    "provider_id",
    "error_kind",
    "error",
    "message_2",
)
# A spreadsheet takes a cell that starts so for a formula, and the name of a group is a stranger's text. Which sign ends
# a cell depends on the reader's language: behind a semicolon one may start too.
PHONE = re.compile(r"\+[0-9]{3,15}")
FORMULA = re.compile(r"(^|[;,|\t\r\n])(\s*+)([=+\-@])")


class Command(CrierCommand):
    help = "Export a run as CSV, one line per target, or with --json as one object."
    example = "export_run 12 --out run-12.csv"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")
        parser.add_argument("--out", metavar="FILE", help="default: standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        run = lookup.run(options["run"])
        if options["out"]:
            count = self.to_file(run, Path(options["out"]))
            self.answer({"run": run.pk, "targets": count, "file": options["out"]}, f"{count} targets exported.")
        elif self.as_json:
            self.answer({"run": run.pk, "targets": [dict(zip(COLUMNS, row)) for row in rows(run)]})
        else:
            write(run, sys.stdout if self._called_from_command_line else self.stdout)

    def to_file(self, run: Run, path: Path) -> int:
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                return write(run, file)
        except OSError as problem:
            raise NotDone(f"{path} cannot be written: {problem.strerror}.") from None


def write(run: Run, file: Any) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in rows(run):
        writer.writerow([_cell(value) for value in row])
        count += 1
    return count


def rows(run: Run) -> Iterator[list[Any]]:
    """The cells of each target, streamed: a run may have more targets than fit into memory."""
    targets = run.targets.select_related("recipient", "account").order_by("position", "pk")
    # What became of each person's Message 2; empty where there was none.
    answers = RunTarget.objects.filter(run__answers=run, recipient=OuterRef("recipient"))
    targets = targets.annotate(message_2=Subquery(answers.values("status")[:1]))
    for target in targets.iterator(chunk_size=2000):
        related = {
            "name": target.recipient.name,
            "account": target.account.label,
            "planned_for": planned_time(target, run),
            "slip_reason": slip_reason(target, run),
        }
        yield [related.get(column, getattr(target, column, None)) for column in COLUMNS]


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, str) and not PHONE.fullmatch(value):
        return FORMULA.sub(r"\1\2'\3", value)
    return value
