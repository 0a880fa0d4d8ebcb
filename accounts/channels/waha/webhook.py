"""Webhook of WAHA.

The same message may come twice under different event ids, once as @lid and once as @c.us: only WhatsApp's own id of it
is stable. Often it comes once, as @lid, with the number in the engine's own data beside it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from accounts.channels.base import AccountConfig, Kind
from accounts.channels.contents import content_of, edited_text, is_choice, is_reply, text_of
from accounts.channels.http import as_moment, as_text, dig
from accounts.channels.paired import DEVICES, address_of, is_group, number_of
from accounts.channels.provider_events import (
    EventKind,
    HookRequest,
    ProviderEvent,
    SessionState,
    Unreadable,
    Webhook,
    as_edit,
    json_object,
    milliseconds,
    moment,
    signed,
)
from accounts.channels.waha.channel import DEFAULT_SESSION
from accounts.channels.waha.transport import short_id
from accounts.channels.whatsapp.bridge.conditions import refused_by_server

KIND_OF_ACK = {-1: EventKind.BOUNCE, 2: EventKind.DELIVERED, 3: EventKind.READ, 4: EventKind.READ}
#: FAILED is a logout, a ban or a code that was not scanned: WAHA does not say which, and each needs a person.
STATES = {
    "WORKING": SessionState.ACTIVE,
    "STARTING": SessionState.DISCONNECTED,
    "STOPPED": SessionState.DISCONNECTED,
    "SCAN_QR_CODE": SessionState.UNPAIRED,
    "PASSKEY_REQUIRED": SessionState.UNPAIRED,
    "PASSKEY_CONFIRMATION_REQUIRED": SessionState.UNPAIRED,
    "FAILED": SessionState.UNPAIRED,
}
CODE = re.compile(r"[0-9]{3}")
#: What WhatsApp Web calls messages that no person wrote, and those that it could not decrypt yet.
NOTICES = {
    "call_log",
    "ciphertext",
    "e2e_notification",
    "gp2",
    "notification",
    "notification_template",
    "pinned_message",
    "protocol",
    "reaction",
    "revoked",
}


class WahaWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        return signed(request, account.credentials.get("hmac_key"), request.headers.get("x-webhook-hmac"), "sha512")

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        body = json_object(request)
        name, payload = body.get("event"), body.get("payload")
        if not isinstance(name, str) or not isinstance(payload, dict):
            raise Unreadable("The body has no event with its payload.")
        # A webhook that is set for the whole server gets the events of every session.
        if body.get("session") not in (None, account.config.get("session") or DEFAULT_SESSION):
            return []
        event = READERS.get(name, nothing)(payload, body)
        return [event] if event else []


def nothing(payload: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    return None


def reply(payload: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    message, chat = short_id(as_text(payload.get("id"))), payload.get("from")
    content, edited = content_in(payload), edited_in(payload, body)
    if not message or payload.get("fromMe") is not False or (content is None and not edited):
        return None
    in_group = is_group(chat)
    sender = payload.get("participant") if in_group else chat
    # GOWS names the number in one place, NOWEB in another; WEBJS does not name it.
    beside = dig(payload, "_data", "Info", "SenderAlt")
    event = ProviderEvent(
        key=f"message:{message}",
        kind=EventKind.REPLY,
        at=moment(payload.get("timestamp")),
        address=number_of(sender, beside, *in_key(payload, in_group)),
        group=address_of(chat) if in_group else "",
        provider_id=short_id(as_text(dig(payload, "replyTo", "id"))),
        text=chosen(payload, content or {}) or as_text(payload.get("body")),
        detail={"jid": as_text(sender)},
    )
    return as_edit(event, edited) if edited else event


def edited_in(payload: dict[str, Any], body: dict[str, Any]) -> str:
    """Return what a person changed an earlier message to, in WAHA's own event or in a message of the protocol."""
    if body.get("event") == "message.edited":
        return as_text(payload.get("body"))
    return edited_text(content_of(dig(payload, "_data", "message") or dig(payload, "_data", "Message")))


