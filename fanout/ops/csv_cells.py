"""Cells and lines for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

#: a spreadsheet takes a cell that starts so for a formula, and names are other people's texts
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", ";")


def cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


class _Line:
    """A file for csv.writer that hands each line straight on."""

    def write(self, line: str) -> str:
        return line


def lines(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A table as CSV, line by line: it may have more rows than fit into memory."""
    writer = csv.writer(_Line())
    yield writer.writerow(header)
    for row in rows:
        yield writer.writerow([cell(value) for value in row])
