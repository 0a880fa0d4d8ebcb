"""What a session hears of messages: replies, and receipts of what it sent."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from accounts.channels.events import EventKind
from accounts.channels.paired import HIDDEN, Jid
from accounts.channels.whatsapp.bridge import reading
from accounts.channels.whatsapp.bridge.journal import Message, Receipt

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session

#: How ids begin that whatsmeow gives; a phone's have another form.
OUR_IDS = "3EB0"


class Hearing:
    def __init__(self, session: Session) -> None:
        self.session = session

    async def message(self, client: Any, event: Any) -> None:
        source = event.Info.MessageSource
        if source.IsFromMe:
            chat = str(reading.plain(source.Chat))
            self.session.journal.written_elsewhere(event.Info.ID, chat, time.time())
            return
        reply = reading.reply(event, await self._by_number(client, reading.visible_sender(source)))
        if reply is not None:
            self.session.report(reply)

    async def _by_number(self, client: Any, person: Jid) -> Jid:
        """Whom a hidden id means, by number where the client knows it; else as it is."""
        session = self.session
        if person.server != HIDDEN:
            return person
        try:
            async with asyncio.timeout(session.limits.question):
                known = reading.plain(await session.look_up(client, client.get_pn_from_lid, session.jid(person)))
        except (TimeoutError, session.library.error):
            return person
        # An id that the client has not met is answered with nobody, and without an error.
        return known if known.user else person

    # -- receipts -----------------------------------------------------------------------------------------

    async def receipt(self, client: Any, event: Any) -> None:
        """Keep a receipt, before anything that may take time, and report it once it is clear what it is about."""
        kind = reading.RECEIPTS.get(event.Type)
        if kind is None:
            return
        told, chat = reading.plain(event.MessageSource.Chat), reading.visible_chat(event.MessageSource)
        journal, hidden = self.session.journal, chat.server == HIDDEN
        wait: list[Receipt] = []
        for provider_id in event.MessageIDs:
            receipt = Receipt(provider_id, kind, str(told), str(chat), event.Timestamp)
            message_id = journal.message_id_of(provider_id)
            if message_id and not hidden:
                self._confirm(receipt, message_id)
            elif message_id or (message_id is None and provider_id.startswith(OUR_IDS)):
                wait.append(receipt)
        if wait:
            journal.hold(wait, named=not hidden)
            if hidden:
                await self._name(client, chat, str(told))
            self.settle()

    async def _name(self, client: Any, chat: Jid, told: str) -> None:
        # People's chats are noted by the id that WhatsApp gave for their number, mostly the number itself.
        self.session.journal.name_chat(told, str(await self._by_number(client, chat)))

    async def name_left_over(self, client: Any) -> None:
        """Look up the chats that a bridge which was killed had no time to."""
        with suppress(sqlite3.Error):  # the others wait for the next connection
            for told in {receipt.told for receipt in self.session.journal.unnamed()}:
                await self._name(client, Jid(*told.split("@", 1)), told)
        self.session.settle_receipts()

    def settle(self) -> None:
        """Report the receipts of which it is clear what they are about.

        One with a known id belongs to that message and to no other. The id of a message under way becomes known with
        its acknowledgement, and the receipt may be faster: while one is under way, unknown ids wait. An id that is
        unknown after that may be that of an earlier send without an answer.
        """
        journal = self.session.journal
        receipts = journal.held()
        unknown = {(one.chat, one.provider_id) for one in receipts if journal.message_id_of(one.provider_id) is None}
        ids_in = Counter(chat for chat, _ in unknown)
        for receipt in receipts:
            message_id = journal.message_id_of(receipt.provider_id)
            if message_id:
                self._confirm(receipt, message_id)
            elif message_id is None and self.session.sender.in_flight:
                continue
            # Two unknown ids in one chat cannot be told apart.
            elif message_id is None and ids_in[receipt.chat] == 1 and (doubt := self._doubted(receipt)) is not None:
                self._confirm(receipt, doubt[1], ended=doubt[0])
            else:
                journal.let_go(receipt)

    def _doubted(self, receipt: Receipt) -> tuple[int, str] | None:
        """The send without an answer that a receipt with an unknown id is about. That one was read says too little: it
        may have arrived before."""
        if receipt.kind is not EventKind.DELIVERED:
            return None
        return self.session.journal.doubt_in((receipt.chat, receipt.told), receipt.at)

    def _confirm(self, receipt: Receipt, message_id: str, ended: int | None = None) -> None:
        """Report the receipt of a message, unless it was reported: a group's members each send one."""
        if self.session.journal.was_reported(receipt.provider_id, receipt.kind):
            self.session.journal.let_go(receipt)
            return
        message = Message(receipt.provider_id, message_id, receipt.chat)
        event = reading.receipt(receipt, message)
        self.session.journal.confirm(receipt, message, event, ended, time.time())
        self.session.woken()
