"""One number's session with WhatsApp: connecting, pairing, coming back, and what it is in.

Events say what a session is in, and not the client's connect task: that stays pending even when the number is banned or
logged out, and ends only where the very first connection failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from accounts.channels.base import Kind, NotSent
from accounts.channels.events import ProviderEvent
from accounts.channels.jids import PEOPLE, Jid
from accounts.channels.whatsapp import answers
from accounts.channels.whatsapp.bridge import conditions, reading
from accounts.channels.whatsapp.bridge.conditions import Condition, State
from accounts.channels.whatsapp.bridge.hearing import Hearing
from accounts.channels.whatsapp.bridge.journal import Journal
from accounts.channels.whatsapp.bridge.library import Library
from accounts.channels.whatsapp.bridge.limits import Limits
from accounts.channels.whatsapp.bridge.roster import Roster
from accounts.channels.whatsapp.bridge.sending import Sender
from accounts.channels.whatsapp.bridge.uploads import Uploads

log = logging.getLogger("crier.bridge")

STORE = "session.db"
JOURNAL = "journal.db"
PAIRED = "jid"
TOLD = "told"
LISTED = "groups listed"
#: Clients that are stopped, or were left alone because they would not stop. They are kept: the Go side may still call
#: into them, and a function that Python has freed would end the process.
LEFT_BEHIND: deque[Any] = deque(maxlen=1_000)
CLOSING = "the session is just being closed"
#: neonize's number for a pairing that did not succeed.
REFUSED_TO_PAIR = 1


def now() -> datetime:
    return datetime.now(UTC)


def is_paired(folder: Path, journal: Journal) -> bool:
    return bool(journal.fact(PAIRED)) and (folder / STORE).exists()


def is_stored(folder: Path) -> bool:
    """Whether this machine has the session, or news of its end that nobody has heard yet."""
    if not (folder / JOURNAL).exists():
        return False
    try:
        journal = Journal(folder / JOURNAL)
    except sqlite3.Error:
        return False  # another bridge of this machine has it open, and with it the account
    try:
        return is_paired(folder, journal) or bool(journal.waiting(1))
    finally:
        journal.close()


@dataclass(frozen=True, slots=True)
class Code:
    """What the phone is shown: a QR code's text, and the letters to type where a number was given."""

    qr: str
    expires_at: datetime
    letters: str = ""


