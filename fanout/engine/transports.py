"""The transports of the accounts that a driver has had, open until its slice is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from accounts.channels.base import AccountConfig, Transport

log = logging.getLogger("crier.driver")

CLOSE_LIMIT = 1.0  # seconds
MakeTransport = Callable[[AccountConfig], Transport]


class Transports:
    def __init__(self, make: MakeTransport) -> None:
        self.make = make
        self._by_account: dict[int, Transport] = {}

    def __getitem__(self, account_id: int) -> Transport:
        return self._by_account[account_id]

    async def make_ready(self, account_id: int, config: AccountConfig) -> None:
        """The account's transport, anew when its settings changed."""
        transport = self._by_account.get(account_id)
        if transport is not None and transport.account == config:
            return
        if transport is not None:
            await transport.close()
        self._by_account[account_id] = self.make(config)

    async def close(self) -> None:
        """All at once: one that takes its time must not hold up the others, or the end of the slice."""
        closing = [asyncio.create_task(transport.close()) for transport in self._by_account.values()]
        self._by_account.clear()
        if not closing:
            return
        done, late = await asyncio.wait(closing, timeout=CLOSE_LIMIT)
        for task in late:
            task.cancel()
        for task in done:
            if error := task.exception():
                log.warning("a transport did not close: %s", error)
