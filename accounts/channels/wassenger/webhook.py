"""Webhook of Wassenger.

Wassenger documents two shapes of the same events. In the flat one, `data` is the message and receipts come as
`message:out:ack` (wassengerhq/whatsapp-chatgpt-bot, and captured requests); in the nested one, the message is in
`data.message` with its chat beside it, and each kind of receipt has an event of its own (wassengerhq/whatsapp-skills,
wassenger-webhooks). Both are read. A webhook that has a secret is signed; without one, the account's unguessable
address proves the sender.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from accounts.channels.base import AccountConfig, Kind
from accounts.channels.http import as_moment, as_text, dig
from accounts.channels.paired import address_of, is_group, is_hidden, number_of
from accounts.channels.provider_events import (
    EventKind,
    HookRequest,
    ProviderEvent,
    SessionState,
    Unreadable,
    Webhook,
    json_object,
    moment,
    signed,
)

SIGNATURE = "x-wassenger-signature"
KIND_OF_ACK = {"delivered": EventKind.DELIVERED, "read": EventKind.READ, "played": EventKind.READ}
STATES = {
    "online": SessionState.ACTIVE,
    "offline": SessionState.DISCONNECTED,
    "timeout": SessionState.DISCONNECTED,
}
#: Types of messages that a person did not write, by WhatsApp Web's names.
NOT_WRITTEN = {"reaction", "revoked", "protocol", "ciphertext", "call_log", "e2e_notification", "poll_update"}


class WassengerWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        secret = account.credentials.get("webhook_secret")
        return not secret or signed(request, secret, request.headers.get(SIGNATURE, "").removeprefix("sha256="))

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        body = json_object(request)
        name, data = body.get("event"), body.get("data")
        if not isinstance(name, str) or not isinstance(data, dict):
            raise Unreadable("The body has no event with its data.")
        # A webhook that is set for the whole team gets the events of every device.
        if device_of(body) not in ("", account.config.get("device")):
            return []
        event = READERS.get(name, nothing)(flat(data), body)
        return [event] if event else []


def device_of(body: dict[str, Any]) -> str:
    """Return the device that an event is about; empty where it names none."""
    device = body.get("device")
    return as_text(dig(device, "id")) if isinstance(device, dict) else as_text(device)


def flat(data: dict[str, Any]) -> dict[str, Any]:
    """Return the message of an event in the flat shape."""
    message = data.get("message")
    if not isinstance(message, dict):
        return data
    chat = message.get("chat") or dig(data, "chat", "id")
    return {
        **message,
        "flow": "outbound" if message.get("fromMe") is True else "inbound",
        "chat": {"id": chat, "contact": dig(data, "chat", "contact"), "lid": dig(data, "chat", "lid")},
        "meta": {"isGroup": is_group(chat)},
    }


def nothing(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    return None


def happened(value: Any) -> datetime | None:
    """Return a moment that is given in seconds or, in the nested shape, as a text."""
    return moment(value) or (as_moment(value) if isinstance(value, str) else None)


def reply(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    message = as_text(data.get("id"))
    if not message or data.get("flow") == "outbound" or as_text(data.get("type")) in NOT_WRITTEN:
        return None
    in_group, chat = dig(data, "meta", "isGroup") is True, dig(data, "chat", "id")
    return ProviderEvent(
        key=f"message:{message}",
        kind=EventKind.REPLY,
        at=happened(data.get("timestamp")),
        # Which field names the sender in a group is not documented.
        address=number_of(data.get("author")) if in_group else sender(data),
        group=address_of(chat) if in_group and is_group(chat) else "",
        provider_id=quoted(data),
        text=as_text(data.get("body")),
        detail={} if in_group else hidden_id(data),
    )


def sender(data: dict[str, Any]) -> str:
    """Return the number of the person who wrote in a one-to-one chat; empty where it is not given."""
    jid, number = data.get("from"), data.get("fromNumber") or dig(data, "chat", "contact", "phone")
    return number_of(jid, number, dig(data, "chat", "id")) if is_hidden(jid) else number_of(number or jid)


def hidden_id(data: dict[str, Any]) -> dict[str, str]:
    """Return the hidden id of the person in a one-to-one chat, where it is told, beside their number or instead."""
    places = (data.get("from"), dig(data, "chat", "id"), dig(data, "chat", "lid"))
    return next(({"jid": as_text(jid)} for jid in places if is_hidden(jid)), {})


def quoted(data: dict[str, Any]) -> str:
    """Return WhatsApp's id of the message that it quotes; empty where it only follows.

    The id may be WhatsApp Web's own, which has the chat before it: "true_491760@c.us_3EB0CC".
    """
    about = data.get("quoted") or data.get("quote")
    places = ("waId", "wid", "id") if isinstance(about, dict) else ()
    named = next(filter(None, (as_text(dig(about, place)) for place in places)), "") or as_text(about)
    parts = named.split("_")
    return parts[2] if len(parts) > 2 and "@" in parts[1] else named


def receipt(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    """Return the event of a receipt: `message:out:ack` says which it is, others have it in their name."""
    ack = as_text(data.get("ack")) if body["event"] == "message:out:ack" else body["event"].rpartition(":")[2]
    return about(data, body, KIND_OF_ACK[ack], ack) if ack in KIND_OF_ACK else None


def failure(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    return about(data, body, EventKind.BOUNCE, "failed")


def about(data: dict[str, Any], body: dict[str, Any], kind: EventKind, name: str) -> ProviderEvent | None:
    """Return an event about a message of ours, named by WhatsApp's id, by Wassenger's or by ours."""
    message = as_text(data.get("waId")) or as_text(data.get("id"))
    if not message:
        return None
    bounced, error = kind is EventKind.BOUNCE, data.get("error")
    return ProviderEvent(
        key=f"{name}:{message}",
        kind=kind,
        at=happened(body.get("created") or body.get("createdAt")),
        provider_id=message,
        message_id=as_text(data.get("reference")),
        text=as_text(data.get("failureReason")) or as_text(dig(error, "message")) or as_text(error),
        detail={"kind": Kind.UNKNOWN.value} if bounced else {},
    )


def session(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    status = as_text(dig(data, "session", "status")) or as_text(data.get("status"))
    if status not in STATES:
        return None
    return ProviderEvent(
        key=f"session:{status}:{as_text(body.get('created'))}",
        kind=EventKind.SESSION,
        at=moment(body.get("created")),
        text=f"The device is {status}.",
        detail={"state": STATES[status].value},
    )


READERS = {
    "message:in:new": reply,
    "message:out:ack": receipt,
    "message:out:delivered": receipt,
    "message:out:read": receipt,
    "message:out:failed": failure,
    "number:session": session,
}
