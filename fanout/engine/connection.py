"""The ledger's connections to PostgreSQL: psycopg, not Django's ORM, which uses threads."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Protocol

import psycopg
from django.conf import settings
from psycopg.rows import dict_row

from fanout.database import Statement
from fanout.engine.commit import HOT, Call

CONNECT_LIMIT = 5  # seconds

Row = dict[str, Any]


class ProxyRefused(Exception):
    """A pooling proxy is between us and PostgreSQL, so session locks would not be ours."""


def may_work_later(error: BaseException) -> bool:
    """Return whether the database refused because of its own state, such as a full disk, a lock, a time limit or
    read-only transactions. Only data that breaks a rule is refused for good."""
    return isinstance(error, psycopg.Error) and not isinstance(error, psycopg.DataError | psycopg.IntegrityError)


class Link(Protocol):
    """One session with PostgreSQL."""

    @property
    def closed(self) -> bool: ...

    async def query(self, statement: str, parameters: Any = None) -> list[Row]: ...

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Execute prepared statements in one round trip and one transaction: all or nothing."""
        ...

    async def script(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Execute statements in one round trip, one after the other."""
        ...

    async def close(self) -> None: ...


class AsyncLink:
    """A session on asyncio, for drivers."""

    def __init__(self, connection: psycopg.AsyncConnection[Row]) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, info: str, threshold: int | None = 5) -> AsyncLink:
        """Open a session. Without a threshold psycopg prepares nothing by itself, as a link that claims needs: psycopg
        would drop all prepared statements, ours too, after a ROLLBACK."""
        connection = await psycopg.AsyncConnection.connect(
            info,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=CONNECT_LIMIT,
            prepare_threshold=threshold,
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            # Keepalives do not help while something sent is not acknowledged.
            tcp_user_timeout=15_000,
        )
        link = cls(connection)
        try:
            await refuse_proxy(link, connection.info.backend_pid)
        except BaseException:
            await connection.close()
            raise
        return link

    @property
    def closed(self) -> bool:
        return self.connection.closed

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        try:
            cursor = await self.connection.execute(statement, parameters)
        except psycopg.errors.FeatureNotSupported:
            # An upgrade of the database added a column to a statement that psycopg has prepared; PostgreSQL has refused
            # it.
            cursor = await self.connection.execute(statement, parameters, prepare=False)
        return await cursor.fetchall() if cursor.description else []

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        cursor: psycopg.AsyncClientCursor[Row] = psycopg.AsyncClientCursor(self.connection)
        await cursor.execute(*as_one_text(calls))
        return [await cursor.fetchall() if cursor.description else [] async for _ in cursor.results()]

    async def script(self, statements: Sequence[Statement]) -> list[list[Row]]:
        cursor: psycopg.AsyncClientCursor[Row] = psycopg.AsyncClientCursor(self.connection)
        await cursor.execute(";".join(cursor.mogrify(*statement) for statement in statements))
        return [await cursor.fetchall() if cursor.description else [] async for _ in cursor.results()]

    async def close(self) -> None:
        await self.connection.close()


class BlockingLink:
    """A session on a blocking connection, for the virtual clock, where nothing else could happen meanwhile anyway."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self.connection = connection

    @classmethod
    def open(cls, info: str) -> BlockingLink:
        """Open a session without statements that psycopg prepares by itself: see `AsyncLink.open`."""
        return cls(psycopg.connect(info, autocommit=True, row_factory=dict_row, prepare_threshold=None))

    @property
    def closed(self) -> bool:
        return self.connection.closed

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        cursor = self.connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        cursor: psycopg.ClientCursor[Row] = psycopg.ClientCursor(self.connection)
        cursor.execute(*as_one_text(calls))
        return [cursor.fetchall() if cursor.description else [] for _ in cursor.results()]

    async def script(self, statements: Sequence[Statement]) -> list[list[Row]]:
        cursor: psycopg.ClientCursor[Row] = psycopg.ClientCursor(self.connection)
        cursor.execute(";".join(cursor.mogrify(*statement) for statement in statements))
        return [cursor.fetchall() if cursor.description else [] for _ in cursor.results()]

    async def close(self) -> None:
        self.connection.close()


# Look-ups and claims go by key. Stale statistics once made the planner scan the in-flight index on every commit
# (4,009 sends/s fell to 975).
BY_KEY = (
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
    "SET plan_cache_mode = force_generic_plan",
)
SESSION = (
    *BY_KEY,
    "SET enable_bitmapscan = off",
    "SET idle_in_transaction_session_timeout = '20s'",
    # A locked row must not stop every lane: entries that need it wait, the rest goes on. While a statement waits here,
    # all lanes of the driver do.
    "SET lock_timeout = '500ms'",
)


async def prepare(link: Link) -> Link:
    """Prepare a link for claims: plans by key, hot statements prepared."""
    for statement in SESSION:
        await link.query(statement)
    for name, statement in HOT.items():
        numbers = itertools.count(1)
        numbered = re.sub("%s", lambda _, n=numbers: f"${next(n)}", statement)  # type: ignore[misc]
        await link.query(f"PREPARE {name} AS {numbered}")
    return link


async def by_key(link: Link) -> Link:
    """Plan look-ups by key: a run of many targets was frozen a moment ago, and the statistics do not know it yet."""
    for statement in BY_KEY:
        await link.query(statement)
    return link


def as_one_text(calls: Sequence[Call]) -> tuple[str, list[Any]]:
    """Return the calls as one text with its values. PostgreSQL runs it as one transaction in a quarter of the time of a
    pipeline with BEGIN and COMMIT."""
    text = ";".join(f"EXECUTE {name}({', '.join(['%s'] * len(values))})" for name, values in calls)
    return text, [value for _, values in calls for value in values]


async def refuse_proxy(link: Link, told: int) -> None:
    """Raise ProxyRefused behind a pooler. It answers the handshake itself, so the backend pid it told us is not the one
    that runs our statements. Behind one that pools by transaction, two clients were seen holding the same lock."""
    (row,) = await link.query("SELECT pg_backend_pid() AS pid")
    if row["pid"] != told:
        raise ProxyRefused(settings.BEHIND_A_PROXY)
