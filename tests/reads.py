"""How many rows PostgreSQL handles for what a piece of code asks: a count, where a time would depend on the machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

COUNTED = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")


class Reads:
    """Of the SELECTs, each with the rows of all steps of its plan, also of those that were looked at in vain."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    @property
    def most(self) -> tuple[int, str]:
        return max(self.rows)

    def explain(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith("SELECT"):
            with connection.connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
                self.rows.append((handled_by(cursor), sql))
        return execute(sql, params, many, context)


def handled_by(explained: Any) -> int:
    """The rows of the plan that a cursor has just explained."""
    (plan,) = explained.fetchone()
    return handled((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])


def handled(plan: dict[str, Any]) -> int:
    below = sum(handled(step) for step in plan.get("Plans", ()))
    return below + int(plan["Actual Loops"] * sum(plan.get(name, 0) for name in COUNTED))


@contextmanager
def counting_reads() -> Iterator[Reads]:
    reads = Reads()
    with connection.execute_wrapper(reads.explain):
        yield reads
