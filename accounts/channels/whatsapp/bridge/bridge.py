"""All sessions of one bridge. `Shard` decides which accounts it has, `Feed` where its events go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from accounts.channels.provider_events import ProviderEvent
from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.conditions import utc_now
from accounts.channels.whatsapp.bridge.journal import GROUPS_STORED, NotedMessage, is_stored
from accounts.channels.whatsapp.bridge.library import Library, Limits
from accounts.channels.whatsapp.bridge.review import OLDEST, TURN_PAGE_AFTER, Judged, UncertainSend, judge
from accounts.channels.whatsapp.bridge.roster import WhatsAppGroup
from accounts.channels.whatsapp.bridge.session import Health, Session

log = logging.getLogger("crier.bridge")

BATCH = 200
FEED_PATIENCE = 30.0
#: Sessions that are opened at a time: a client that takes its time to begin does not hold up the questions of others.
OPENED_AT_ONCE = 8


class Shard(Protocol):
    """Decides which accounts belong to this bridge: no other bridge has a session of theirs meanwhile."""

    async def accounts(self) -> set[int]:
        """Return all accounts of the channel; raises OSError where that cannot be read."""
        ...

    async def take(self, account_id: int) -> bool: ...

    async def give_back(self, account_id: int) -> None: ...

    async def use_journal(self, account_id: int, journal: str, page: int, replace: bool) -> tuple[datetime, int] | None:
        """Make this journal the account's; return since when it is, and its page; None where another one is. One whose
        page is behind the page that was reported last is a copy: it counts from now on, and goes on at a later page.
        `replace`: an operator has paired the account here, and so moved it to this machine. Called with the account
        taken."""
        ...

    async def is_behind(self, account_id: int, journal: str, page: int) -> bool:
        """Return whether the account's journal is not stored, or this one with an earlier page."""
        ...

    async def end_journal(self, account_id: int, journal: str, page: int) -> int | None:
        """Store that this machine has ended the session of a number that was moved away; return the page at which its
        journal ends, later than that of every copy. None where it was not moved away, or another journal is used."""
        ...

    async def moved_away(self) -> set[int]:
        """Return the accounts that an operator has moved to another machine."""
        ...

    async def owner(self, account_id: int) -> str:
        """Return the address of the bridge that has the account; "" where none has."""
        ...


