"""Where the bridge's news go: events into the inbound table, groups into the recipients.

In one thread of its own with one connection: the loop never waits for Django, and neonize's threads have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections, connections
from django.utils import timezone

from accounts.channels import base
from accounts.channels.events import ProviderEvent
from accounts.channels.whatsapp.bridge.roster import WhatsAppGroup
from accounts.models import Account
from fanout.inbound import events as inbound
from reminders.groups import synchronise

T = TypeVar("T")


class DatabaseFeed:
    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "feed")

    async def store(self, account_id: int, events: Sequence[ProviderEvent]) -> None:
        await self._run(lambda: inbound.store(account_id, events, timezone.now()))

    async def store_groups(self, account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None:
        await self._run(lambda: _store_groups(account_id, address, groups))

    async def close(self) -> None:
        await self._run(connections.close_all)
        self.thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        def checked() -> T:
            close_old_connections()
            return work()

        return await asyncio.get_running_loop().run_in_executor(self.thread, checked)


def _store_groups(account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None:
    account = Account.objects.filter(pk=account_id).first()
    if account is None:
        return
    if not account.address:
        # The number that was paired is the account's own.
        Account.objects.filter(pk=account_id).update(address=address)
    listed = [base.Group(g.jid, g.name, g.size, g.announce_only, g.may_write) for g in groups]
    synchronise(account, listed, timezone.now())
