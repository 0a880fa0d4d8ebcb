"""One number's session with WhatsApp: connecting, reconnecting, and its condition.

Events decide the condition, and not the client's connect task: that stays pending even when the number is banned or
logged out, and ends only where the very first connection failed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from accounts.channels.base import Kind, NotSent
from accounts.channels.paired import Jid
from accounts.channels.provider_events import ProviderEvent
from accounts.channels.whatsapp.bridge import conditions, incoming
from accounts.channels.whatsapp.bridge.conditions import Condition, State, utc_now
from accounts.channels.whatsapp.bridge.incoming import Incoming
from accounts.channels.whatsapp.bridge.journal import (
    JOURNAL_FILE,
    LAST_REPORT,
    PAIRED_AS,
    PAIRED_AT,
    RESTORED,
    ROSTER,
    SESSION_FILE,
    Journal,
    is_paired,
)
from accounts.channels.whatsapp.bridge.library import Library, Limits
from accounts.channels.whatsapp.bridge.messages import Uploads
from accounts.channels.whatsapp.bridge.pairing import Pairing
from accounts.channels.whatsapp.bridge.roster import Listing, Roster
from accounts.channels.whatsapp.bridge.sending import MessageDispatcher

log = logging.getLogger("crier.bridge")

#: Clients that are stopped, or did not stop in time. They are kept, because the Go side may still call
#: into them, and a function that Python has freed would end the process.
STOPPED_CLIENTS: deque[Any] = deque(maxlen=1_000)


class Health(NamedTuple):
    """A session as its account's page shows it; `journal` is the id of its journal."""

    journal: str
    state: State
    since: datetime
    paired_at: datetime | None


