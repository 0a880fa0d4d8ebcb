"""Incoming messages and receipts of a session, turned into events for the account."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from accounts.channels.base import NotSent, Sent
from accounts.channels.paired import HIDDEN, PEOPLE, Jid, jid_of
from accounts.channels.provider_events import EventKind, ProviderEvent, as_edit
from accounts.channels.whatsapp.bridge.journal import RECEIPTS_COME_FOR, Receipt, SentMessage

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session


#: Servers of status posts, broadcast lists and channels.
BROADCAST, NEWSLETTER = "broadcast", "newsletter"
NOT_CHATS = (BROADCAST, NEWSLETTER)
STATUS = Jid("status", BROADCAST)
#: Prefix of ids that whatsmeow gives; a phone's ids have another form.
OUR_IDS = "3EB0"


class Incoming:
    """Handles the messages and receipts that a session receives."""

    def __init__(self, session: Session) -> None:
        self.session = session
        #: Unknown ids that would settle a send without an answer, with its message: the database is asked first.
        self.asked: dict[str, str] = {}
        #: Ids that the database does not know either.
        self.unowned: set[str] = set()

    async def message(self, client: Any, event: Any) -> None:
        """Keep a message, before anything that may take time: an opt-out must not be lost with this process. The number
        behind a hidden id is put in afterwards."""
        source = event.Info.MessageSource
        person = plain(source.Chat) if source.IsFromMe else visible_sender(source)
        hidden = str(person) if person.server == HIDDEN else ""
        if source.IsFromMe:
            written = written_event(event)
            self.session.journal.written_elsewhere(event.Info.ID, str(person), written, hidden, time.time())
            self.session.on_news()
        elif (reply := reply_event(event, self._as_written_to(person))) is not None:
            self.session.report(reply, hidden)
        if hidden:
            await self._name_person(client, person)

    def _as_written_to(self, person: Jid) -> Jid:
        """Return a person by the number that this account wrote to, which may be spelled differently from the id."""
        written_to = self.session.journal.number_of(str(person))
        return jid_of(written_to) if written_to else person

    async def _name_person(self, client: Any, hidden: Jid) -> None:
        person = self._as_written_to(await self._by_number(client, hidden))
        self.session.journal.name_person(str(hidden), person.address if person.server != HIDDEN else "")
        self.session.on_news()

    async def _by_number(self, client: Any, person: Jid) -> Jid:
        """Return the person behind a hidden id by number, where the client knows it; else the id itself."""
        session = self.session
        if person.server != HIDDEN:
            return person
        try:
            async with asyncio.timeout(session.limits.question):
                known = plain(await session.look_up(client, client.get_pn_from_lid, session.jid(person)))
        except (TimeoutError, session.library.error):
            return person
        # For an id that it has not met the client returns an empty one, without an error.
        return known if known.user else person

    # -- receipts -----------------------------------------------------------------------------------------

    async def receipt(self, client: Any, event: Any) -> None:
        """Keep a receipt, before anything that may take time, and report it once its message is known."""
        kind = RECEIPTS.get(event.Type)
        if kind is None:
            return
        named_as, chat = plain(event.MessageSource.Chat), visible_chat(event.MessageSource)
        journal, hidden = self.session.journal, chat.server == HIDDEN
        wait: list[Receipt] = []
        for provider_id in event.MessageIDs:
            receipt = Receipt(provider_id, kind, str(named_as), str(chat), event.Timestamp)
            message_id = journal.message_id_of(provider_id)
            if message_id and not hidden and not self.session.restored:
                self._confirm(receipt, message_id)
            elif message_id or (message_id is None and provider_id.startswith(OUR_IDS)):
                wait.append(receipt)
        if wait:
            journal.hold(wait, named=not hidden)
            if hidden:
                await self._name(client, chat, str(named_as))
            self.settle()

    async def _name(self, client: Any, chat: Jid, named_as: str) -> None:
        # People's chats are stored by the id that WhatsApp gave for their number, mostly the number itself.
        self.session.journal.name_chat(named_as, str(await self._by_number(client, chat)))

    async def name_remaining(self, client: Any) -> None:
        """Look up the people and chats of messages and receipts that a killed bridge left without a number."""
        with suppress(sqlite3.Error):  # the others wait for the next connection
            for hidden in self.session.journal.hidden_people():
                await self._name_person(client, Jid(*hidden.split("@", 1)))
            for named_as in {receipt.named_as for receipt in self.session.journal.unnamed()}:
                await self._name(client, Jid(*named_as.split("@", 1)), named_as)
        self.session.settle_receipts()

    def settle(self) -> None:
        """Report the receipts whose message is clear.

        A receipt with a known id belongs to that message and to no other. The id of a message under way becomes known
        with its acknowledgement, and the receipt may be faster: while one is under way, unknown ids wait. An id that is
        still unknown afterwards may be that of an earlier send without an answer, if the database knows no other
        message with it (`learn`). After the database was restored all wait until it was compared with the journal: its
        targets may have other messages' numbers.
        """
        journal = self.session.journal
        self.asked = {}
        if self.session.restored:
            return
        receipts = journal.held()
        unknown = {(one.chat, one.provider_id) for one in receipts if journal.message_id_of(one.provider_id) is None}
        ids_in = Counter(chat for chat, _ in unknown)
        for receipt in receipts:
            message_id = journal.message_id_of(receipt.provider_id)
            if message_id:
                self._confirm(receipt, message_id)
            elif message_id is not None:
                journal.drop_receipt(receipt)
            elif self._may_settle_unknown() and receipt.provider_id not in self.asked:
                # Two unknown ids in one chat cannot be told apart.
                self._settle_unknown(receipt, self._uncertain_for(receipt) if ids_in[receipt.chat] == 1 else None)
        if self.asked:
            self.session.on_news()

    def _may_settle_unknown(self) -> bool:
        return not self.session.dispatcher.in_flight and self.session.in_use_since is not None

    def _settle_unknown(self, receipt: Receipt, uncertain: tuple[int, str] | None) -> None:
        if uncertain is None:
            self.session.journal.drop_unknown(receipt, time.time(), ends_decided=self._knows_all(receipt))
        elif receipt.provider_id in self.unowned:
            self._confirm(receipt, uncertain[1], ended=uncertain[0])
        else:
            self.asked[receipt.provider_id] = uncertain[1]

    def _uncertain_for(self, receipt: Receipt) -> tuple[int, str] | None:
        """Return the send without an answer that a receipt with an unknown id is about.

        A read receipt says too little: the message may have arrived before.
        """
        if receipt.kind is not EventKind.DELIVERED or not self._knows_all(receipt):
            return None
        return self.session.journal.uncertain_in((receipt.chat, receipt.named_as), receipt.at)

    def _knows_all(self, receipt: Receipt) -> bool:
        """Return whether the journal has all messages that a receipt of this time can be about: it was not new then,
        nor restored from a copy, nor was the number paired anew."""
        since = self.session.knows_ids_since
        return since is not None and since.timestamp() + RECEIPTS_COME_FOR <= receipt.at

    def learn(self, asked: Mapping[str, str], owners: Mapping[str, str]) -> None:
        """Go on after the database was asked about unknown ids; `owners` has the messages of those that it knows."""
        chats = {receipt.provider_id: receipt.chat for receipt in self.session.journal.held()}
        for provider_id, message_id in owners.items():
            if provider_id in chats:
                self.session.journal.learn(SentMessage(provider_id, message_id, chats[provider_id]), time.time())
        self.unowned = set(asked) - set(owners)
        self.settle()

    def _confirm(self, receipt: Receipt, message_id: str, ended: int | None = None) -> None:
        """Report the receipt of a message, unless it was reported: a group's members each send one."""
        if self.session.journal.was_reported(receipt.provider_id, receipt.kind):
            self.session.journal.drop_receipt(receipt)
            return
        message = SentMessage(receipt.provider_id, message_id, receipt.chat)
        event = receipt_event(receipt, message)
        self.session.journal.confirm(receipt, message, event, ended, time.time())
        self.session.on_news()


