"""Webhook of Unipile, for mail and LinkedIn.

It does not sign: a secret header of ours proves that it is Unipile. Our own messages come back as received, and
reconnecting an account replays old ones.
"""

from __future__ import annotations

import time
from typing import Any

from accounts.addresses import MAILBOX, PROFILE, AddressError, normalise
from accounts.channels import machine_mail
from accounts.channels.base import AccountConfig
from accounts.channels.http import as_moment, as_text, dig
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
    same_secret,
)
from accounts.channels.reply_text import own_words, written

STATES = {
    "OK": SessionState.ACTIVE,
    "CREATION_SUCCESS": SessionState.ACTIVE,
    "RECONNECTED": SessionState.ACTIVE,
    "SYNC_SUCCESS": SessionState.ACTIVE,
    "CREDENTIALS": SessionState.UNPAIRED,
    "PERMISSIONS": SessionState.UNPAIRED,
    "DELETED": SessionState.UNPAIRED,
    "STOPPED": SessionState.DISCONNECTED,
    "ERROR": SessionState.DISCONNECTED,
    "CONNECTING": SessionState.DISCONNECTED,
}
RECEIPTS = {"message_delivered": EventKind.DELIVERED, "message_read": EventKind.READ}
#: A state has neither id nor time: the same state counts as new after an hour.
STATE_SECONDS = 3600


class UnipileWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        return same_secret(account.credentials.get("webhook_secret"), request.headers.get(CRIER_HEADER))

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        body = json_object(request)
        status = body.get("AccountStatus")
        name = "AccountStatus" if isinstance(status, dict) else body.get("event")
        if not isinstance(name, str):
            raise Unreadable("The body has no event.")
        event = status if isinstance(status, dict) else body
        # One webhook may serve all accounts of the workspace.
        if as_text(event.get("account_id")) != as_text(account.config.get("account_id")):
            return []
        read = READERS.get(name, nothing)(event)
        return [read] if read else []


def nothing(event: dict[str, Any]) -> ProviderEvent | None:
    return None


def message(event: dict[str, Any]) -> ProviderEvent | None:
    ident, sender = as_text(event.get("message_id")), dig(event, "sender", "attendee_provider_id")
    if not ident or not sender or sender == dig(event, "account_info", "user_id"):
        return None
    return ProviderEvent(
        key=f"message_received:{ident}",
        kind=EventKind.REPLY,
        at=as_moment(event.get("timestamp")),
        address=profile_of(event.get("sender")),
        text=as_text(event.get("message")),
        detail={"seen_as": as_text(dig(event, "sender", "attendee_name")), "member": as_text(sender)},
    )


def edit(event: dict[str, Any]) -> ProviderEvent | None:
    written_before = message(event)
    return as_edit(written_before, written_before.text) if written_before else None


def profile_of(sender: Any) -> str:
    """Return the profile's address where the event names it, else the one with the member's id."""
    for place in ("attendee_public_identifier", "attendee_profile_url", "attendee_provider_id"):
        try:
            return normalise(PROFILE, as_text(dig(sender, place)))
        except AddressError:
            continue
    return ""


def mail(event: dict[str, Any]) -> ProviderEvent | None:
    ident = as_text(event.get("message_id")) or as_text(event.get("email_id"))
    try:
        address = normalise(MAILBOX, as_text(dig(event, "from_attendee", "identifier")))
    except AddressError:
        return None
    if not ident:
        return None
    body, subject = as_text(event.get("body_plain")), as_text(event.get("subject"))
    said, changed = written(body), not machine_mail.REPLY_PREFIX.match(subject)
    detail = {"seen_as": as_text(dig(event, "from_attendee", "display_name"))}
    # Unipile passes on no headers. A person who opts out, or replies to a message with such a subject, is told from a
    # program later, by what they say and by our subject (event_store, replies.automatic).
    what = machine_mail.by_subject(subject)
    if what:
        until = machine_mail.away_until(said) or machine_mail.away_until(subject)
        detail |= {"what": what, "away_until": until, "subject": machine_mail.without_prefix(subject)}
    return ProviderEvent(
        key=f"mail_received:{ident}",
        kind=EventKind.AUTOMATIC if what else EventKind.REPLY,
        at=as_moment(event.get("date")),
        address=address,
        # An empty mail with a subject of its own says what the subject says.
        text=said or (subject if changed else "") or own_words(body) or subject,
        detail=detail,
    )


def receipt(event: dict[str, Any]) -> ProviderEvent | None:
    ident, name = as_text(event.get("message_id")), as_text(event.get("event"))
    if not ident:
        return None
    return ProviderEvent(
        key=f"{name}:{ident}", kind=RECEIPTS[name], at=as_moment(event.get("timestamp")), provider_id=ident
    )


def state(event: dict[str, Any]) -> ProviderEvent | None:
    name = as_text(event.get("message"))
    if name not in STATES:
        return None
    return ProviderEvent(
        key=f"status:{name}:{int(time.time() // STATE_SECONDS)}",
        kind=EventKind.SESSION,
        text=f"Unipile says that the account is {name}.",
        detail={"state": STATES[name].value},
    )


READERS = {
    "message_received": message,
    "message_edited": edit,
    "message_delivered": receipt,
    "message_read": receipt,
    "mail_received": mail,
    "AccountStatus": state,
}
