"""The sending of a session: one message after the other, each noted before it leaves, and none forgotten.

An asyncio time-out does not stop a send, so none is ever put around one. The caller gets "unknown" after a while; the
send continues in a task of its own, and a late result becomes an event. A message that is not handed over while its
caller waits is never handed over.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.paired import Jid, jid_of
from accounts.channels.whatsapp.bridge import conditions, incoming, messages
from accounts.channels.whatsapp.bridge.journal import SentMessage
from accounts.channels.whatsapp.wire import Order

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session

log = logging.getLogger("crier.bridge")

BEHIND = "WhatsApp has not answered the message before this one yet"
STILL_WAITING = "no answer from WhatsApp yet; the bridge goes on waiting for it"
UNDER_WAY = "an earlier try at this message is still waiting for WhatsApp's answer"
NO_JOURNAL = "the bridge cannot write its journal, so nothing was sent"
NO_WHATSAPP = "this person has no WhatsApp"
TOO_LATE = "it was not begun in time, so nothing was sent"
ANOTHER_DRIVER = "another driver has this account by now"


@dataclass(slots=True)
class Attempt:
    """An order that is being carried out. It is begun once the journal has it and it may leave."""

    order: Order
    is_wanted: Callable[[], bool]
    until: float  # monotonic: the caller waits no longer than this
    begun: bool = False

    def may_begin(self) -> bool:
        """Return whether the caller still waits. A message that it gave up is judged as never begun, and sent again."""
        return time.monotonic() < self.until and self.is_wanted()


class MessageDispatcher:
    """Sends the messages of one session, one after the other, and notes each in the journal before it leaves."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn = asyncio.Lock()
        #: by message id: orders that are being carried out
        self.at_hand: Counter[str] = Counter()
        #: by message id: sends whose caller no longer waits, and their answers once they came
        self.late: dict[str, Outcome | None] = {}
        self.tasks: set[asyncio.Task[Outcome]] = set()
        #: whether a message was handed over whose answer is not noted yet
        self.in_flight = False

    async def send(
        self, order: Order, came_at: float | None = None, is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome:
        """Send a message and answer within the limits; the message itself may take longer.

        `came_at`: when the request came (monotonic). `is_wanted`: whether its caller still waits.
        """
        if order.message_id in self.late:
            return self._earlier_answer(order.message_id)
        attempt = Attempt(order, is_wanted, (came_at or time.monotonic()) + self.session.limits.answer)
        self.at_hand[order.message_id] += 1
        try:
            async with asyncio.timeout(self.session.limits.turn):
                await self.turn.acquire()
        except (TimeoutError, asyncio.CancelledError) as error:
            self._off_hand(order)
            if isinstance(error, TimeoutError):
                return NotSent(Kind.UNAVAILABLE, BEHIND, conditions.RETRY_WHEN_OFFLINE)
            raise
        task = asyncio.create_task(self._deliver_in_turn(attempt))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(lambda _: self._off_hand(order))
        if await self._ends_within(task, attempt.until - time.monotonic()):
            return task.result()
        if not attempt.begun:
            attempt.until = 0.0
            return NotSent(Kind.UNAVAILABLE, TOO_LATE, conditions.RETRY_WHEN_OFFLINE)
        self.late[order.message_id] = None
        task.add_done_callback(lambda ended: self.report_late(order, ended.result()))
        return Unknown(STILL_WAITING)

    async def _ends_within(self, task: asyncio.Task[Outcome], seconds: float) -> bool:
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0))
        return bool(done)

    def _off_hand(self, order: Order) -> None:
        self.at_hand[order.message_id] -= 1
        self.at_hand += Counter()  # drops those at zero

    def _earlier_answer(self, message_id: str) -> Outcome:
        """Return the answer to an earlier try at the same message: there is never a second one beside it."""
        outcome = self.late[message_id]
        if outcome is None:
            return NotSent(Kind.UNAVAILABLE, UNDER_WAY, conditions.RETRY_WHEN_OFFLINE)
        del self.late[message_id]
        return outcome

    def report_late(self, order: Order, outcome: Outcome) -> None:
        """Report an answer that the caller no longer waits for, as an event."""
        if isinstance(outcome, Sent):
            self.late[order.message_id] = outcome
        else:
            self.late.pop(order.message_id, None)
        if not isinstance(outcome, Unknown):
            self.session.report(
                incoming.late_answer_event(order.message_id, jid_of(order.to), outcome, datetime.now(UTC))
            )

    async def _deliver_in_turn(self, attempt: Attempt) -> Outcome:
        try:
            return await self._deliver(attempt)
        except Exception as error:  # our bug or the library's; the message may have left
            log.exception("a send failed", extra={"account": self.session.account_id})
            return Unknown(f"{type(error).__name__}: {error}")
        finally:
            self.turn.release()

    async def _deliver(self, attempt: Attempt) -> Outcome:
        try:
            ready = await self._ready(attempt.order)
        except messages.BadHandle as error:
            return NotSent(Kind.UNKNOWN, str(error))
        except Exception as error:  # our bug or the library's; nothing was handed over yet
            log.exception("a message could not be made ready", extra={"account": self.session.account_id})
            return NotSent(Kind.UNAVAILABLE, f"{type(error).__name__}: {error}", conditions.RETRY_WHEN_OFFLINE)
        if isinstance(ready, NotSent):
            return ready
        # The session may have ended while WhatsApp was asked.
        return self.session.refusal() or await self._hand_over(attempt, *ready)

    async def _ready(self, order: Order) -> tuple[Jid, Any] | NotSent:
        """Return where to write, and the message; a refusal where that is not possible."""
        # Checked here and not before the wait for our turn: a session may end meanwhile.
        if (refusal := self.session.refusal()) is not None:
            return refusal
        chat = await self._chat(jid_of(order.to))
        if isinstance(chat, NotSent):
            return chat
        message = messages.build(self.session.library, order)
        if order.typing and order.text:
            await self._show_typing(chat, order.text)
        return chat, message

    async def _hand_over(self, attempt: Attempt, chat: Jid, message: Any) -> Outcome:
        order = attempt.order
        if not attempt.may_begin():
            return NotSent(Kind.UNAVAILABLE, TOO_LATE, conditions.RETRY_WHEN_OFFLINE)
        try:
            if 0 < order.epoch < self.session.journal.epoch():
                return NotSent(Kind.UNAVAILABLE, ANOTHER_DRIVER, conditions.RETRY_WHEN_OFFLINE)
            recipient = str(jid_of(order.to))
            number = self.session.journal.begin(order.message_id, recipient, str(chat), time.time())
        except sqlite3.Error as error:
            return NotSent(Kind.UNAVAILABLE, f"{NO_JOURNAL}: {error}", conditions.RETRY_WHEN_OFFLINE)
        self.in_flight = attempt.begun = True
        try:
            return await self._answered(order.message_id, chat, message, number)
        finally:
            self.in_flight = False
            # The message's id is noted, where it has one: receipts that waited for it can be reported.
            self.session.settle_receipts()

    async def _answered(self, message_id: str, chat: Jid, message: Any, number: int) -> Outcome:
        session = self.session
        try:
            response = await session.client.send_message(session.jid(chat), message)
        except session.library.error as error:
            outcome = conditions.outcome_of_error(str(error))
            if isinstance(outcome, NotSent):
                with suppress(sqlite3.Error):  # the refusal is certain, with or without its note
                    session.journal.not_sent(number)
            return outcome
        # WhatsApp's answer stands, even if the note fails.
        with suppress(sqlite3.Error):
            session.journal.sent(number, SentMessage(response.ID, message_id, str(chat)), time.time())
        return Sent(response.ID)

    # -- before the first message -------------------------------------------------------------------------

    async def _chat(self, jid: Jid) -> Jid | NotSent:
        """Return the chat to write to, or a refusal where this account cannot."""
        if not jid.is_group:
            return await self._person(jid)
        if self.session.roster.should_ask(jid):
            await self.session.listing.ask_for_groups()
        return self.session.roster.refusal(jid) or jid

    async def _person(self, jid: Jid) -> Jid | NotSent:
        """Look a person up, once: writing to many numbers without WhatsApp gets an account banned."""
        number = f"+{jid.user}"
        if stored := self.session.journal.person(number):
            return Jid(*stored.split("@", 1))
        answer = await self._question(self.session.client.is_on_whatsapp(number))
        if isinstance(answer, NotSent):
            return answer
        hit = next((one for one in answer if one.IsIn), None)
        if hit is None:
            return NotSent(Kind.RECIPIENT_GONE, NO_WHATSAPP)
        person = incoming.plain(hit.JID)
        with suppress(sqlite3.Error):  # the person is looked up again then
            self.session.journal.remember_person(number, str(person), time.time())
        return person

    async def _question(self, question: Awaitable[Any]) -> Any:
        """Return the answer, or why there is none: nothing was sent by asking."""
        try:
            async with asyncio.timeout(self.session.limits.question):
                return await question
        except TimeoutError:
            return NotSent(
                Kind.UNAVAILABLE, "WhatsApp did not answer a question in time", conditions.RETRY_WHEN_OFFLINE
            )
        except self.session.library.error as error:
            return conditions.question_failed(str(error))

    async def _show_typing(self, chat: Jid, text: str) -> None:
        """Show “typing…” for as long as the text deserves; a refusal of that changes nothing."""
        types = self.session.library.types
        await self._question(
            self.session.client.send_chat_presence(
                self.session.jid(chat),
                types.ChatPresence.CHAT_PRESENCE_COMPOSING,
                types.ChatPresenceMedia.CHAT_PRESENCE_MEDIA_TEXT,
            )
        )
        await asyncio.sleep(self.session.limits.typing(text))
