"""Webhook of Wassenger.

It is unclear whether Wassenger signs. Without a secret, the account's unguessable address proves the sender; where one
was entered, nothing is believed without its signature.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import AccountConfig, Kind
from accounts.channels.events import (
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
from accounts.channels.http import as_text, dig
from accounts.channels.paired import address_of, is_group, is_hidden, number_of

SIGNATURE = "x-wassenger-signature"
KIND_OF_ACK = {"delivered": EventKind.DELIVERED, "read": EventKind.READ, "played": EventKind.READ}
STATES = {
    "online": SessionState.ACTIVE,
    "offline": SessionState.DISCONNECTED,
    "timeout": SessionState.DISCONNECTED,
}


class WassengerWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        secret = account.credentials.get("webhook_secret")
        return not secret or signed(request, secret, request.headers.get(SIGNATURE, "").removeprefix("sha256="))

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        body = json_object(request)
        name, data = body.get("event"), body.get("data")
        if not isinstance(name, str) or not isinstance(data, dict):
            raise Unreadable("The body has no event with its data.")
        # A webhook that is set for the whole team hears of every device.
        if dig(body, "device", "id") not in (None, account.config.get("device")):
            return []
        event = READERS.get(name, nothing)(data, body)
        return [event] if event else []


def nothing(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    return None


def reply(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    message = as_text(data.get("id"))
    if not message or data.get("flow") == "outbound":
        return None
    in_group, chat = dig(data, "meta", "isGroup") is True, dig(data, "chat", "id")
    return ProviderEvent(
        key=f"message:{message}",
        kind=EventKind.REPLY,
        at=moment(data.get("timestamp")),
        # Which field names the sender in a group is not documented.
        address=number_of(data.get("author")) if in_group else sender(data),
        group=address_of(chat) if in_group and is_group(chat) else "",
        text=as_text(data.get("body")),
    )


def sender(data: dict[str, Any]) -> str:
    """Return the number of the person who wrote in a one-to-one chat; empty where it is not given."""
    jid, number = data.get("from"), data.get("fromNumber")
    return number_of(jid, number, dig(data, "chat", "id")) if is_hidden(jid) else number_of(number or jid)


def receipt(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    ack = as_text(data.get("ack"))
    return about(data, body, KIND_OF_ACK[ack], ack) if ack in KIND_OF_ACK else None


def failure(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    return about(data, body, EventKind.BOUNCE, "failed")


def about(data: dict[str, Any], body: dict[str, Any], kind: EventKind, name: str) -> ProviderEvent | None:
    """Return an event about a message of ours, named by WhatsApp's id, by Wassenger's or by ours."""
    message = as_text(data.get("waId")) or as_text(data.get("id"))
    if not message:
        return None
    bounced = kind is EventKind.BOUNCE
    return ProviderEvent(
        key=f"{name}:{message}",
        kind=kind,
        at=moment(body.get("created")),
        provider_id=message,
        message_id=as_text(data.get("reference")),
        text=as_text(data.get("failureReason")) or as_text(data.get("error")),
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
    "message:out:failed": failure,
    "number:session": session,
}
