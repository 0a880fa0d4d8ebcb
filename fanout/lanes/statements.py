"""Changes that the engine and the operators' controls share, written once as steps: each step is a statement, and
gets the rows that the statement returned.

The engine carries them out on its own connection, the controls on Django's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db import connection

Row = dict[str, Any]
Statement = tuple[str, dict[str, Any]]  # SQL with %(name)s, and its parameters
WriteAll = Callable[[Sequence[Statement]], Awaitable[list[list[Row]]]]
Result = TypeVar("Result")
Steps = Generator[Statement, list[Row], Result]


def carry_out(steps: Steps[Result]) -> Result:
    """On Django's connection, in the caller's transaction."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as end:
        result: Result = end.value
        return result


async def carry_out_with(write: WriteAll, changes: Sequence[Steps[Result]]) -> list[Result]:
    """Several changes with the engine's `write`, in the transaction that it belongs to: the first statements of all of
    them go out together, then the second ones."""
    results: dict[int, Result] = {}
    statements: dict[int, Statement] = {}

    def advance(n: int, rows: list[Row] | None) -> None:
        try:
            statements[n] = next(changes[n]) if rows is None else changes[n].send(rows)
        except StopIteration as end:
            results[n] = end.value

    for n in range(len(changes)):
        advance(n, None)
    while statements:
        asked = dict(statements)
        statements.clear()
        for n, rows in zip(asked, await write(list(asked.values())), strict=True):
            advance(n, rows)
    return [results[n] for n in range(len(changes))]


def execute(statement: str, parameters: dict[str, Any] | list[Any]) -> list[Row]:
    """One statement on Django's connection; its rows by column name, as the engine's connection gives them."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


# --- timelines --------------------------------------------------------------------------

ADD_EVENT = """
INSERT INTO fanout_event (run_id, account_id, actor_id, at, verb, detail)
VALUES (%(run)s, %(account)s, %(actor)s, %(at)s, %(verb)s, %(detail)s)
"""


def add_event(
    at: datetime,
    verb: str,
    detail: str = "",
    *,
    run: int | None = None,
    account: int | None = None,
    actor: int | None = None,
) -> Statement:
    """A line in the timeline of a run or an account. No actor means: Crier itself."""
    return ADD_EVENT, {"run": run, "account": account, "actor": actor, "at": at, "verb": verb, "detail": detail}