# -- events from neonize's classes ------------------------------------------------------------------------


#: neonize's numbers for kinds of receipt: delivered, read, played, and delivered to a device that is not in use
#: ("inactive"), which is often the only receipt of a message to a person whose phone is away.
RECEIPTS = {1: EventKind.DELIVERED, 4: EventKind.READ, 6: EventKind.READ, 9: EventKind.DELIVERED}

WITH_CAPTION = ("imageMessage", "videoMessage", "documentMessage")
#: texts for replies without words
PLACEHOLDERS = {
    "imageMessage": "picture",
    "videoMessage": "video",
    "documentMessage": "file",
    "audioMessage": "voice",
    "stickerMessage": "sticker",
    "locationMessage": "location",
    "contactMessage": "contact",
    "contactsArrayMessage": "contacts",
    "pollCreationMessageV3": "poll",
}
#: fields of a message that are not written by a person: keys, edits and deletions, reactions, votes, pins
UNWRITTEN = {
    "messageContextInfo",
    "senderKeyDistributionMessage",
    "fastRatchetKeySenderKeyDistributionMessage",
    "protocolMessage",
    "reactionMessage",
    "encReactionMessage",
    "pollUpdateMessage",
    "keepInChatMessage",
    "pinInChatMessage",
}


def plain(jid: Any) -> Jid:
    return Jid(jid.User, jid.Server)


