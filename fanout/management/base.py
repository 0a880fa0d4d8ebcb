"""What all of Crier's commands share: JSON for scripts, exact exit codes, progress, and no traceback.

0  done
1  the thing asked for did not happen
2  bad input: nothing was changed
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import psycopg
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DataError

from config.problems import first_line, sentence

INTERRUPTED = 130  # as shells have it for Ctrl-C
# What a bad value raises where no check has caught it: too large for the database or the calendar, or not text.
UNUSABLE = (DataError, psycopg.DataError, OverflowError, csv.Error, UnicodeDecodeError)


class BadInput(CommandError):
    """The input is wrong; nothing was changed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, returncode=2)


class NotDone(CommandError):
    """The input was fine, but it did not happen. `data` is what scripts get besides the sentence."""

    def __init__(self, sentence: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence, returncode=1)
        self.data = dict(data or {})


class PlainCommand(BaseCommand):
    """A command whose failures are a sentence on stderr and an exit code."""

    # Django sets it when the command line calls, and not when call_command() does.
    _called_from_command_line: bool

    def execute(self, *args: Any, **options: Any) -> Any:
        try:
            return super().execute(*args, **options)
        except ValidationError as problem:
            self._end(BadInput(" ".join(problem.messages)), options)
        except CommandError as problem:
            self._end(problem, options)
        except UNUSABLE as problem:
            self._end(BadInput(f"Unusable value: {first_line(problem)}."), options)
        except KeyboardInterrupt:
            if not self._called_from_command_line:
                raise
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader (`| head`) is gone; Python must not write to it at exit, either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as problem:
            if not (words := sentence(problem)):
                raise
            self._end(NotDone(words), options)

    def _end(self, problem: CommandError, options: Mapping[str, Any]) -> None:
        if not self._called_from_command_line or options.get("traceback"):
            raise problem
        self.complain(problem)
        sys.exit(problem.returncode)

    def complain(self, problem: CommandError) -> None:
        self.stderr.write(str(problem))

    def say(self, line: str) -> None:
        """Print a line on the way to the result."""
        self.stdout.write(line)
        self.stdout.flush()


class CrierCommand(PlainCommand):
    """A command for people and for scripts, which get one JSON object."""

    #: one line that works, shown by --help
    example: ClassVar[str] = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if self.example:
            kwargs.setdefault("epilog", f"example:\n  manage.py {self.example}")
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object, for scripts")
        self.arguments(parser)

    def arguments(self, parser: CommandParser) -> None:
        """Add the command's own arguments."""

    def execute(self, *args: Any, **options: Any) -> Any:
        self.as_json: bool = options.get("json", False)
        return super().execute(*args, **options)

    def complain(self, problem: CommandError) -> None:
        if self.as_json:
            self._print({"error": str(problem), **getattr(problem, "data", {})})
        else:
            super().complain(problem)

    # --- output -------------------------------------------------------------------------------------------

    def answer(self, data: Mapping[str, Any], *lines: str) -> None:
        """Print the result: one object for scripts, lines for people."""
        if self.as_json:
            self._print(data)
        else:
            for line in lines:
                self.stdout.write(line)

    def say(self, line: str) -> None:
        """Scripts do not get it."""
        if not self.as_json:
            super().say(line)

    def progress(self, total: int, what: str) -> Progress:
        # On stderr: what is piped onwards stays clean.
        return Progress(self.stderr, total, what)

    def _print(self, data: Mapping[str, Any]) -> None:
        self.stdout.write(json.dumps(data, default=str, ensure_ascii=False))


def in_range(option: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise BadInput(f"{option} takes a whole number from {low} to {high}.")
    return value


class Progress:
    """A progress bar on a terminal, otherwise a line every few seconds."""

    WIDTH = 30
    LINE_SECONDS = 5.0
    STILL_SECONDS = 4.0

    def __init__(self, out: Any, total: int, what: str) -> None:
        self.out = out
        self.total = total
        self.what = what
        self.bar = bool(getattr(out, "isatty", lambda: False)())
        self.said_at = self.moved_at = time.monotonic()
        self.done = 0

    def stands_at(self, done: int) -> bool:
        """Whether it has not moved for a while."""
        if done != self.done:
            self.done, self.moved_at = done, time.monotonic()
        return time.monotonic() - self.moved_at >= self.STILL_SECONDS

    def show(self, done: int, note: str = "") -> None:
        if self.bar:
            self._draw(done, note)
        elif time.monotonic() - self.said_at >= self.LINE_SECONDS:
            self.said_at = time.monotonic()
            self.out.write(f"{self.what}: {done} of {self.total} {note}".rstrip())

    def end(self) -> None:
        if self.bar:
            self.out.write("", ending="\n")

    def _draw(self, done: int, note: str) -> None:
        full = self.WIDTH * done // self.total if self.total else self.WIDTH
        bar = "█" * full + "·" * (self.WIDTH - full)
        # \x1b[K clears what a longer line left behind.
        self.out.write(f"\r{self.what} {bar} {done}/{self.total} {note}\x1b[K", ending="")
        self.out.flush()


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines with aligned columns; the last column is not padded."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headers))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
