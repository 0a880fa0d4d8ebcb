"""`manage.py export_run`: a run as CSV, a line per target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from fanout.management.base import CrierCommand, NotDone, find_run
from fanout.models import Run
from fanout.ops import exports


class Command(CrierCommand):
    help = "Export a run as CSV, one line per target, or with --json as one object."
    example = "export_run 12 --out run-12.csv"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")
        parser.add_argument("--out", metavar="FILE", help="default: standard output")
        parser.add_argument("--failures", action="store_true", help="only failed, skipped and unconfirmed targets")

    def handle(self, *args: Any, **options: Any) -> None:
        run, only_failures = find_run(options["run"]), options["failures"]
        if options["out"]:
            count = self.to_file(run, Path(options["out"]), only_failures)
            self.answer({"run": run.pk, "targets": count, "file": options["out"]}, f"{count} targets exported.")
        elif self.as_json:
            rows = exports.run_rows(run, only_failures)
            self.answer({"run": run.pk, "targets": [dict(zip(exports.RUN_COLUMNS, row)) for row in rows]})
        else:
            write(run, sys.stdout if self._called_from_command_line else self.stdout, only_failures)

    def to_file(self, run: Run, path: Path, only_failures: bool) -> int:
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                return write(run, file, only_failures)
        except OSError as problem:
            raise NotDone(f"{path} cannot be written: {problem.strerror}.") from None


def write(run: Run, file: Any, only_failures: bool) -> int:
    count = -1  # the header
    for line in exports.run_lines(run, only_failures):
        file.write(line)
        count += 1
    return count