def text_of(content: Any) -> str | None:
    """Return the text of a message; None for what a person did not write: reactions, keys, and the empty first copy
    that comes with a sender's first message in a group."""
    if content.conversation:
        return str(content.conversation)
    if content.extendedTextMessage.text:
        return str(content.extendedTextMessage.text)
    for field, name in PLACEHOLDERS.items():
        carried = getattr(content, field)
        if carried.ListFields():
            caption = getattr(carried, "caption", "") if field in WITH_CAPTION else ""
            return str(caption) or f"({name})"
    return None


def quoted(content: Any) -> str:
    """Return the id of the message that it answers; empty where it only follows."""
    carriers = (getattr(content, field) for field in ("extendedTextMessage", *PLACEHOLDERS))
    return next((str(one.contextInfo.stanzaID) for one in carriers if one.contextInfo.stanzaID), "")


def written_event(event: Any) -> ProviderEvent | None:
    """Return the event of a message that a person wrote on the phone, without its words: WhatsApp counts it like one of
    ours. None for status posts, channels, and what is no message."""
    chat = plain(event.Info.MessageSource.Chat)
    parts = {field.name for field, _ in event.Message.ListFields()}
    if chat == STATUS or chat.server == NEWSLETTER or parts <= UNWRITTEN:
        return None
    written = ProviderEvent(
        key=f"written:{event.Info.ID}", kind=EventKind.WRITTEN, at=from_milliseconds(event.Info.Timestamp)
    )
    # A broadcast list is many chats, and a hidden id none that we know.
    return written if chat.server in (BROADCAST, HIDDEN) else in_chat(written, chat)


def reply_event(event: Any, sender: Jid) -> ProviderEvent | None:
    """Return the event of a person's message; `sender` has a number where WhatsApp gives one."""
    # whatsmeow takes the envelope of an edit off; an empty one has no text.
    source, edited = event.Info.MessageSource, text_of(event.Message.protocolMessage.editedMessage)
    text = edited or text_of(event.Message)
    if text is None or source.IsFromMe or source.Chat.Server in NOT_CHATS:
        return None
    reply = ProviderEvent(
        # The same message comes twice with the same id: stored once.
        key=f"message:{event.Info.ID}",
        kind=EventKind.REPLY,
        at=from_milliseconds(event.Info.Timestamp),
        address=sender.address,
        group=plain(source.Chat).address if source.IsGroup else "",
        provider_id=quoted(event.Message),
        text=text,
        detail={"seen_as": event.Info.Pushname} if event.Info.Pushname else {},
    )
    return as_edit(reply, edited) if edited else reply


def visible_sender(source: Any) -> Jid:
    """Return the sender. WhatsApp often names a person by a hidden id and gives the number beside it."""
    sender, other = plain(source.Sender), plain(source.SenderAlt)
    return other if sender.server == HIDDEN and other.server == PEOPLE else sender


def visible_chat(source: Any) -> Jid:
    """Return the chat; a person's by number, where WhatsApp gives that beside a hidden id."""
    chat = plain(source.Chat)
    return visible_sender(source) if chat == plain(source.Sender) else chat


def receipt_event(receipt: Receipt, message: SentMessage) -> ProviderEvent:
    """Return the event that a message of ours arrived or was read; in a group the first member counts."""
    arrived = ProviderEvent(
        key=f"{receipt.kind}:{message.provider_id}",
        kind=receipt.kind,
        at=from_seconds(receipt.at),
        provider_id=message.provider_id,
        message_id=message.message_id,
    )
    return in_chat(arrived, Jid(*message.chat.split("@", 1)))


def late_answer_event(message_id: str, chat: Jid, outcome: Sent | NotSent, now: datetime) -> ProviderEvent:
    """Return the event of an answer that came after the sender had stopped waiting."""
    return in_chat(_acknowledged(message_id, outcome, now), chat)


def _acknowledged(message_id: str, outcome: Sent | NotSent, now: datetime) -> ProviderEvent:
    if isinstance(outcome, Sent):
        # Accepted by WhatsApp's server, which is not yet a receipt: `by` says so.
        return ProviderEvent(
            key=f"acknowledged:{outcome.provider_id}",
            kind=EventKind.DELIVERED,
            at=now,
            message_id=message_id,
            provider_id=outcome.provider_id,
            detail={"by": "server"},
        )
    return ProviderEvent(
        key=f"refused:{message_id}:{now.isoformat()}",
        kind=EventKind.BOUNCE,
        at=now,
        message_id=message_id,
        text=outcome.detail,
        detail={"kind": outcome.kind.value, "certain": True},
    )


def in_chat(event: ProviderEvent, chat: Jid) -> ProviderEvent:
    """Return the event with the chat that it is about."""
    if chat.is_group:
        return replace(event, group=chat.address)
    return replace(event, address=chat.address)


def from_milliseconds(value: int) -> datetime | None:
    return datetime.fromtimestamp(value / 1000, UTC) if value > 0 else None


def from_seconds(value: int) -> datetime | None:
    return datetime.fromtimestamp(value, UTC) if value > 0 else None
