"""The database layer that every package of fanout shares, on Django's connection or on the engine's.

A transition that engine and controls share is written once, as a generator of statements: each `yield` gives a
statement and gets the rows that it returned. The engine carries them out on its own connection, the controls on
Django's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

import psycopg
from django.db import IntegrityError, connection
from psycopg.conninfo import make_conninfo

Row = dict[str, Any]
Statement = tuple[str, dict[str, Any]]  # SQL with %(name)s, and its parameters
WriteAll = Callable[[Sequence[Statement]], Awaitable[list[list[Row]]]]
Returned = TypeVar("Returned")
Steps = Generator[Statement, list[Row], Returned]
Question = TypeVar("Question")
Answer = TypeVar("Answer")
AskAll = Callable[[list[Question]], Awaitable[list[Answer]]]

AT_ONCE = 100  # questions in one statement: the first to ask go on while the others wait


def carry_out(steps: Steps[Returned]) -> Returned:
    """Execute the steps on Django's connection, in the caller's transaction."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as end:
        result: Returned = end.value
        return result


async def carry_out_with(write: WriteAll, changes: Sequence[Steps[Returned]]) -> list[Returned]:
    """Execute several changes with the engine's `write`, in the transaction that it belongs to: the first statements of
    all of them go out together, then the second ones."""
    results: dict[int, Returned] = {}
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
    """Execute one statement on Django's connection. Returns its rows by column name, like the engine's connection."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


def raise_unless(error: IntegrityError, *constraints: str) -> None:
    """Raise the error again unless one of these constraints caused it: only a conflict that was expected is caught."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.diag.constraint_name not in constraints:
        raise error


def lock_in_order(table: str, key: str, keys: str) -> str:
    """Return the statement that locks these rows in the order of their keys. Every transaction that locks several rows
    of a table uses this order, so that two of them never wait for each other in a circle."""
    return f"SELECT 1 FROM {table} WHERE {key} = ANY({keys}) ORDER BY {key} FOR NO KEY UPDATE"


#: Before runs change, and before their targets do: runs are locked first, by their ids. Their counters are exact from
#: then on (fanout/migrations/version_1_0/counters.py): the end and the pause of a run rely on it.
LOCK_RUNS = "SELECT fanout_lock_runs(%(runs)s::bigint[])"


def conninfo(settings: dict[str, Any]) -> str:
    """Return Django's database settings as libpq's connection string, for a session besides Django's."""
    options = {k: v for k, v in settings.get("OPTIONS", {}).items() if isinstance(v, (str, int)) and k != "pool"}
    named = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    chosen = {word: settings[key] for word, key in named.items() if settings.get(key)}
    return make_conninfo("", **options, **chosen)


class Gathering(Generic[Question, Answer]):
    """Asks the questions of many tasks together. Belongs to one event loop.

    Questions that arrive while an answer is under way go out together with the next statement, so that a thousand lanes
    or webhooks cost a few round trips and a single one does not wait. `ask_all` answers questions in their order.
    """

    def __init__(self, ask_all: AskAll[Question, Answer], at_once: int = AT_ONCE, *, retry_alone: bool = True) -> None:
        self.ask_all = ask_all
        self.at_once = at_once
        self.retry_alone = retry_alone  # after an error, so that one question does not fail the others
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def __call__(self, question: Question) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_waiting())
        return await answer

    async def _ask_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[: self.at_once], self._waiting[self.at_once :]
            await self._ask(group)
        self._asking = None

    async def _ask(self, group: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        """Answer a group. A question whose task gave up waiting is asked all the same."""
        try:
            answers = await self.ask_all([question for question, _ in group])
            answered = list(zip(group, answers, strict=True))
        except Exception as error:
            if self.retry_alone and len(group) > 1:
                for one in group:
                    await self._ask([one])
                return
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), answer in answered:
                if not future.done():
                    future.set_result(answer)
