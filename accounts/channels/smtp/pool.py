"""The connections of an SMTP account."""

from __future__ import annotations

import asyncio

from accounts.channels.base import AccountConfig, Outcome
from accounts.channels.smtp.connection import Connection, Gone
from accounts.channels.smtp.delivery import Delivery
from accounts.channels.smtp.settings import Settings


class Pool:
    """Up to `concurrency` connections; the one used last is used next, so that the others can go idle."""

    def __init__(self, account: AccountConfig) -> None:
        self.account = account
        self._free = asyncio.Semaphore(max(1, account.concurrency))
        self._idle: list[Connection] = []
        self._settings: Settings | None = None

    def settings(self) -> Settings:
        if self._settings is None:
            self._settings = Settings.of(self.account)
        return self._settings

    async def deliver(self, delivery: Delivery) -> Outcome:
        async with self._free:
            connection = await self._take()
            try:
                return await self._with(connection, delivery)
            except Gone:
                # Nothing was handed over, so another connection is not another try.
                return await self._with(await Connection.open(self.settings()), delivery)

    async def _with(self, connection: Connection, delivery: Delivery) -> Outcome:
        kept = False
        try:
            outcome = await connection.deliver(delivery)
            kept = connection.smtp.is_connected
            return outcome
        finally:
            # After a time-out or a lost dialogue nobody knows whose answer comes next.
            if kept:
                self._idle.append(connection)
            else:
                connection.smtp.close()

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            await connection.quit()
        return await Connection.open(self.settings())

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(connection.quit() for connection in idle))
