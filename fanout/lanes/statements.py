"""Changes that the engine and the operators' controls share, written once as steps: each step is a statement, and
gets the rows that the statement returned.

The engine carries them out on its own connection, the controls on Django's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, TypeVar

from django.db import connection

Row = dict[str, Any]
Statement = tuple[str, dict[str, Any]]  # SQL with %(name)s, and its parameters
Write = Callable[[str, dict[str, Any]], Awaitable[list[Row]]]
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


async def carry_out_with(write: Write, steps: Steps[Result]) -> Result:
    """With the engine's `write`, in the transaction that it belongs to."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await write(*statement))
    except StopIteration as end:
        result: Result = end.value
        return result


def execute(statement: str, parameters: dict[str, Any]) -> list[Row]:
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
