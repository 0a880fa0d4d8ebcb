"""All sessions of one bridge. `Shard` decides which accounts it has, `Feed` where its events go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from accounts.channels.events import ProviderEvent
from accounts.channels.whatsapp.bridge.journal import GROUPS_STORED, is_stored
from accounts.channels.whatsapp.bridge.library import Library, Limits
from accounts.channels.whatsapp.bridge.roster import WhatsAppGroup
from accounts.channels.whatsapp.bridge.session import Session

log = logging.getLogger("crier.bridge")

BATCH = 200
FEED_PATIENCE = 30.0


class Shard(Protocol):
    """Decides which accounts belong to this bridge: no other bridge has a session of theirs meanwhile."""

    async def accounts(self) -> set[int]:
        """Return all accounts of the channel; raises OSError where that cannot be read."""
        ...

    async def take(self, account_id: int) -> bool: ...

    async def give_back(self, account_id: int) -> None: ...

    async def owner(self, account_id: int) -> str:
        """Return the address of the bridge that has the account; "" where none has."""
        ...


class Feed(Protocol):
    async def store(self, account_id: int, events: Sequence[ProviderEvent]) -> None:
        """Store events durably before returning; raises where that fails."""
        ...

    async def store_groups(self, account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None: ...


class Taken(Exception):
    """Raised where another bridge has the account; `owner` is its address, where it is known."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


class NotStored(Taken):
    """Raised where no bridge has the account, and its session is not stored here."""

    def __init__(self) -> None:
        super().__init__("")


class Bridge:
    def __init__(self, library: Library, folder: Path, shard: Shard, feed: Feed, limits: Limits, most: int) -> None:
        self.library, self.folder, self.shard, self.feed = library, folder, shard, feed
        self.limits, self.most = limits, most
        self.sessions: dict[int, Session] = {}
        self.opening: dict[int, asyncio.Lock] = {}
        self.news = asyncio.Event()

    def folder_of(self, account_id: int) -> Path:
        return self.folder / str(account_id)

    async def session(self, account_id: int, pairing: bool = False) -> Session:
        """Return the account's session.

        The account is taken if it is free and its session is stored here or begins here. Raises Taken.
        """
        async with self.opening.setdefault(account_id, asyncio.Lock()):
            if account_id not in self.sessions:
                if not pairing and not is_stored(self.folder_of(account_id)):
                    await self._refuse(account_id)
                await self._take(account_id)
            return self.sessions[account_id]

    async def _refuse(self, account_id: int) -> NoReturn:
        """Raise Taken. The bridge of another machine may have the session, even while it is down: taking the account
        would lock that bridge out."""
        owner = await self.shard.owner(account_id)
        raise Taken(owner) if owner else NotStored

    async def _take(self, account_id: int) -> None:
        if len(self.sessions) >= self.most or not await self.shard.take(account_id):
            raise Taken(await self.shard.owner(account_id))
        session = Session(account_id, self.library, self.folder_of(account_id), self.limits, self.news.set)
        self.sessions[account_id] = session
        await session.open()

    # -- steps --------------------------------------------------------------------------------------------

    async def update_sessions(self) -> None:
        """Take free accounts whose sessions are stored here; leave those that are gone or unused."""
        accounts = await self.shard.accounts()
        unused = {account_id for account_id, session in self.sessions.items() if session.is_unused()}
        for account_id in set(self.sessions) - accounts | unused:
            await self.leave(account_id)
        for account_id in sorted(accounts - set(self.sessions)):
            if is_stored(self.folder_of(account_id)):
                await self._try(account_id)

    async def _try(self, account_id: int) -> None:
        try:
            await self.session(account_id)
        except Taken:
            pass
        except Exception:
            log.exception("a session was not opened", extra={"account": account_id})

    async def watch(self) -> None:
        await asyncio.gather(*(session.watch() for session in list(self.sessions.values())), return_exceptions=True)

    async def deliver(self) -> bool:
        """Pass on the events of all sessions, acknowledged once they are stored. Returns False where some must wait."""
        self.news.clear()
        results = [await self._deliver_one(session) for session in list(self.sessions.values())]
        return all(results)

    async def _deliver_one(self, session: Session) -> bool:
        try:
            while waiting := session.journal.waiting(BATCH):
                await self.feed.store(session.account_id, [event for _, event in waiting])
                session.journal.acknowledge([number for number, _ in waiting])
            if session.roster.groups is not None and not session.journal.fact(GROUPS_STORED):
                groups = list(session.roster.groups.values())
                await self.feed.store_groups(session.account_id, session.address, groups)
                session.journal.note(GROUPS_STORED, "yes")
        except Exception:  # the database is away: all events are on disk and come again
            log.exception("events were not stored; tried again", extra={"account": session.account_id})
            return False
        return True

    # -- leaving ------------------------------------------------------------------------------------------

    async def leave(self, account_id: int) -> None:
        session = self.sessions.pop(account_id, None)
        if session is not None:
            await session.close()
            await self.shard.give_back(account_id)

    async def abandon(self) -> None:
        """End every session; the locks are gone, or go with the process."""
        sessions = list(self.sessions.values())
        self.sessions.clear()
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)

    # -- loops --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the loops until they are cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._update_loop())
            group.create_task(self._watch_loop())
            group.create_task(self._deliver_loop())

    async def _update_loop(self) -> None:
        while True:
            try:
                await self.update_sessions()
            except OSError as error:
                log.warning("the accounts are not known: %s", error)
            await asyncio.sleep(2 * self.limits.watch)

    async def _watch_loop(self) -> None:
        while True:
            await self.watch()
            await asyncio.sleep(self.limits.watch)

    async def _deliver_loop(self) -> None:
        patience = 1.0
        while True:
            done = await self.deliver()
            patience = 1.0 if done else min(FEED_PATIENCE, patience * 2)
            try:
                async with asyncio.timeout(patience if not done else FEED_PATIENCE):
                    if done:
                        await self.news.wait()
                    else:
                        await asyncio.sleep(patience)
            except TimeoutError:
                pass
