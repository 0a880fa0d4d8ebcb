"""Recipients as a CSV file, as the import reads it, for the admin and the shell."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Func, QuerySet, TextField

from fanout.ops import csv_cells
from reminders.imports import COLUMNS
from reminders.models import Recipient


def columns(rows: QuerySet[Recipient]) -> list[str]:
    """The parts of a recipient, then every own field that one of them has."""
    key = Func("fields", function="jsonb_object_keys", output_field=TextField())
    fields = rows.order_by().annotate(key=key).values_list("key", flat=True).distinct()
    return [*COLUMNS, *sorted(fields)]


def cells(rows: QuerySet[Recipient], names: list[str]) -> Iterator[list[str]]:
    """The cells of each recipient, streamed."""
    for recipient in rows.iterator(chunk_size=2000):
        own = {
            "address": recipient.address,
            "name": recipient.name,
            "kind": recipient.kind,
            "tags": ";".join(recipient.tags),
        }
        yield [own.get(name, recipient.fields.get(name, "")) for name in names]


def lines(rows: QuerySet[Recipient]) -> Iterator[str]:
    """With a header; safe to open in a spreadsheet."""
    names = columns(rows)
    return csv_cells.lines(names, cells(rows, names))
