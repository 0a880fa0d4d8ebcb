"""Cells and lines for spreadsheets."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

#: a spreadsheet takes a cell that starts so for a formula, and names are other people's texts
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", ";")

PHONE = re.compile(r"\+[0-9]{3,15}")
#: which sign ends a cell depends on the reader's language: behind a semicolon a formula may start too
ANYWHERE = re.compile(r"(^|[;,|\t\r\n])(\s*+)([=+\-@])")


def cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def strict_cell(value: Any) -> Any:
    """For tables that are read and not imported again: no formula in the middle of a cell either."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, str) and not PHONE.fullmatch(value):
        return ANYWHERE.sub(r"\1\2'\3", value)
    return value


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