class Feed(Protocol):
    async def store(self, account_id: int, events: Sequence[ProviderEvent]) -> None:
        """Store events durably before returning; raises where that fails."""
        ...

    async def store_groups(self, account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None: ...

    async def wake(self, accounts: Sequence[int]) -> None:
        """Wake the lanes that wait because their number was away."""
        ...

    async def report(self, sessions: Mapping[int, Health]) -> None:
        """Store the health of sessions for people to see."""
        ...

    async def compare_groups(self, account_id: int, groups: Sequence[WhatsAppGroup]) -> None:
        """Store which groups were joined, left or changed since they were last synchronised."""
        ...

    async def uncertain_sends(
        self, accounts: Sequence[int], oldest: timedelta, newest: timedelta
    ) -> dict[int, list[UncertainSend]]:
        """Return the unconfirmed targets of accounts whose claims have an age between the two."""
        ...

    async def settle(self, account_id: int, judged: Sequence[Judged]) -> None:
        """Settle targets as the journal says, where they are still unconfirmed since the same claim."""
        ...

    async def compare(self, account_id: int, messages: Sequence[NotedMessage]) -> Compared:
        """Mark what was begun, and is pending by a restored database, as unconfirmed."""
        ...

    async def owners(self, account_id: int, asked: Mapping[str, str]) -> dict[str, str]:
        """Return our message of each id of WhatsApp's that is known. `asked` has, for each id, a message to the same
        chat."""
        ...

    async def settled(self, messages: Sequence[str]) -> set[str]:
        """Return those of the messages that are no longer in doubt: an operator has decided, or the result is known."""
        ...


class Compared(NamedTuple):
    """What a restored database has of a journal's messages: those that it knows, and how many it thought unsent."""

    known: set[str]
    marked: int


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
        #: accounts whose session is stored here, and which were paired on another machine since
        self.moved: set[int] = set()
        self.news = asyncio.Event()
        self.changed = asyncio.Event()  # a session's condition
        self.report_at = 0.0

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
                await self._take(account_id, pairing)
            return self.sessions[account_id]

    async def _refuse(self, account_id: int) -> NoReturn:
        """Raise Taken. The bridge of another machine may have the session, even while it is down: taking the account
        would lock that bridge out."""
        owner = await self.shard.owner(account_id)
        raise Taken(owner) if owner else NotStored

    async def _take(self, account_id: int, pairing: bool) -> None:
        if len(self.sessions) >= self.most or not await self.shard.take(account_id):
            raise Taken(await self.shard.owner(account_id))
        folder = self.folder_of(account_id)
        calls = self.news.set, self.changed.set, self._use_journal
        session = Session(account_id, self.library, folder, self.limits, *calls)
        try:
            # A session that is stored here may have been replaced by a pairing on another machine since.
            is_ours = not session.pairing.was_paired or await self._use_journal(session, replace=pairing)
        except ConnectionError:
            await session.close()
            raise
        if not is_ours:
            await session.close()
            await self.shard.give_back(account_id)
            self._note_moved(account_id)
            raise Taken(await self.shard.owner(account_id))
        self.sessions[account_id] = session
        self.moved.discard(account_id)
        session.settle_receipts()  # those that waited for the journal
        self.news.set()  # events that the last bridge could not pass on
        await session.open()

    async def _use_journal(self, session: Session, replace: bool = True) -> bool:
        journal, told = session.journal, session.journal.page_told()
        if told and not session.restored and await self.shard.is_behind(session.account_id, journal.id(), told):
            log.error(conditions.DATABASE_RESTORED, extra={"account": session.account_id})
            journal.found_restored()
            session.restored = True
        used = await self.shard.use_journal(session.account_id, journal.id(), journal.page(), replace)
        if used is not None:
            if used[1] > journal.page():
                journal.go_on_at(used[1])
            journal.told(used[1])
        session.in_use_since = used[0] if used is not None else None
        session.was_in_use = session.was_in_use or used is not None
        return used is not None

    def _note_moved(self, account_id: int) -> None:
        if account_id not in self.moved:
            self.moved.add(account_id)
            log.warning("this number was paired on, or moved to, another machine", extra={"account": account_id})

    # -- steps --------------------------------------------------------------------------------------------

    async def update_sessions(self) -> None:
        """Take free accounts whose sessions are stored here; leave those that are gone or unused."""
        accounts, moved = await self.shard.accounts(), await self.shard.moved_away()
        unused = {account_id for account_id, session in self.sessions.items() if session.is_unused()}
        # One that is being paired here comes back by an operator's decision.
        left = {number for number, session in self.sessions.items() if number in moved and session.was_in_use}
        for account_id in (set(self.sessions) - accounts | unused) - left:
            await self.leave(account_id)
        # At once: each may wait for an answer from WhatsApp.
        await asyncio.gather(*(self.end(account_id) for account_id in left))
        at_once = asyncio.Semaphore(OPENED_AT_ONCE)
        await asyncio.gather(*(self._try(one, at_once) for one in sorted(accounts - set(self.sessions) - moved)))

    async def _try(self, account_id: int, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            try:
                if is_stored(self.folder_of(account_id)):
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
            if asked := dict(session.incoming.asked):
                session.incoming.learn(asked, await self.feed.owners(session.account_id, asked))
            while waiting := session.journal.waiting(BATCH, session.unnamed_before):
                await self.feed.store(session.account_id, [event for _, event in waiting])
                session.journal.acknowledge([number for number, _ in waiting])
            if session.roster.groups is not None and not session.journal.fact(GROUPS_STORED):
                groups = list(session.roster.groups.values())
                await self.feed.store_groups(session.account_id, session.address, groups)
                session.journal.note(GROUPS_STORED, "yes")
            elif session.roster.groups is not None and session.roster.is_news:
                await self.feed.compare_groups(session.account_id, list(session.roster.groups.values()))
            session.roster.is_news = False
        except Exception:  # the database is away: all events are on disk and come again
            log.exception("events were not stored; tried again", extra={"account": session.account_id})
            return False
        return True

    async def wake(self) -> None:
        """Wake the lanes of numbers that are back, and report the health of all where one has changed, and now and
        then."""
        changed = self.changed.is_set()
        self.changed.clear()
        if back := [number for number, session in self.sessions.items() if session.is_back()]:
            await self.feed.wake(back)
        if self.sessions and (changed or time.monotonic() >= self.report_at):
            self.report_at = time.monotonic() + self.limits.report
            await self.feed.report({number: session.health() for number, session in self.sessions.items()})

    # -- uncertain sends -------------------------------------------------------------------------------------------

    async def review(self) -> None:
        """Settle the uncertain sends that the journals settle, and have journals forget what was decided elsewhere."""
        in_use = {number: one for number, one in self.sessions.items() if one.in_use_since is not None}
        if in_use:
            await self._turn_pages(list(in_use.values()))
        sessions = {number: one for number, one in in_use.items() if not one.restored}
        if not sessions:
            return
        newest = timedelta(seconds=self.limits.review_after)
        uncertain_sends = await self.feed.uncertain_sends(list(sessions), OLDEST, newest)
        for account_id, open_uncertain in uncertain_sends.items():
            session = sessions[account_id]
            if session.closed or session.in_use_since is None:
                continue
            judged = judge(open_uncertain, session.journal, session.in_use_since, session.dispatcher.at_hand, utc_now())
            if judged:
                await self.feed.settle(account_id, judged)
        await self._decide(list(sessions.values()))

    async def _turn_pages(self, sessions: Sequence[Session]) -> None:
        """Turn the pages that are due, those that have waited longest first. Each waits for the disk, and so does the
        event loop: with hundreds of numbers they take turns."""
        now = time.monotonic()
        due = sorted((one for one in sessions if one.turn_page_at <= now), key=lambda one: one.turn_page_at)
        share = 1 + int(len(sessions) * self.limits.review / TURN_PAGE_AFTER)
        for session in due[:share]:
            if not session.closed:
                session.turn_page_at = now + TURN_PAGE_AFTER
                session.journal.turn_page()
                await self._use_journal(session, replace=False)

    async def compare_with_journal(self, session: Session) -> Compared:
        """Go on after the database was restored: have it marked as in doubt what the journal knows and it does not, so
        that the journal ends these uncertain_sends, and forget messages that it does not have at all."""
        compared = await self.feed.compare(session.account_id, session.journal.messages())
        session.journal.begin_anew(compared.known)
        session.restored = False
        session.settle_receipts()
        return compared

    async def _decide(self, sessions: Sequence[Session]) -> None:
        before = time.time() - self.limits.review_after
        tries = [(one, *row) for one in sessions if not one.closed for row in one.journal.open_tries(before)]
        if tries:
            settled = await self.feed.settled([message_id for _, _, message_id in tries])
            for session, number, message_id in tries:
                if message_id in settled and not session.closed:
                    session.journal.decide(number)

    # -- leaving ------------------------------------------------------------------------------------------

    async def leave(self, account_id: int) -> None:
        session = self.sessions.pop(account_id, None)
        if session is not None:
            await session.close()
            await self.shard.give_back(account_id)

    async def end(self, account_id: int) -> None:
        """End the session of a number that was moved to another machine, and the page of its journal: a copy of the
        folder that was made while this bridge could still send is recognised by that, and proves nothing."""
        session = self.sessions[account_id]
        await session.end()
        await self._deliver_one(session)  # the folder may never be used again
        self.sessions.pop(account_id, None)
        try:
            page = await self.shard.end_journal(account_id, session.journal.id(), session.journal.page())
            if page is not None:
                session.journal.go_on_at(page)
                session.journal.told(page)
        finally:
            session.journal.close()
        await self.shard.give_back(account_id)
        self._note_moved(account_id)

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
            group.create_task(self._review_loop())
            group.create_task(self._wake_loop())

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

    async def _wake_loop(self) -> None:
        while True:
            try:
                await self.wake()
            except Exception:  # the database is away, and so are the lanes
                log.exception("lanes were not woken; tried again")
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.watch / 2):
                    await self.changed.wait()

    async def _review_loop(self) -> None:
        while True:
            try:
                await self.review()
            except Exception:  # the database is away, or a journal: what is in doubt stays so
                log.exception("uncertain sends were not reviewed; tried again")
            await asyncio.sleep(self.limits.review)

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
