"""Webhook of Meta: reports that are signed over the raw body, repeated for days, and come in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accounts.channels.base import AccountConfig, Kind
from accounts.channels.cloud.transport import meaning_of, words_of
from accounts.channels.events import (
    EventKind,
    HookRequest,
    ProviderEvent,
    SessionState,
    Unreadable,
    Webhook,
    json_object,
    moment,
    same_secret,
    signed,
)
from accounts.channels.http import as_text, dig
from accounts.channels.paired import address_of

KIND_OF_STATUS = {
    "delivered": EventKind.DELIVERED,
    "read": EventKind.READ,
    "played": EventKind.READ,
    "failed": EventKind.BOUNCE,
}
#: where a message has its text, by its type
TEXTS = (
    ("text", "body"),
    ("button", "text"),
    ("interactive", "button_reply", "title"),
    ("image", "caption"),
    ("video", "caption"),
    ("document", "caption"),
)
#: states of a business account (waba_ban_state)
BANS = {"DISABLE": SessionState.BANNED, "REINSTATE": SessionState.ACTIVE}


class CloudWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        signature = request.headers.get("x-hub-signature-256", "")
        return signature.startswith("sha256=") and signed(
            request, account.credentials.get("app_secret"), signature.removeprefix("sha256=")
        )

    def greeting(self, request: HookRequest, account: AccountConfig) -> str | None:
        """Answer Meta's question whether the address is ours; it carries the token that was entered there."""
        ours = same_secret(account.credentials.get("verify_token"), request.query.get("hub.verify_token"))
        return request.query.get("hub.challenge") if ours and request.query.get("hub.mode") == "subscribe" else None

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        entries = json_object(request).get("entry")
        if not isinstance(entries, list):
            raise Unreadable("The body has no entries.")
        number = as_text(account.config.get("phone_number_id"))
        return [event for entry in entries for change in changes(entry) for event in events(change, entry, number)]


def changes(entry: Any) -> list[Any]:
    listed = dig(entry, "changes")
    return listed if isinstance(listed, list) else []


def events(change: Any, entry: Any, number: str) -> Iterator[ProviderEvent]:
    value = dig(change, "value")
    if dig(change, "field") == "account_update":
        yield from ban(value, entry)
    # One app may have several numbers, and one webhook for all of them.
    elif as_text(dig(value, "metadata", "phone_number_id")) == number:
        yield from (reply(message) for message in listed(value, "messages") if as_text(dig(message, "id")))
        yield from (receipt(status) for status in listed(value, "statuses") if is_receipt(status))


def listed(value: Any, name: str) -> list[Any]:
    items = dig(value, name)
    return items if isinstance(items, list) else []


def reply(message: Any) -> ProviderEvent:
    texts = [as_text(dig(message, *place)) for place in TEXTS]
    return ProviderEvent(
        key=f"message:{as_text(message['id'])}",
        kind=EventKind.REPLY,
        at=moment(message.get("timestamp")),
        address=address_of(message.get("from")),
        group=as_text(message.get("group_id")),
        provider_id=as_text(dig(message, "context", "id")),
        text=next(filter(None, texts), ""),
        # Meta shows no number of a person with a user name.
        detail={"user_id": as_text(message.get("user_id"))},
    )


def is_receipt(status: Any) -> bool:
    return bool(as_text(dig(status, "id"))) and as_text(dig(status, "status")) in KIND_OF_STATUS


def receipt(status: Any) -> ProviderEvent:
    name, message = as_text(status["status"]), as_text(status["id"])
    in_group = status.get("recipient_type") == "group"
    # A member of the group; each has separate receipts.
    member = as_text(status.get("recipient_participant_id"))
    error = next(iter(listed(status, "errors")), None)
    return ProviderEvent(
        key=":".join(filter(None, ["status", message, name, member])),
        kind=KIND_OF_STATUS[name],
        at=moment(status.get("timestamp")),
        address=address_of(member if in_group else status.get("recipient_id")),
        group=as_text(status.get("recipient_id")) if in_group else "",
        provider_id=message,
        message_id=as_text(status.get("biz_opaque_callback_data")),
        text=words_of(error) if name == "failed" else "",
        detail=late_refusal(error) if name == "failed" else {},
    )


def late_refusal(error: Any) -> dict[str, Any]:
    """Return what an error means that came after the message was accepted; it is the same as at once."""
    meaning = meaning_of(dig(error, "code"))
    if meaning is None:
        return {"kind": Kind.UNKNOWN.value}
    wait = {} if meaning.wait is None else {"retry_after": meaning.wait}
    return {"kind": meaning.kind.value, **wait}


def ban(value: Any, entry: Any) -> Iterator[ProviderEvent]:
    """Yield the event of a business account that was disabled or reinstated."""
    states = dig(value, "ban_info", "waba_ban_state")
    for state in states if isinstance(states, list) else [states]:
        if isinstance(state, str) and state in BANS:
            yield ProviderEvent(
                key=f"account:{state}:{as_text(dig(entry, 'time'))}",
                kind=EventKind.SESSION,
                at=moment(dig(entry, "time")),
                text=f"Meta reports for the business account: {state}.",
                detail={"state": BANS[state].value},
            )