class Session:
    def __init__(
        self, account_id: int, library: Library, folder: Path, limits: Limits, woken: Callable[[], object]
    ) -> None:
        self.account_id = account_id
        self.library = library
        self.folder = folder
        self.limits = limits
        self.woken = woken  # called when there is something new to deliver
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.journal = Journal(folder / JOURNAL)
        self.forget_at = time.monotonic()
        paired = self.was_paired = is_paired(folder, self.journal)
        detail = "" if paired else conditions.NEVER_PAIRED
        self.condition = Condition(State.CONNECTING if paired else State.UNPAIRED, now(), detail)
        self.code: Code | None = None
        self.codes = 0
        self.phone = ""
        self.client: Any = None
        self.me: Any = None
        self.roster = Roster(limits)
        self.listing: asyncio.Task[NotSent | None] | None = None
        self.sender = Sender(self)
        self.uploads = Uploads(self)
        self.hearing = Hearing(self)
        self.failures = 0
        self.logins = 0  # begun since the session was last connected
        self.retry_at: float | None = None
        self.closed = False
        self.pairing = False  # an operator asked for codes
        #: Clients are made and ended one at a time. Handlers must not wait for it: a client's stop may wait for them.
        self.opening = asyncio.Lock()
        self.begun = asyncio.Event()  # the present client was heard of
        self.changing = asyncio.Lock()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.lookups: set[asyncio.Task[Any]] = set()

    # -- for the API --------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        jid = self.journal.fact(PAIRED)
        return Jid(*jid.split("@", 1)).address if jid else ""

    def refusal(self) -> NotSent | None:
        if (refusal := conditions.refusal(self.condition)) is not None:
            return refusal
        if self.client is None:  # the condition follows when it has stopped
            return NotSent(Kind.UNAVAILABLE, CLOSING, answers.RETRY_WHEN_OFFLINE)
        return None

    def jid(self, jid: Jid) -> Any:
        return self.library.types.JID(
            User=jid.user, Server=jid.server, RawAgent=0, Device=0, Integrator=0, IsEmpty=False
        )

    def report(self, event: ProviderEvent) -> None:
        """On disk before anything else: it outlives this process."""
        self.journal.add_event(event)
        self.woken()

    def is_unused(self) -> bool:
        """Whether a pairing came to nothing here, and nobody has tried again."""
        age = (now() - self.condition.since).total_seconds()
        came_to_nothing = self.condition.state in (State.UNPAIRED, State.EXPIRED) and not self.was_paired
        return came_to_nothing and age > self.limits.unused and not self.opening.locked()

    # -- connecting ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect with the session that is stored, where there is one and it is not connected."""
        async with self.opening:
            if is_paired(self.folder, self.journal) and self.condition.state is not State.CONNECTED:
                await self._open()

    async def _open(self) -> None:
        """A new client. Without a stored session, WhatsApp offers codes to pair with."""
        await self._drop_client()
        if self.closed:
            return
        client = self.library.client(str(self.folder / STORE), uuid=f"{self.account_id}-{time.monotonic_ns()}")
        self.client = client
        # neonize stops a client when Python forgets it, in whatever thread that happens to be, and that may hang.
        if (finalizer := getattr(client, "_stop_finalizer", None)) is not None:
            finalizer.detach()
        for name, event in self.library.events.items():
            client.event(event)(self._handler(client, name))
        client.event.qr(self._code_handler(client))
        self.begun.clear()
        try:
            async with self.library.turn:
                self._expect_login()  # not before: the wait for one's turn is no login
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
                    await self._heard(client, name, event)
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
        """The client gave up: tried again by us, later each time. It counts from the first failure."""
        if self._waits_for_phone():
            self._pairing_failed(f"No connection to WhatsApp: {words}")
            return
        since = self.condition.since if self.condition.state is State.REFUSED else now()
        self._become(Condition(State.REFUSED, since, f"No connection to WhatsApp: {words}"))
        self._retry_later()

    def _expect_login(self) -> None:
        """A login may take a while, and may hang: only then is there another client."""
        self.retry_at = time.monotonic() + self.limits.login_limit(self.logins)
        self.logins += 1

    def _retry_later(self) -> None:
        self.retry_at = time.monotonic() + self.limits.retry(self.failures)
        self.failures += 1

    async def _drop_client(self) -> None:
        """Stopping a client that waits for a code hangs: it is given a moment and then left alone."""
        client, self.client = self.client, None
        if client is None:
            return
        LEFT_BEHIND.append(client)
        try:
            async with asyncio.timeout(self.limits.stop):
                if self.lookups:
                    await asyncio.wait(self.lookups)
                await client.stop()
        except (TimeoutError, self.library.error):
            log.warning("a client did not stop in time; it is left behind", extra={"account": self.account_id})

    async def close(self) -> None:
        """The session stays stored. Sends that are under way end without us: they are in doubt in the journal."""
        self.closed = True
        for task in self.tasks:
            task.cancel()
        await self._drop_client()
        self.journal.close()

    async def watch(self) -> None:
        """Once in a while: what no event tells."""
        if not self.opening.locked():
            async with self.opening:
                await self._look_after_client()
        self._forget()
        self._tell()

    async def _look_after_client(self) -> None:
        if self.condition.state is State.PAIRING and self._codes_are_over():
            await self._expire()
        elif self._should_reopen():
            await self._open()
        elif self.condition.state is State.CONNECTED:
            self._list_if_due()

    def _forget(self) -> None:
        if time.monotonic() >= self.forget_at:
            self.forget_at = time.monotonic() + self.limits.forget
            self.journal.forget(time.time())

    def _should_reopen(self) -> bool:
        if self.retry_at is not None:
            return time.monotonic() >= self.retry_at
        age = (now() - self.condition.since).total_seconds()
        if self.condition.state is State.DISCONNECTED:
            return age > self.limits.disconnected
        until = self.condition.until
        return self.condition.state is State.BANNED and until is not None and until <= now()

    # -- pairing ------------------------------------------------------------------------------------------

    async def pair(self, phone: str = "") -> None:
        """Show codes to the phone, from the first; with its number, letters to type instead."""
        async with self.opening:
            if self.condition.state is State.CONNECTED:
                return
            self.phone, self.code, self.codes = phone.lstrip("+"), None, 0
            self.pairing, self.logins = True, 0
            self.condition = Condition(State.PAIRING, now(), "Waiting for a code from WhatsApp …")
            await self._open()

    def _code_handler(self, client: Any) -> Callable[[Any, bytes], Coroutine[Any, Any, None]]:
        async def show(_: Any, text: bytes) -> None:
            if client is self.client:
                self.begun.set()
                await self._new_code(client, text.decode())

        return show

    async def _new_code(self, client: Any, text: str) -> None:
        if not self.pairing:
            # A stored session that WhatsApp no longer knows gets a code instead of a login.
            self._become(Condition(State.UNPAIRED, now(), conditions.logged_out(on_connect=True)))
            self._unpaired()
            await self._drop_client()
            return
        self.codes += 1
        self.retry_at = None  # a client with a code waits for the phone
        lasts = self.limits.first_code if self.codes == 1 else self.limits.next_code
        letters = self.code.letters if self.code else ""
        if self.phone and not letters:
            letters = await self._letters(client)
        self.code = Code(text, now() + timedelta(seconds=lasts), letters)
        self.condition = Condition(State.PAIRING, now())

    async def _letters(self, client: Any) -> str:
        try:
            return str(await client.PairPhone(self.phone, True))
        except self.library.error as error:
            self.phone = ""
            log.warning("WhatsApp gave no pairing code: %s", error, extra={"account": self.account_id})
            return ""

    def _waits_for_phone(self) -> bool:
        return self.pairing and not is_paired(self.folder, self.journal)

    def _pairing_failed(self, words: str) -> None:
        """Nobody may be looking any more when it would work: whoever wants codes asks again."""
        self.code, self.pairing, self.retry_at = None, False, None
        self.condition = Condition(State.EXPIRED, now(), f"{words.rstrip('.')}. Press “Pair again”.")

    def _pairing_ended(self, event: Any) -> None:
        if event.Status == REFUSED_TO_PAIR:
            self._pairing_failed(f"WhatsApp refused to pair ({event.Error or 'without a reason'})")
        else:
            # neonize has stored the device: a bridge that dies before the first login connects it when it is back.
            self._note_paired(event.ID)
            self.condition = Condition(State.CONNECTING, now(), "Paired; connecting …")
            self._expect_login()

    def _note_paired(self, me: Any) -> None:
        self.was_paired = True
        self.journal.note(PAIRED, f"{me.User}@{PEOPLE}")
        for path in self.folder.glob(f"{STORE}*"):
            os.chmod(path, 0o600)

    def _codes_are_over(self) -> bool:
        """After the last code nothing comes, no event and no error."""
        last = self.code.expires_at if self.code else self.condition.since + timedelta(seconds=self.limits.first_code)
        return now() > last + timedelta(seconds=min(3.0, self.limits.next_code))

    async def _expire(self) -> None:
        self.code, self.pairing, self.retry_at = None, False, None
        self.condition = Condition(State.EXPIRED, now(), conditions.EXPIRED)
        await self._drop_client()

    async def log_out(self) -> None:
        """The stored session is gone; whether WhatsApp knows of it, the session's condition says."""
        async with self.opening:
            confirmed = self.condition.state is State.CONNECTED
            if confirmed:
                async with asyncio.timeout(self.limits.question):
                    await self.client.logout()
            await self._drop_client()
            self._unpaired()
            self._become(Condition(State.UNPAIRED, now(), conditions.unpaired_by_operator(confirmed)))

    def _unpaired(self) -> None:
        self.journal.note(PAIRED, "")
        self.journal.note(LISTED, "")
        self.roster = Roster(self.limits)  # the next number has groups of its own
        self.pairing, self.me, self.code, self.retry_at = False, None, None, None
        for path in self.folder.glob(f"{STORE}*"):
            path.unlink()

    # -- hearing ------------------------------------------------------------------------------------------

    async def _heard(self, client: Any, name: str, event: Any) -> None:
        if name == "Message":
            await self.hearing.message(client, event)
        elif name == "Receipt":
            await self.hearing.receipt(client, event)
        elif name == "JoinedGroup":
            self.roster.changed.add(str(reading.plain(event.GroupInfo.JID)))
        elif name == "GroupInfoEvent":
            self.roster.changed.add(str(reading.plain(event.JID)))
        elif name == "PairStatus":
            self._pairing_ended(event)
        elif (condition := conditions.after(name, event, now())) is not None:
            # One after the other: neonize starts a handler for each without waiting for the one before.
            async with self.changing:
                if client is self.client:  # not replaced meanwhile
                    await self._change(client, condition)

    async def _change(self, client: Any, condition: Condition) -> None:
        if condition.state is State.DISCONNECTED and self.condition.state is not State.CONNECTED:
            return  # says nothing new, and must not hide a ban or a pairing
        if condition.state is State.REFUSED and self._waits_for_phone():
            self._pairing_failed(condition.detail)
            return
        self.retry_at = None  # WhatsApp answered: what it said decides when to try again
        if condition.state is State.CONNECTED:
            await self._connected(client)
        if condition.state is State.UNPAIRED:
            await self._drop_client()
            self._unpaired()
        if condition.state is State.REFUSED:
            self._retry_later()
        self._become(condition)

    async def _connected(self, client: Any) -> None:
        self.failures, self.logins, self.code, self.pairing = 0, 0, None, False
        if self.me is None:
            self.me = await self.look_up(client, client.get_me)
            self._note_paired(self.me.JID)
        self._list_if_due()

    def _become(self, condition: Condition) -> None:
        log.info("session is %s %s", condition.state, condition.detail, extra={"account": self.account_id})
        self.condition = condition
        self._tell()

    def _tell(self) -> None:
        """Tell the account once what its session is in; a short interruption not at all."""
        condition = self.condition
        age = (now() - condition.since).total_seconds()
        if condition.state in conditions.COMES_BACK and age < self.limits.worth_telling:
            return
        if condition.state is State.UNPAIRED and not self.was_paired:
            return  # it may be paired elsewhere, for all that is known here
        event = conditions.event_of(condition)
        words = f"{condition.state}:{condition.detail}"
        if event is None or self.journal.fact(TOLD) == words:
            return
        self.journal.note(TOLD, words)
        self.report(replace(event, address=self.address))

    # -- asking -------------------------------------------------------------------------------------------

    def _list_if_due(self) -> None:
        if self.roster.due():
            self._list()

    async def ask_for_groups(self) -> NotSent | None:
        """Read the list of groups; the reason where WhatsApp does not give it, or has just not given it."""
        if (refused := self.roster.resting()) is not None:
            return refused
        listing = self._list()
        await asyncio.wait({listing})
        if listing.cancelled():
            return NotSent(Kind.UNAVAILABLE, CLOSING, answers.RETRY_WHEN_OFFLINE)
        return listing.result()

    def _list(self) -> asyncio.Task[NotSent | None]:
        """One question at a time: who asks meanwhile gets its answer."""
        if self.listing is None or self.listing.done():
            self.roster.asking()
            self.listing = self.spawn(self._read_groups(self.client, self.roster))
        return self.listing

    async def _read_groups(self, client: Any, roster: Roster) -> NotSent | None:
        try:
            async with asyncio.timeout(self.limits.question):
                roster.read(await client.get_joined_groups(), self.me)
        except TimeoutError:
            words = "WhatsApp did not list the groups in time"
            return roster.refused(NotSent(Kind.UNAVAILABLE, words, answers.RETRY_WHEN_OFFLINE))
        except self.library.error as error:
            return roster.refused(answers.asked(str(error)))
        self.woken()
        return None

    async def look_up(self, client: Any, question: Callable[..., Awaitable[Any]], *values: Any) -> Any:
        """Something that the client has in its own store. Go ends the whole process where such a question is about a
        client that it does not have (any more): none begins after the stop, and the stop waits for those under way,
        also for one that nobody waits for any longer."""
        if client is not self.client:
            raise self.library.error(CLOSING)
        task = asyncio.ensure_future(question(*values))
        self.lookups.add(task)
        task.add_done_callback(self.lookups.discard)
        return await asyncio.shield(task)

    def renew(self, why: str) -> None:
        """Connect with a new client, soon: the present one cannot be trusted any more."""
        self._become(Condition(State.DISCONNECTED, now(), why))
        self._retry_later()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task
