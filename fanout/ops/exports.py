"""Runs, recipients and suppressions as CSV files, for the admin and the shell."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, connections
from django.db.models import Func, Model, OuterRef, QuerySet, Subquery, TextField
from django.http import HttpRequest, StreamingHttpResponse

from config.web import downloads
from fanout.models import Run, RunTarget
from fanout.plans.plan import delay_reason, planned_time
from reminders import suppressions
from reminders.imports import CELL_BEGINS, COLUMNS, FORMULA_SIGNS
from reminders.models import Recipient, Suppression

AnyModel = TypeVar("AnyModel", bound=Model)

# --- runs -------------------------------------------------------------------------------------------------


RUN_COLUMNS = (
    "position",
    "address",
    "name",
    "account",
    "status",
    "parts_sent",
    "attempts",
    "planned_for",
    "delay_reason",
    "claimed_at",
    "settled_at",
    "received_at",
    "read_at",
    "replied_at",
    "opted_out_at",
    "latency_ms",
    "provider_id",
    "error_kind",
    "error",
    "message_2",
)
#: what an operator follows up: it did not arrive, or may not have
NOT_DELIVERED = (RunTarget.Status.FAILED, RunTarget.Status.SKIPPED, RunTarget.Status.UNCONFIRMED)


def run_rows(run: Run, only_failures: bool = False, chosen: QuerySet[RunTarget] | None = None) -> Iterator[list[Any]]:
    """Yield the cells of each target, or of those chosen among them, streamed: a run may have more targets than fit
    into memory."""
    rows = run.targets.all() if chosen is None else chosen.filter(run=run)
    targets = rows.select_related("recipient", "account").order_by("position", "pk")
    if only_failures:
        targets = targets.filter(status__in=NOT_DELIVERED)
    # What became of each person's Message 2; empty where there was none.
    answers = RunTarget.objects.filter(run__answers=run, recipient=OuterRef("recipient"))
    targets = targets.annotate(message_2=Subquery(answers.values("status")[:1]))
    for target in streamed(targets):
        related = {
            "name": target.recipient.name,
            "account": target.account.label,
            "planned_for": planned_time(target, run),
            "delay_reason": delay_reason(target, run),
            "received_at": target.delivered_at,
        }
        yield [related.get(column, getattr(target, column, None)) for column in RUN_COLUMNS]


def run_lines(run: Run, only_failures: bool = False, chosen: QuerySet[RunTarget] | None = None) -> Iterator[str]:
    return csv_lines(RUN_COLUMNS, run_rows(run, only_failures, chosen), exact_cell)


# --- recipients -------------------------------------------------------------------------------------------


def recipient_columns(rows: QuerySet[Recipient]) -> list[str]:
    """Return the standard columns, then every own field that one of these recipients has."""
    key = Func("fields", function="jsonb_object_keys", output_field=TextField())
    fields = rows.order_by().annotate(key=key).values_list("key", flat=True).distinct()
    return [*COLUMNS, *sorted(fields)]


def recipient_rows(rows: QuerySet[Recipient], names: list[str]) -> Iterator[list[str]]:
    """Yield the cells of each recipient, streamed."""
    for recipient in streamed(rows):
        own = {
            "address": recipient.address,
            "name": recipient.name,
            "kind": recipient.kind,
            "tags": ";".join(recipient.tags),
        }
        yield [own.get(name, recipient.fields.get(name, "")) for name in names]


def recipient_lines(rows: QuerySet[Recipient]) -> Iterator[str]:
    """Yield CSV lines with a header, as the import reads them; safe to open in a spreadsheet."""
    names = recipient_columns(rows)
    return csv_lines(names, recipient_rows(rows, names))


# --- suppressions -----------------------------------------------------------------------------------------


def suppression_rows() -> Iterator[tuple[Any, ...]]:
    """Yield the cells of each suppression, oldest first, including expired ones."""
    rows = Suppression.objects.order_by("pk").select_related("added_by")
    for row in streamed(rows):
        added_by = row.added_by.username if row.added_by else None
        yield (*(getattr(row, name) for name in suppressions.COLUMNS[:-1]), added_by)


def suppression_lines() -> Iterator[str]:
    return csv_lines(suppressions.COLUMNS, suppression_rows())


# --- rows, cells and lines --------------------------------------------------------------------------------------


ROWS_AT_ONCE = 500


def streamed(rows: QuerySet[AnyModel]) -> Iterator[AnyModel]:
    """Yield the rows in their order, a few at a time: there may be more than fit into memory. Between two queries no
    cursor is open, so that a download that has stopped holds no database connection."""
    ids = array("q", rows.values_list("pk", flat=True).iterator(chunk_size=10_000))
    for start in range(0, len(ids), ROWS_AT_ONCE):
        chosen = ids[start : start + ROWS_AT_ONCE]
        found = {row.pk: row for row in rows.order_by().filter(pk__in=chosen)}
        yield from (found[pk] for pk in chosen if pk in found)


PHONE = re.compile(r"\+[0-9]{3,15}")
#: A spreadsheet takes a cell that starts so for a formula, and names are other people's texts. Which sign ends a cell
#: depends on the reader's language: behind a semicolon a formula may start too.
FORMULA = re.compile(rf"{CELL_BEGINS}('*+[{FORMULA_SIGNS}])")


def cell(value: Any) -> Any:
    """Return the value as an import reads it again (`reminders.imports.unguarded`)."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return _guarded(value) if isinstance(value, str) else value


def exact_cell(value: Any) -> Any:
    """Return the value for tables that are not imported again: phone numbers unguarded, times to the millisecond."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return _guarded(value) if isinstance(value, str) and not PHONE.fullmatch(value) else value


def _guarded(text: str) -> str:
    return FORMULA.sub(r"\1'\2", text)


class _LineFile:
    """A file for csv.writer that hands each line straight on."""

    def write(self, line: str) -> str:
        return line


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[Any]], safe: Callable[[Any], Any] = cell) -> Iterator[str]:
    """Yield a table as CSV, line by line: it may have more rows than fit into memory."""
    writer = csv.writer(_LineFile())
    yield writer.writerow(header)
    for row in rows:
        yield writer.writerow([safe(value) for value in row])


# --- files that are written while they are downloaded -----------------------------------------------------


LINES_AT_ONCE = 500


def csv_download(request: HttpRequest, lines: Iterator[str], filename: str) -> StreamingHttpResponse:
    """Stream a table as an attachment. An ASGI server would read a plain iterator to its end before sending."""
    content = _in_chunks(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(content, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


async def _in_chunks(lines: Iterator[str]) -> AsyncIterator[str]:
    """Read lines on separate threads, one chunk at a time: a reader that stops holds no thread and no connection."""
    while True:
        thread = await downloads.next_free()
        try:
            chunk = await thread.run(_read_lines, lines)
        finally:
            downloads.give_back(thread)
        if not chunk:
            return
        yield chunk


def _read_lines(lines: Iterator[str]) -> str:
    try:
        return "".join(islice(lines, LINES_AT_ONCE))
    except DatabaseError:
        connections.close_all()
        raise
