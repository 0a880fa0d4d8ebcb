"""The sending of a session: one message after the other, each noted before it leaves, and none forgotten.

An asyncio time-out does not stop a send, so none is ever put around one. The caller gets "unknown" after a while; the
send continues in a task of its own, and a late result becomes an event.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable
from contextlib import suppress
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


class Sender:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn = asyncio.Lock()
        #: by message id: sends whose caller no longer waits, and their answers once they came
        self.late: dict[str, Outcome | None] = {}
        self.tasks: set[asyncio.Task[Outcome]] = set()
        #: whether a message was handed over whose answer is not noted yet
        self.in_flight = False

    async def send(self, order: Order) -> Outcome:
        """Send a message and answer within the limits; the message itself may take longer."""
        if order.message_id in self.late:
            return self._earlier_answer(order.message_id)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.session.limits.turn):
                await self.turn.acquire()
        except TimeoutError:
            return NotSent(Kind.UNAVAILABLE, BEHIND, conditions.RETRY_WHEN_OFFLINE)
        task = asyncio.create_task(self._deliver_in_turn(order))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        left = self.session.limits.answer - (time.monotonic() - began)
        done, _ = await asyncio.wait({task}, timeout=max(left, 0))
        if done:
            return task.result()
        self.late[order.message_id] = None
        task.add_done_callback(lambda ended: self.report_late(order, ended.result()))
        return Unknown(STILL_WAITING)

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

    async def _deliver_in_turn(self, order: Order) -> Outcome:
        try:
            return await self._deliver(order)
        except Exception as error:  # our bug or the library's; the message may have left
            log.exception("a send failed", extra={"account": self.session.account_id})
            return Unknown(f"{type(error).__name__}: {error}")
        finally:
            self.turn.release()

    async def _deliver(self, order: Order) -> Outcome:
        try:
            ready = await self._ready(order)
        except messages.BadHandle as error:
            return NotSent(Kind.UNKNOWN, str(error))
        except Exception as error:  # our bug or the library's; nothing was handed over yet
            log.exception("a message could not be made ready", extra={"account": self.session.account_id})
            return NotSent(Kind.UNAVAILABLE, f"{type(error).__name__}: {error}", conditions.RETRY_WHEN_OFFLINE)
        if isinstance(ready, NotSent):
            return ready
        # The session may have ended while WhatsApp was asked.
        return self.session.refusal() or await self._hand_over(order, *ready)

    async def _ready(self, order: Order) -> tuple[Jid, Any] | NotSent:
        """Return where to write, and the message; a refusal where that is not possible."""
        # Checked here and not before the wait for our turn: a session may end meanwhile.
        if (refusal := self.session.refusal()) is not None:
            return refusal
        chat = await self._chat(jid_of(order.to))
        if isinstance(chat, NotSent):
            return chat
        message = messages.build(self.session.library, order)
        if order.typing:
            await self._show_typing(chat)
        return chat, message

    async def _hand_over(self, order: Order, chat: Jid, message: Any) -> Outcome:
        try:
            recipient = str(jid_of(order.to))
            number = self.session.journal.begin(order.message_id, recipient, str(chat), time.time())
        except sqlite3.Error as error:
            return NotSent(Kind.UNAVAILABLE, f"{NO_JOURNAL}: {error}", conditions.RETRY_WHEN_OFFLINE)
        self.in_flight = True
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

    async def _show_typing(self, chat: Jid) -> None:
        types = self.session.library.types
        await self._question(
            self.session.client.send_chat_presence(
                self.session.jid(chat),
                types.ChatPresence.CHAT_PRESENCE_COMPOSING,
                types.ChatPresenceMedia.CHAT_PRESENCE_MEDIA_TEXT,
            )
        )
