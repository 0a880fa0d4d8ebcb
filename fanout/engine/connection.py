"""Direct connections for the ledger: psycopg, not Django's ORM, which is threads underneath."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from fanout.engine import sql

Row = dict[str, Any]
AsyncConnection = psycopg.AsyncConnection[Row]


class ProxyRefused(Exception):
    """A pooling proxy is in between, so session locks would not be ours."""


def conninfo(settings: dict[str, Any]) -> str:
    """libpq's words for Django's database settings."""
    options = {k: v for k, v in settings.get("OPTIONS", {}).items() if isinstance(v, (str, int)) and k != "pool"}
    named = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    given = {word: settings[key] for word, key in named.items() if settings.get(key)}
    return make_conninfo("", **options, **given)


async def open_connection(info: str) -> AsyncConnection:
    connection = await psycopg.AsyncConnection.connect(
        info, autocommit=True, row_factory=dict_row, connect_timeout=5,
        keepalives=1, keepalives_idle=5, keepalives_interval=2, keepalives_count=3,
    )  # fmt: skip
    await refuse_proxy(connection)
    return connection


async def open_locking_connection(info: str) -> AsyncConnection:
    connection = await open_connection(info)
    await connection.execute(sql.SESSION)
    return connection


async def refuse_proxy(connection: AsyncConnection) -> None:
    """A pooler answers the handshake itself, so the backend pid it told us is not the one that runs our
    statements. Behind one that pools by transaction, two clients were seen holding the same lock."""
    told = connection.info.backend_pid
    cursor = await connection.execute("SELECT pg_backend_pid() AS pid")
    row = await cursor.fetchone()
    if row is None or row["pid"] != told:
        await connection.close()
        raise ProxyRefused(
            "A pooling proxy stands between Crier and PostgreSQL: session advisory locks are not safe there. "
            "Point DATABASE_URL at PostgreSQL itself."
        )
