"""Counting without reading a big table: one cap for every number that a list shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.utils.functional import cached_property

from fanout.admin.generics import Paginator

MOST = 10_000


class CappedPaginator(Paginator):
    """Counts up to a cap; pages beyond it would be slow because of their OFFSET."""

    cap = MOST

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        if not isinstance(rows, QuerySet):
            return min(len(rows), self.cap)
        return rows.order_by()[: self.cap].count()


class ShallowPaginator(CappedPaginator):
    """With a lower cap, for lists over all runs, where every counted row costs a page read."""

    cap = 500


def capped_counts(rows: Mapping[Any, QuerySet[Any]], cap: int) -> dict[Any, int]:
    """How many rows each queryset has, up to cap + 1, all in one query."""
    if not rows:
        return {}
    pieces: list[str] = []
    parameters: list[Any] = []
    for queryset in rows.values():
        sql, params = queryset.order_by().values("pk")[: cap + 1].query.sql_with_params()
        pieces.append(f"(SELECT count(*) FROM ({sql}) AS capped)")
        parameters += params
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(pieces)}", parameters)
        return dict(zip(rows, cursor.fetchone()))


def shown(count: int, cap: int) -> str:
    return f"{count:,}" if count <= cap else f"{cap:,}+"
