"""Base of all commands: JSON for scripts, exact exit codes, progress, and no traceback.

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
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import psycopg
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DataError
from django.db.models import Model, QuerySet
from django.utils import timezone

from accounts import access
from accounts.inputs import as_id
from accounts.models import Account
from config.problems import first_line, sentence
from fanout.models import Run, RunTarget
from fanout.models.trail import at_the_shell
from fanout.runs import controls
from fanout.runs.why import short_why, why_run
from reminders.models import Reminder, Segment

INTERRUPTED = 130  # as shells have it for Ctrl-C
# Errors of bad values that no check has caught: too large for the database or the calendar, or not text.
UNUSABLE = (DataError, psycopg.DataError, OverflowError, csv.Error, UnicodeDecodeError)


class BadInput(CommandError):
    """The input is wrong; nothing was changed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, returncode=2)


class NotDone(CommandError):
    """The input was fine, but it did not happen. Scripts get `data` besides the sentence."""

    def __init__(self, sentence: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence, returncode=1)
        self.data = dict(data or {})


class PlainCommand(BaseCommand):
    """A command whose failures are a sentence on stderr and an exit code."""

    #: Django's checks are about the code and load every page for it, longer than most commands take: `up`, `doctor` and
    #: the suite run them.
    requires_system_checks: list[str] | tuple[str, ...] | Literal["__all__"] = ()

    #: one line that works, shown by --help
    example: ClassVar[str] = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if self.example:
            kwargs.setdefault("epilog", f"example:\n  manage.py {self.example}")
        return super().create_parser(prog_name, subcommand, **kwargs)

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

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object, for scripts")
        self.arguments(parser)

    def arguments(self, parser: CommandParser) -> None:
        """Add the command's own arguments."""

    def execute(self, *args: Any, **options: Any) -> Any:
        self.as_json: bool = options.get("json", False)
        token = at_the_shell.set(True)
        try:
            return super().execute(*args, **options)
        finally:
            at_the_shell.reset(token)

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
        """Print a line for people; scripts do not get it."""
        if not self.as_json:
            super().say(line)

    def progress(self, total: int, what: str) -> Progress:
        # On stderr: what is piped onwards stays clean.
        return Progress(self.stderr, total, what)

    def print_csv(self, lines: Iterable[str]) -> None:
        """Print lines that have their own line ends."""
        out = sys.stdout if self._called_from_command_line else self.stdout
        for line in lines:
            out.write(line)

    def write_csv(self, path: Path, lines: Iterable[str]) -> int:
        """Write the lines to a file. Returns how many there are besides the header."""
        count = -1
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                for line in lines:
                    file.write(line)
                    count += 1
        except OSError as problem:
            raise NotDone(f"{path} cannot be written: {problem.strerror}.") from None
        return count

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
        """Return whether the count has not changed for a while."""
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
    """Return lines with aligned columns; the last column is not padded."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headers))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- accounts, reminders, runs and users by what was typed ------------------------------------------------


AnyModel = TypeVar("AnyModel", bound=Model)
SAME_NAMED_SHOWN = 5


def find_account(word: str) -> Account:
    return _find_by_name(Account.objects.all(), "label", word, "account")


def find_reminder(word: str) -> Reminder:
    return _find_by_name(Reminder.objects.select_related("account"), "title", word, "reminder")


def find_segment(word: str) -> Segment:
    return _find_by_name(Segment.objects.select_related("owner", "not_replied_to"), "name", word, "segment")


def find_team(word: str) -> Group:
    return _find_by_name(Group.objects.all(), "name", word, "team")


def find_run(word: str) -> Run:
    """Return the run with this number: runs have no unique name."""
    number = as_id(word)
    if number is None:
        raise BadInput(f"A run is named by its number, not {word!r}: `manage.py runs` lists them.")
    row = Run.objects.select_related("account").filter(pk=number).first()
    if row is None:
        raise BadInput(f"There is no run {word}.")
    return row


def find_user(name: str) -> Any:
    row = get_user_model().objects.filter(username=name).first()
    if row is None:
        raise BadInput(f"There is no user {name!r}.")
    return row


def find_owner(name: str | None) -> Any:
    """Return the named user, or the only administrator."""
    if name:
        return find_user(name)
    admins = list(get_user_model().objects.filter(is_superuser=True, is_active=True)[:2])
    if len(admins) != 1:
        raise BadInput("There is no single administrator: name the owner with --owner USERNAME.")
    return admins[0]


def add_actor_option(parser: CommandParser) -> None:
    parser.add_argument("--as", dest="actor", metavar="USERNAME", help="act with the rights of this operator")


def find_actor(name: str | None) -> Any:
    """Return the operator named with --as. None stands for the shell, which may do everything."""
    return find_user(name) if name else None


def _find_by_name(rows: QuerySet[AnyModel], name_field: str, word: str, what: str) -> AnyModel:
    number = as_id(word)
    if number is not None and (row := rows.filter(pk=number).first()):
        return row
    named = list(rows.filter(**{f"{name_field}__iexact": word})[: SAME_NAMED_SHOWN + 1])
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(str(thing.pk) for thing in named[:SAME_NAMED_SHOWN])
        raise BadInput(f"Several {what}s are called {word!r}: name one by its number ({ids}).")
    raise BadInput(f"There is no {what} {word!r}.")


# --- commands that control a run --------------------------------------------------------------------------


POLL_SECONDS = 0.5


class ControlCommand(CrierCommand):
    """One control on one run; with --follow it stays until the run stops."""

    def arguments(self, parser: CommandParser) -> None:
        self.subject(parser)
        add_actor_option(parser)
        parser.add_argument("--follow", action="store_true", help="show progress until the run stops")
        parser.add_argument(
            "--timeout", type=float, metavar="SECONDS", help="with --follow: stop watching after this time"
        )

    def subject(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number")

    def control(self, actor: Any, options: dict[str, Any]) -> controls.ControlResult:
        """Call the control."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        try:
            answer = self.control(find_actor(options["actor"]), options)
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        if not answer.ok:
            raise NotDone(answer.text, run_as_data(answer.run, began) if answer.run else {})
        if options["follow"] and answer.run is not None:
            self.say(answer.text)
            self.follow(answer.run, began, options["timeout"])
        else:
            self.answer({"text": answer.text, **(run_as_data(answer.run, began) if answer.run else {})}, answer.text)

    # --- following ----------------------------------------------------------------------------------------

    def follow(self, run: Run, began: float, timeout: float | None) -> None:
        if not self.watch(run, began, timeout):
            reason = held_up(run).rstrip(".")
            raise NotDone(f"Run {run.pk} is still {run.status} after {timeout:g} s: {reason}.", run_as_data(run, began))
        data = run_as_data(run, began)
        summary = run.error_summary or f"Sent to {run.sent} of {run.total}."
        # For pause and cancel the wanted end is another status than success.
        if run.status in self.wanted():
            self.answer(data, f"Run {run.pk}: {run.status}. {summary}")
        else:
            raise NotDone(f"Run {run.pk}: {run.status}. {summary}", data)

    def wanted(self) -> tuple[str, ...]:
        """Return the statuses in which a followed run should end."""
        return (Run.Status.SUCCESS,)

    def watch(self, run: Run, began: float, timeout: float | None) -> bool:
        """Show progress until the run stops; False when the timeout came first."""
        progress = self.progress(run.total, f"run {run.pk}")
        try:
            while show_step(run, progress):
                if timeout is not None and time.monotonic() - began > timeout:
                    return False
                time.sleep(POLL_SECONDS)
        finally:
            progress.end()
        return True


