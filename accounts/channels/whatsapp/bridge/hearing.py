"""What a session hears of messages: replies, and receipts of what it sent."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from accounts.channels.events import EventKind
from accounts.channels.jids import HIDDEN, Jid
from accounts.channels.whatsapp.bridge import reading
from accounts.channels.whatsapp.bridge.journal import Message

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session

#: How ids begin that whatsmeow gives.
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

    async def receipt(self, client: Any, event: Any) -> None:
        kind = reading.RECEIPTS.get(event.Type)
        if kind is None:
            return
        # People's chats are noted by the id that WhatsApp gave for their number, mostly the number itself.
        as_told = reading.plain(event.MessageSource.Chat)
        chat = await self._by_number(client, reading.visible_chat(event.MessageSource))
        for provider_id in event.MessageIDs:
            self._report(event, kind, provider_id, str(chat), str(as_told))

    def _report(self, event: Any, kind: EventKind, provider_id: str, chat: str, as_told: str) -> None:
        journal = self.session.journal
        message = journal.message_of(provider_id, chat) or self._doubted(event, kind, provider_id, chat, as_told)
        if message is not None and journal.first_report(message, kind, time.time()):
            self.session.report(reading.receipt(event, message, kind))

    def _doubted(self, event: Any, kind: EventKind, provider_id: str, chat: str, as_told: str) -> Message | None:
        """The send without an answer that a receipt with an unknown id is about.

        Messages from a phone have ids of another form; one that is being sent right now gets an answer of its own.
        """
        journal = self.session.journal
        foreign = not provider_id.startswith(OUR_IDS) or journal.is_known(provider_id)
        if kind is not EventKind.DELIVERED or foreign:
            return None
        message_id = journal.doubt_in((chat, as_told), event.Timestamp, besides=self.session.sender.under_way)
        return Message(provider_id, message_id, chat) if message_id else None
