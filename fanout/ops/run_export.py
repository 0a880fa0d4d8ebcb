"""A run as rows and as a CSV file, one line per target, for the run's page and the shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import OuterRef, Subquery

from fanout.models import Run, RunTarget
from fanout.ops import csv_cells
from fanout.plans.plan import delay_reason, planned_time

COLUMNS = (
    "position",
    "address",
    "name",
    "account",
    "status",
    "parts_sent",
    "attempts",
    "planned_for",
    "slip_reason",
    "claimed_at",
    "settled_at",
    "received_at",
    "read_at",
    "replied_at",
    "latency_ms",
    "provider_id",
    "error_kind",
    "error",
    "message_2",
)
#: what an operator follows up: it did not arrive, or nobody knows
NOT_DELIVERED = (RunTarget.Status.FAILED, RunTarget.Status.SKIPPED, RunTarget.Status.UNCONFIRMED)


def rows(run: Run, only_failures: bool = False) -> Iterator[list[Any]]:
    """The cells of each target, streamed: a run may have more targets than fit into memory."""
    targets = run.targets.select_related("recipient", "account").order_by("position", "pk")
    if only_failures:
        targets = targets.filter(status__in=NOT_DELIVERED)
    # What became of each person's Message 2; empty where there was none.
    answers = RunTarget.objects.filter(run__answers=run, recipient=OuterRef("recipient"))
    targets = targets.annotate(message_2=Subquery(answers.values("status")[:1]))
    for target in targets.iterator(chunk_size=2000):
        related = {
            "name": target.recipient.name,
            "account": target.account.label,
            "planned_for": planned_time(target, run),
            "slip_reason": delay_reason(target, run),
            "received_at": target.delivered_at,
        }
        yield [related.get(column, getattr(target, column, None)) for column in COLUMNS]


def lines(run: Run, only_failures: bool = False) -> Iterator[str]:
    return csv_cells.lines(COLUMNS, rows(run, only_failures), csv_cells.exact_cell)
