"""Webhook of Evolution. It does not sign: a secret header of ours proves that it is the gateway.

`key.id` and `keyId` are WhatsApp's id of a message; `messageId` is a row of the gateway's database.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import AccountConfig, Kind
from accounts.channels.contents import content_of, edited_text, is_reply, quoted_in, text_of
from accounts.channels.http import as_text, dig
from accounts.channels.paired import DEVICES, ENDINGS, address_of, is_group, number_of
from accounts.channels.provider_events import (
    CRIER_HEADER,
    EventKind,
    HookRequest,
    ProviderEvent,
    SessionState,
    Unreadable,
    Webhook,
    as_edit,
    json_object,
    moment,
    same_secret,
)

KIND_OF_STATUS = {
    "ERROR": EventKind.BOUNCE,
    "DELIVERY_ACK": EventKind.DELIVERED,
    "READ": EventKind.READ,
    "PLAYED": EventKind.READ,
}
STATES = {
    "open": SessionState.ACTIVE,
    "connecting": SessionState.DISCONNECTED,
    "close": SessionState.DISCONNECTED,
    "refused": SessionState.UNPAIRED,  # the code was not scanned
}


class EvolutionWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        return same_secret(account.credentials.get("webhook_secret"), request.headers.get(CRIER_HEADER))

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        body = json_object(request)
        name, data = body.get("event"), body.get("data")
        if not isinstance(name, str) or not isinstance(data, dict):
            raise Unreadable("The body has no event with its data.")
        # A webhook that is set for the whole server gets the events of every instance.
        if body.get("instance") not in (None, account.config.get("instance")):
            return []
        event = READERS.get(name, nothing)(data, body)
        return [event] if event else []


def nothing(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    return None


def reply(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    message, chat = as_text(dig(data, "key", "id")), dig(data, "key", "remoteJid")
    content = content_of(data.get("message"))
    edited = edited_text(content)
    if not message or dig(data, "key", "fromMe") is not False or not (is_reply(content) or edited):
        return None
    event = ProviderEvent(
        key=f"message:{message}",
        kind=EventKind.REPLY,
        at=moment(data.get("messageTimestamp")),
        address=sender(data),
        group=address_of(chat) if is_group(chat) else "",
        # Newer versions name the quoted message beside the content, all of them inside it.
        provider_id=as_text(dig(data, "contextInfo", "stanzaId")) or quoted_in(content),
        text=text_of(content),
        # Beside a number, too: reports that name only the hidden id are then about a known person.
        detail={"seen_as": as_text(data.get("pushName")), "jid": as_text(jid_of_sender(data))},
    )
    return as_edit(event, edited) if edited else event


def jid_of_sender(data: dict[str, Any]) -> Any:
    return dig(data, "key", "participant" if is_group(dig(data, "key", "remoteJid")) else "remoteJid")


def sender(data: dict[str, Any]) -> str:
    """Return the sender's number. Where the id is hidden, versions name the number in different places beside it."""
    in_group = is_group(dig(data, "key", "remoteJid"))
    names = ("participantAlt", "participantPn") if in_group else ("remoteJidAlt",)
    return number_of(jid_of_sender(data), *(dig(data, "key", name) for name in (*names, "senderPn")))


def receipt(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    message, status = as_text(data.get("keyId")), as_text(data.get("status"))
    kind, chat = KIND_OF_STATUS.get(status), data.get("remoteJid")
    if not message or kind is None or data.get("fromMe") is False:
        return None
    bounced = kind is EventKind.BOUNCE
    by_device = data.get("fromMe") is True and message.startswith(DEVICES)
    return ProviderEvent(
        key=f"update:{message}:{status}",
        # date_time is local time labelled as UTC: better no time than a wrong one.
        kind=kind,
        address="" if is_group(chat) else number_of(chat, data.get("remoteJidAlt")),
        group=address_of(chat) if is_group(chat) else "",
        provider_id=message,
        text="WhatsApp refused the message after the gateway had accepted it." if bounced else "",
        detail={"kind": Kind.UNKNOWN.value} if bounced else {"by_device": by_device},
    )


def connection(data: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    name, reason = as_text(data.get("state")), data.get("statusReason")
    state = STATES.get(name)
    if state is None:
        return None
    ending = ENDINGS.get(reason) if name == "close" and isinstance(reason, int) else None
    return ProviderEvent(
        key=f"connection:{name}:{as_text(reason)}:{as_text(body.get('date_time'))}",
        kind=EventKind.SESSION,
        text=ending.words if ending else f"The instance is {name}" + (f" ({reason})." if reason else "."),
        detail={"state": (ending.state if ending else state).value},
    )


READERS = {"messages.upsert": reply, "messages.update": receipt, "connection.update": connection}
