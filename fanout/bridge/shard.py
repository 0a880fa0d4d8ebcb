"""Which accounts a bridge has: an advisory lock each, held by one session with PostgreSQL.

When that session ends, its locks are gone and other bridges take the accounts. The session's application name is the
bridge's address, so PostgreSQL itself says where an account's session is, for as long as that is true.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from fanout.engine.connection import AsyncLink

log = logging.getLogger("crier.bridge")

BRIDGE_LOCKS = 0x435257  # "CRW", beside those of lanes and slots
PREFIX = "crier-bridge "

ACCOUNTS = "SELECT id FROM accounts_account WHERE channel = %s"
TAKE = "SELECT pg_try_advisory_lock(%s, %s) AS taken"
GIVE_BACK = "SELECT pg_advisory_unlock(%s, %s)"
OWNER = """
SELECT a.application_name AS name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class LocksLost(ConnectionError):
    """The session with PostgreSQL ended, and with it the right to every account."""


class LockShard:
    """`address` is set once the bridge listens; PostgreSQL cuts names at 63 bytes, which leaves 40 for a host."""

    def __init__(self, info: str, channel: str) -> None:
        self.info = info
        self.channel = channel
        self.address = ""
        self.link: AsyncLink | None = None

    async def open(self) -> None:
        named = make_conninfo(self.info, application_name=f"{PREFIX}{self.address}")
        self.link = await AsyncLink.open(named)

    async def close(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            await link.close()

    async def accounts(self) -> set[int]:
        return {row["id"] for row in await self._query(ACCOUNTS, (self.channel,))}

    async def take(self, account_id: int) -> bool:
        (row,) = await self._query(TAKE, (BRIDGE_LOCKS, account_id))
        return bool(row["taken"])

    async def give_back(self, account_id: int) -> None:
        await self._query(GIVE_BACK, (BRIDGE_LOCKS, account_id))

    async def owner(self, account_id: int) -> str:
        rows = await self._query(OWNER, (BRIDGE_LOCKS, account_id))
        return next((str(row["name"]).removeprefix(PREFIX) for row in rows), "")

    async def _query(self, statement: str, parameters: Any) -> list[dict[str, Any]]:
        if self.link is None:
            raise LocksLost("no session with PostgreSQL")
        try:
            return await self.link.query(statement, parameters)
        except psycopg.OperationalError as error:
            raise LocksLost(str(error)) from error
