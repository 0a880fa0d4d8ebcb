"""What the client hears, as events for the account: replies and receipts. WhatsApp's own oddities end here."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from accounts.channels.base import NotSent, Sent
from accounts.channels.events import EventKind, ProviderEvent
from accounts.channels.paired import HIDDEN, PEOPLE, Jid
from accounts.channels.whatsapp.bridge.journal import Message, Receipt

#: neonize's numbers for kinds of receipt.
RECEIPTS = {1: EventKind.DELIVERED, 4: EventKind.READ, 6: EventKind.READ}

SPOKEN = ("imageMessage", "videoMessage", "documentMessage")
#: What a reply without words is called.
WORDLESS = {
    "imageMessage": "picture",
    "videoMessage": "video",
    "documentMessage": "file",
    "audioMessage": "voice",
    "stickerMessage": "sticker",
}


def plain(jid: Any) -> Jid:
    return Jid(jid.User, jid.Server)


def text_of(content: Any) -> str | None:
    """What was said; None for what is no message of a person: reactions, keys, and the empty first copy that a
    sender's first message in a group comes with."""
    if content.conversation:
        return str(content.conversation)
    if content.extendedTextMessage.text:
        return str(content.extendedTextMessage.text)
    for field, name in WORDLESS.items():
        carried = getattr(content, field)
        if carried.ListFields():
            caption = getattr(carried, "caption", "") if field in SPOKEN else ""
            return str(caption) or f"({name})"
    return None


def quoted(content: Any) -> str:
    """The id of the message that it answers to; empty where it only follows."""
    carriers = (getattr(content, field) for field in ("extendedTextMessage", *WORDLESS))
    return next((str(one.contextInfo.stanzaID) for one in carriers if one.contextInfo.stanzaID), "")


def reply(event: Any, sender: Jid) -> ProviderEvent | None:
    """A person's message; `sender` is who wrote it, with a number where WhatsApp tells one."""
    source, text = event.Info.MessageSource, text_of(event.Message)
    if text is None or source.IsFromMe or source.Chat.Server in ("broadcast", "newsletter"):
        return None
    return ProviderEvent(
        # The same message comes twice with the same id: stored once.
        key=f"message:{event.Info.ID}",
        kind=EventKind.REPLY,
        at=milliseconds(event.Info.Timestamp),
        address=sender.address,
        group=plain(source.Chat).address if source.IsGroup else "",
        provider_id=quoted(event.Message),
        text=text,
        detail={"seen_as": event.Info.Pushname} if event.Info.Pushname else {},
    )


def visible_sender(source: Any) -> Jid:
    """Who wrote. WhatsApp often names a person by a hidden id and gives the number beside it."""
    sender, other = plain(source.Sender), plain(source.SenderAlt)
    return other if sender.server == HIDDEN and other.server == PEOPLE else sender


def visible_chat(source: Any) -> Jid:
    """Where it was; a person's chat by number, where WhatsApp gives that beside a hidden id."""
    chat = plain(source.Chat)
    return visible_sender(source) if chat == plain(source.Sender) else chat


def receipt(told: Receipt, message: Message) -> ProviderEvent:
    """That a message of ours arrived or was read, by somebody: in a group the first one counts."""
    arrived = ProviderEvent(
        key=f"{told.kind}:{message.provider_id}",
        kind=told.kind,
        at=seconds(told.at),
        provider_id=message.provider_id,
        message_id=message.message_id,
    )
    return in_chat(arrived, Jid(*message.chat.split("@", 1)))


def late(message_id: str, chat: Jid, outcome: Sent | NotSent, now: datetime) -> ProviderEvent:
    """The answer to a message whose sender no longer waited for it."""
    return in_chat(_acknowledged(message_id, outcome, now), chat)


def _acknowledged(message_id: str, outcome: Sent | NotSent, now: datetime) -> ProviderEvent:
    if isinstance(outcome, Sent):
        # Taken by WhatsApp's server, which is not yet a receipt: `by` says so.
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
    """The event, with the chat it is about."""
    if chat.is_group:
        return replace(event, group=chat.address)
    return replace(event, address=chat.address)


def milliseconds(value: int) -> datetime | None:
    return datetime.fromtimestamp(value / 1000, UTC) if value > 0 else None


def seconds(value: int) -> datetime | None:
    return datetime.fromtimestamp(value, UTC) if value > 0 else None
