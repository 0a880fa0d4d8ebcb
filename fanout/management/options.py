"""Values of options that several commands take: lists of addresses, windows, timezones and times."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path

from accounts.inputs import valid_timezone
from fanout.management.base import BadInput
from reminders import erasure, imports, tables
from reminders.excel import UnusableFile
from reminders.window import window_error

YEARS = range(2000, 2201)


def parse_window(raw: str) -> tuple[int, int]:
    """Return the opening and the closing hour of `6-18`."""
    match = re.fullmatch(r"(\d{1,2})-(\d{1,2})", raw)
    if match is None:
        raise BadInput(f"A window is written like 6-18, not {raw!r}.")
    start, end = int(match[1]), int(match[2])
    if problem := window_error(start, end):
        raise BadInput(problem)
    return start, end


def parse_timezone(raw: str) -> str:
    if not valid_timezone(raw):
        raise BadInput(f"{raw!r} is not a timezone; write it like Asia/Kuala_Lumpur.")
    return raw


def parse_date_and_time(raw: str, example: str) -> datetime:
    """Return an ISO date and time, with or without a timezone."""
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        raise BadInput(f"--at takes {example}, not {raw!r}.") from None
    if moment.year not in YEARS:
        raise BadInput(f"--at takes a date from {YEARS.start} to {YEARS.stop - 1}, not one in {moment.year}.")
    return moment


# --- lists of addresses -----------------------------------------------------------------------------------


PROBLEMS_SHOWN = 10


def read_recipients(path: str, defaults: imports.Defaults = imports.GUESS_ALL) -> imports.RecipientList:
    """Return the list in a text, or in the first sheet of an Excel file, with columns guessed as in the admin."""
    if not path.lower().endswith(".xlsx"):
        return erasure.refuse(imports.read(read_text(path), defaults))
    try:
        table = tables.read(Path(path).read_bytes())
    except (OSError, UnusableFile) as problem:
        raise BadInput(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    return erasure.refuse(imports.read_table(table, imports.guess_layout(table), defaults))


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input for -."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{path} cannot be read: {reason}.") from None


def require_usable(listed: imports.RecipientList, path: str) -> None:
    """Raise BadInput unless every line can be used."""
    if listed.problems:
        shown = "; ".join(imports.first_problems(listed.problems, PROBLEMS_SHOWN))
        raise BadInput(f"{path} has {len(listed.problems)} unusable lines ({shown}); nothing was changed.")
    if not listed.entries:
        raise BadInput(f"{path} has no addresses in it.")
