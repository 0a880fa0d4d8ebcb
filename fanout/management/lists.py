"""Lists of addresses from a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from fanout.management.base import BadInput
from reminders import erasure, imports, tables

PROBLEMS_SHOWN = 10


def read(path: str, defaults: imports.Defaults = imports.GUESS_ALL) -> imports.RecipientList:
    """Of a text, or of the first sheet of an Excel file, whose columns are guessed as the admin's import does."""
    if not path.lower().endswith(".xlsx"):
        return erasure.refuse(imports.read(text_of(path), defaults))
    try:
        table = tables.read(Path(path).read_bytes())
    except (OSError, tables.UnusableFile) as problem:
        raise BadInput(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    return erasure.refuse(imports.read_table(table, imports.guess_layout(table), defaults))


def text_of(path: str) -> str:
    """The text of a file, or of standard input for -."""
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