def show_step(run: Run, progress: Progress) -> bool:
    """Read the run and show its progress. Returns whether it goes on.

    The total of a run that is being prepared still grows.
    """
    run.refresh_from_db()
    progress.total = run.total
    done = run.total - run.pending - run.sending
    progress.show(done, f"{run.status}: {held_up(run)}" if progress.stands_at(done) else run.status)
    return run.status in (*Run.LIVE, Run.Status.PREPARING)


def held_up(run: Run) -> str:
    """Return why nothing moves: the line of `manage.py why`, with the provider's last answer."""
    why = why_run(run, timezone.now()).text
    cause = short_why(run) or _last_error(run)
    return f"{why} ({cause})" if cause and cause not in why else why


def _last_error(run: Run) -> str:
    pending = run.targets.filter(status=RunTarget.Status.PENDING).exclude(error="")
    return pending.order_by("position", "id").values_list("error", flat=True).first() or ""


def run_as_data(run: Run, began: float) -> dict[str, Any]:
    run.refresh_from_db()
    words = ("total", "sent", "failed", "skipped", "pending", "unconfirmed")
    return {
        "run": run.pk,
        "status": run.status,
        **{word: getattr(run, word) for word in words},
        "seconds": round(time.monotonic() - began, 2),
        "error_summary": run.error_summary,
    }
