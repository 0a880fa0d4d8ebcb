"""The list of suppressions as rows and as a CSV file, for the admin and the shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fanout.ops import csv_cells
from reminders.models import Suppression
from reminders.suppressions import COLUMNS

FIELDS = (*COLUMNS[:-1], "added_by__username")


def rows() -> Iterator[tuple[Any, ...]]:
    """The cells of each suppression, oldest first, expired ones too."""
    yield from Suppression.objects.order_by("pk").values_list(*FIELDS).iterator(chunk_size=2000)


def lines() -> Iterator[str]:
    return csv_cells.lines(COLUMNS, rows())
