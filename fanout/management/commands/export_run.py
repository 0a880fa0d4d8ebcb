"""`manage.py export_run`: a run as CSV, a line per target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from fanout.management.base import CrierCommand, find_run
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
            count = self.write_csv(Path(options["out"]), exports.run_lines(run, only_failures))
            self.answer({"run": run.pk, "targets": count, "file": options["out"]}, f"{count} targets exported.")
        elif self.as_json:
            rows = exports.run_rows(run, only_failures)
            self.answer({"run": run.pk, "targets": [dict(zip(exports.RUN_COLUMNS, row)) for row in rows]})
        else:
            self.print_csv(exports.run_lines(run, only_failures))
