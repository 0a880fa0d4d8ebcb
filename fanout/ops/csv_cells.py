"""Cells for spreadsheets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

#: a spreadsheet takes a cell that starts so for a formula, and names are other people's texts
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", ";")


def cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