class Session:
    def __init__(
        self,
        account_id: int,
        library: Library,
        folder: Path,
        limits: Limits,
        on_news: Callable[[], object],
        on_change: Callable[[], object],
        use_journal: Callable[[Session], Awaitable[bool]],
    ) -> None:
        self.account_id = account_id
        self.library = library
        self.folder = folder
        self.limits = limits
        self.on_news = on_news  # called when there is something new to deliver
        self.on_change = on_change  # called when its condition has changed: a lane may wait for it
        #: makes this session's journal the account's, and sets since when it is; False: another machine's is
        self.use_journal = use_journal
        self.in_use_since: datetime | None = None
        self.was_in_use = False
        self.turn_page_at = 0.0  # monotonic
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.journal = Journal(folder / JOURNAL_FILE)
        #: The database was restored from a backup, and not compared with the journal since.
        self.restored = bool(self.journal.fact(RESTORED))
        self.forget_at = time.monotonic()
        self.pairing = Pairing(self)
        paired = self.pairing.was_paired
        detail = "" if paired else conditions.NEVER_PAIRED
        self.condition = Condition(State.CONNECTING if paired else State.UNPAIRED, utc_now(), detail)
        self.client: Any = None
        self.me: Any = None
        self.roster = Roster(limits, self.journal.fact(ROSTER))
        self.listing = Listing(self)
        self.dispatcher = MessageDispatcher(self)
        self.uploads = Uploads(self)
        self.incoming = Incoming(self)
        self.connected_at = float("-inf")  # monotonic
        self.failures = 0
        self.logins = 0  # begun since the session was last connected
        self.retry_at: float | None = None
        self.closed = False
        self.ending = False  # an operator has moved the number: nothing more is begun
        #: Clients are made and ended one at a time. Handlers must not wait for it: a client's stop may wait for them.
        self.opening = asyncio.Lock()
        self.begun = asyncio.Event()  # the present client has sent an event
        self.changing = asyncio.Lock()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.lookups: set[asyncio.Task[Any]] = set()
        self.settle_receipts()  # receipts that a killed bridge left

    # -- for the API --------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        jid = self.journal.fact(PAIRED_AS)
        return Jid(*jid.split("@", 1)).address if jid else ""

    @property
    def paired_at(self) -> datetime | None:
        paired_at = self.journal.fact(PAIRED_AT)
        return datetime.fromisoformat(paired_at) if paired_at else None

    @property
    def knows_ids_since(self) -> datetime | None:
        """Return since when the journal has the ids of all messages; None while it is not the account's."""
        if self.in_use_since is None:
            return None
        return max(self.in_use_since, self.paired_at or self.in_use_since)

    def health(self) -> Health:
        return Health(self.journal.id(), self.condition.state, self.condition.since, self.paired_at)

    def refusal(self) -> NotSent | None:
        if self.ending:
            return NotSent(Kind.UNAVAILABLE, conditions.MOVING, conditions.RETRY_WHEN_OFFLINE)
        if self.restored:
            return NotSent(Kind.UNAVAILABLE, conditions.DATABASE_RESTORED, conditions.RETRY_WHEN_OFFLINE)
        if (refusal := conditions.refusal(self.condition)) is not None:
            return refusal
        if self.client is None:  # the condition follows when it has stopped
            return NotSent(Kind.UNAVAILABLE, conditions.CLOSING, conditions.RETRY_WHEN_OFFLINE)
        return None

    def jid(self, jid: Jid) -> Any:
        return self.library.types.JID(
            User=jid.user, Server=jid.server, RawAgent=0, Device=0, Integrator=0, IsEmpty=False
        )

    def report(self, event: ProviderEvent, hidden: str = "") -> None:
        """Store an event on disk, where it outlives this process, and wake up the delivery; `hidden`: the id of its
        person, whose number is still looked up."""
        self.journal.add_event(event, hidden, time.time())
        self.on_news()

    def settle_receipts(self) -> None:
        """Report the receipts whose message is clear. Where the journal fails they wait in it."""
        try:
            self.incoming.settle()
        except sqlite3.Error as error:
            log.warning("receipts wait in the journal: %s", error, extra={"account": self.account_id})

    @property
    def unnamed_before(self) -> float:
        """Return the time before which events no longer wait for a number; without a pairing none do."""
        return time.time() - self.limits.naming if self.pairing.was_paired else math.inf

    def is_back(self) -> bool:
        """Return whether the number has been connected for a moment only: its lane may still wait for it."""
        connected = self.condition.state is State.CONNECTED
        return connected and time.monotonic() - self.connected_at < self.limits.wake

    def is_unused(self) -> bool:
        """Return whether a pairing failed here and was not tried again."""
        age = (utc_now() - self.condition.since).total_seconds()
        came_to_nothing = self.condition.state in (State.UNPAIRED, State.EXPIRED) and not self.pairing.was_paired
        return came_to_nothing and age > self.limits.unused and not self.opening.locked()

    # -- connecting ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect with the stored session, where there is one and it is not connected."""
        async with self.opening:
            if is_paired(self.folder, self.journal) and self.condition.state is not State.CONNECTED:
                await self.open_client()

    async def open_client(self) -> None:
        """Start a new client. Without a stored session, WhatsApp offers codes to pair with."""
        await self.drop_client()
        if self.closed:
            return
        client = self.library.client(str(self.folder / SESSION_FILE), uuid=f"{self.account_id}-{time.monotonic_ns()}")
        self.client = client
        # neonize stops a client when Python collects it, in an arbitrary thread, and that may hang.
        if (finalizer := getattr(client, "_stop_finalizer", None)) is not None:
            finalizer.detach()
        for name, event in self.library.events.items():
            client.event(event)(self._handler(client, name))
        client.event.qr(self.pairing.code_handler(client))
        self.begun.clear()
        try:
            async with self.library.turn:
                self.expect_login()  # not earlier: the wait for the turn is not part of the login
                async with asyncio.timeout(self.limits.connect):
                    connecting = await client.connect()
                connecting.add_done_callback(lambda task: self._connect_ended(client, task))
                await self._until_begun()
        except TimeoutError:
            self._failed(f"the client did not begin to connect within {self.limits.connect:g} s")
        except self.library.error as error:
            self._failed(str(error))

    async def _until_begun(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.begin):
                await self.begun.wait()

    def _handler(self, client: Any, name: str) -> Callable[[Any, Any], Coroutine[Any, Any, None]]:
        async def handle(_: Any, event: Any) -> None:
            if client is self.client:
                self.begun.set()
                try:
                    await self._handle_event(client, name, event)
                except Exception:
                    log.exception("an event of %s was not understood", name, extra={"account": self.account_id})

        return handle

    def _connect_ended(self, client: Any, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or client is not self.client or self.closed:
            return
        self.begun.set()
        if (error := task.exception()) is not None:
            self._failed(str(error) or type(error).__name__)

    def _failed(self, words: str) -> None:
        """Note that the client gave up, and try again, later each time. The time counts from the first failure."""
        if self.pairing.waits_for_phone():
            self.pairing.failed(f"No connection to WhatsApp: {words}")
            return
        since = self.condition.since if self.condition.state is State.REFUSED else utc_now()
        self.set_condition(Condition(State.REFUSED, since, f"No connection to WhatsApp: {words}"))
        self._retry_later()

    def expect_login(self) -> None:
        """Set the time at which another client replaces this one: a login may take a while, and may hang."""
        self.retry_at = time.monotonic() + self.limits.login_limit(self.logins)
        self.logins += 1

    def _retry_later(self) -> None:
        self.retry_at = time.monotonic() + self.limits.retry(self.failures)
        self.failures += 1

    async def drop_client(self) -> None:
        """Stop the client. Stopping one that waits for a code hangs: it gets a moment and is then left alone."""
        client, self.client = self.client, None
        if client is None:
            return
        STOPPED_CLIENTS.append(client)
        try:
            async with asyncio.timeout(self.limits.stop):
                if self.lookups:
                    await asyncio.wait(self.lookups)
                await client.stop()
        except (TimeoutError, self.library.error):
            log.warning("a client did not stop in time; it is left behind", extra={"account": self.account_id})

    async def close(self) -> None:
        """Close without logging out. Sends that are under way end without us: they are in doubt in the journal."""
        await self._stop()
        self.journal.close()

    async def end(self) -> None:
        """Begin nothing more, wait for the answer to a message under way as long as its caller does, and stop. The
        journal stays open."""
        self.ending = True
        if self.dispatcher.tasks:
            await asyncio.wait(self.dispatcher.tasks, timeout=self.limits.answer)
        await self._stop()

    async def _stop(self) -> None:
        self.closed = True
        for task in self.tasks:
            task.cancel()
        await self.drop_client()

    async def watch(self) -> None:
        """Check, once in a while, what no event reports."""
        if not self.opening.locked():
            async with self.opening:
                await self._look_after_client()
        self._forget()
        self._report_condition()

    async def _look_after_client(self) -> None:
        if self.condition.state is State.PAIRING and self.pairing.codes_are_over():
            await self.pairing.expire()
        elif self._should_reopen():
            await self.open_client()
        elif self.condition.state is State.CONNECTED:
            self.listing.list_if_due()

    def _forget(self) -> None:
        if time.monotonic() >= self.forget_at:
            self.forget_at = time.monotonic() + self.limits.forget
            self.journal.forget(time.time())

    def _should_reopen(self) -> bool:
        if self.retry_at is not None:
            return time.monotonic() >= self.retry_at
        age = (utc_now() - self.condition.since).total_seconds()
        if self.condition.state is State.DISCONNECTED:
            return age > self.limits.disconnected
        until = self.condition.until
        return self.condition.state is State.BANNED and until is not None and until <= utc_now()

    # -- events of the client -----------------------------------------------------------------------------------------

    async def _handle_event(self, client: Any, name: str, event: Any) -> None:
        if name == "Message":
            await self.incoming.message(client, event)
        elif name == "Receipt":
            await self.incoming.receipt(client, event)
        elif name == "JoinedGroup":
            self.roster.changed.add(str(incoming.plain(event.GroupInfo.JID)))
        elif name == "GroupInfoEvent":
            self.roster.changed.add(str(incoming.plain(event.JID)))
        elif name == "PairStatus":
            self.pairing.ended(event)
        elif (condition := conditions.condition_after(name, event, utc_now())) is not None:
            # One after the other: neonize starts a handler for each without waiting for the one before.
            async with self.changing:
                if client is self.client:  # not replaced meanwhile
                    await self._change(client, condition)

    async def _change(self, client: Any, condition: Condition) -> None:
        if condition.state is State.DISCONNECTED and self.condition.state is not State.CONNECTED:
            return  # says nothing new, and must not hide a ban or a pairing
        if condition.state is State.REFUSED and self.pairing.waits_for_phone():
            self.pairing.failed(condition.detail)
            return
        self.retry_at = None  # WhatsApp answered: what it said decides when to try again
        if condition.state is State.CONNECTED:
            try:
                await self._connected(client)
            except ConnectionError as error:
                self._failed(f"the bridge cannot reach PostgreSQL ({error})")
                return
        if condition.state is State.UNPAIRED:
            await self.drop_client()
            self.pairing.unpaired()
        if condition.state is State.REFUSED:
            self._retry_later()
        self.set_condition(condition)

    async def _connected(self, client: Any) -> None:
        self.failures, self.logins = 0, 0
        self.pairing.code, self.pairing.requested = None, False
        if self.me is None:
            self.me = await self.look_up(client, client.get_me)
            self.pairing.note_paired(self.me.JID)
        if self.in_use_since is None:  # it was paired just now, by an operator's decision
            await self.use_journal(self)
        self.listing.list_if_due()
        self.spawn(self.incoming.name_remaining(client))

    def set_condition(self, condition: Condition) -> None:
        log.info("session is %s %s", condition.state, condition.detail, extra={"account": self.account_id})
        if condition.state is State.CONNECTED and self.condition.state is not State.CONNECTED:
            self.connected_at = time.monotonic()
        self.condition = condition
        self.on_change()
        self._report_condition()

    def _report_condition(self) -> None:
        """Report the session's condition to the account once; a short interruption not at all."""
        condition = self.condition
        age = (utc_now() - condition.since).total_seconds()
        if condition.state in conditions.COMES_BACK and age < self.limits.worth_telling:
            return
        if condition.state is State.UNPAIRED and not self.pairing.was_paired:
            return  # it may be paired on another machine
        event = conditions.event_of(condition)
        words = f"{condition.state}:{condition.detail}"
        if event is None or self.journal.fact(LAST_REPORT) == words:
            return
        # In this order a bridge that is killed in between reports it twice, instead of never.
        self.report(replace(event, address=self.address))
        self.journal.note(LAST_REPORT, words)

    # -- for its parts ------------------------------------------------------------------------------------

    async def look_up(self, client: Any, question: Callable[..., Awaitable[Any]], *values: Any) -> Any:
        """Ask the client for something that it has in its own store.

        Go ends the whole process where such a question is about a client that it no longer has. So no question begins
        after the stop, and the stop waits for those under way, even if their caller has gone.
        """
        if client is not self.client:
            raise self.library.error(conditions.CLOSING)
        task = asyncio.ensure_future(question(*values))
        self.lookups.add(task)
        task.add_done_callback(self.lookups.discard)
        return await asyncio.shield(task)

    def renew(self, why: str) -> None:
        """Connect with a new client soon, because the present one cannot be trusted any more."""
        self.set_condition(Condition(State.DISCONNECTED, utc_now(), why))
        self._retry_later()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task