def content_in(payload: dict[str, Any]) -> dict[str, Any] | None:
    """Return the content of a message as the engine has it, {} where it passes none on; None if it is not a reply.

    WAHA has events of its own for reactions, edits, deletions and votes, but not every version keeps them out of the
    messages, and changes of a chat's settings come as messages too.
    """
    data = payload.get("_data")
    if not isinstance(data, dict):
        return {}
    if as_text(data.get("type")) in NOTICES:
        return None
    # NOWEB calls it "message", GOWS "Message"; WEBJS has only a type.
    raw = [data[name] for name in ("message", "Message") if name in data]
    content = content_of(raw[0]) if raw else {}
    return content if not raw or is_reply(content) else None


def chosen(payload: dict[str, Any], content: dict[str, Any]) -> str:
    """Return the text of a chosen button or row. In the body it is followed by an id: "STOP [b2]"."""
    in_words = as_text(dig(payload, "interactiveResponse", "selectedText"))
    return in_words or (text_of(content) if is_choice(content) else "")


def in_key(payload: dict[str, Any], in_group: bool) -> list[Any]:
    """Return the person's other names in the message's key, which NOWEB passes on: those of newer versions first."""
    names = ("participantAlt", "participantPn") if in_group else ("remoteJidAlt", "senderPn")
    return [dig(payload, "_data", "key", name) for name in names]


def receipt(payload: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    message, ack = short_id(as_text(payload.get("id"))), payload.get("ack")
    kind = KIND_OF_ACK.get(ack) if isinstance(ack, int) else None
    if not message or kind is None:
        return None
    at, chat = milliseconds(body.get("timestamp")), payload.get("from")
    in_group = is_group(chat)
    person = payload.get("participant") if in_group else chat
    by_device = payload.get("fromMe") is True and message.startswith(DEVICES)
    refused = refusal(payload.get("error"), at) if kind is EventKind.BOUNCE else None
    return ProviderEvent(
        # Every try of a text has the same id: a second one that is refused, too, is told by its time.
        key=f"ack:{message}:{ack}" + (f":{as_text(body.get('timestamp'))}" if kind is EventKind.BOUNCE else ""),
        kind=kind,
        at=at,
        address=number_of(person, *in_key(payload, in_group)),
        group=address_of(chat) if in_group else "",
        provider_id=message,
        text=refused[0] if refused else "",
        detail=refused[1] if refused else {"by_device": by_device},
    )


def refusal(error: Any, at: datetime | None) -> tuple[str, dict[str, Any]]:
    """Return the words and the meaning of a late refusal. Newer versions of NOWEB pass on WhatsApp's code; with one,
    nothing went out."""
    words = "WhatsApp refused the message after the gateway had accepted it"
    code = as_text(dig(error, "code"))
    if not CODE.fullmatch(code):
        return f"{words}.", {"kind": Kind.UNKNOWN.value}
    kind = refused_by_server(int(code), words).kind
    until = as_moment(dig(error, "until"))
    detail: dict[str, Any] = {"kind": kind.value, "certain": True}
    if until is not None and at is not None:
        detail["retry_after"] = max(0.0, (until - at).total_seconds())
    ends = f" until {until:%Y-%m-%d %H:%M %Z}" if until else ""
    blocked = f": this number may not begin new chats{ends}" if kind is Kind.NEW_CHATS_BLOCKED else ""
    return f"{words} (error {code}){blocked}.", detail


def session(payload: dict[str, Any], body: dict[str, Any]) -> ProviderEvent | None:
    status = as_text(payload.get("status"))
    if status not in STATES:
        return None
    since = last_change(payload) or body.get("timestamp")
    return ProviderEvent(
        key=f"session:{status}:{since}",
        kind=EventKind.SESSION,
        at=milliseconds(since),
        text=f"The session is {status}.",
        detail={"state": STATES[status].value},
    )


def last_change(payload: dict[str, Any]) -> int:
    """Return the time of the session's last change in milliseconds, the same in every copy of the event; 0 if not
    given."""
    statuses = payload.get("statuses")
    moments = [dig(entry, "timestamp") for entry in statuses] if isinstance(statuses, list) else []
    return max((at for at in moments if isinstance(at, int)), default=0)


READERS = {
    "message": reply,
    "message.any": reply,
    "message.edited": reply,
    "message.ack": receipt,
    "message.ack.group": receipt,
    "session.status": session,
}
