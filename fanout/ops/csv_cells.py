"""Cells and lines for spreadsheets."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from reminders.imports import CELL_BEGINS

PHONE = re.compile(r"\+[0-9]{3,15}")
#: A spreadsheet takes a cell that starts so for a formula, and names are other people's texts. Which sign ends a cell
#: depends on the reader's language: behind a semicolon a formula may start too.
FORMULA = re.compile(rf"{CELL_BEGINS}('*+[=+\-@])")


def cell(value: Any) -> Any:
    """As an import reads it again (`reminders.imports.unguarded`)."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return _guarded(value) if isinstance(value, str) else value


def exact_cell(value: Any) -> Any:
    """For tables that are read and not imported again: phone numbers as they are, and times to the millisecond."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return _guarded(value) if isinstance(value, str) and not PHONE.fullmatch(value) else value


def _guarded(text: str) -> str:
    return FORMULA.sub(r"\1'\2", text)


class _Line:
    """A file for csv.writer that hands each line straight on."""

    def write(self, line: str) -> str:
        return line


def lines(header: Sequence[str], rows: Iterable[Sequence[Any]], safe: Callable[[Any], Any] = cell) -> Iterator[str]:
    """A table as CSV, line by line: it may have more rows than fit into memory."""
    writer = csv.writer(_Line())
    yield writer.writerow(header)
    for row in rows:
        yield writer.writerow([safe(value) for value in row])
