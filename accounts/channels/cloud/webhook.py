"""Webhook of Meta: reports that are signed over the raw body, repeated for days, and come in any order.

Subscribe it to the fields `messages`, `account_update` and `user_preferences`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from accounts.channels.base import AccountConfig, Kind
from accounts.channels.cloud.transport import listed, meaning_of, words_of
from accounts.channels.http import as_text, dig
from accounts.channels.paired import address_of
from accounts.channels.provider_events import (
    ANOTHERS,
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
    signed,
)

KIND_OF_STATUS = {
    "delivered": EventKind.DELIVERED,
    "read": EventKind.READ,
    "played": EventKind.READ,
    "failed": EventKind.BOUNCE,
}
#: Types by which a person says something. Reactions, deletions, changed numbers and types that Meta does not support
#: are messages to Meta, and no replies; edits are reported as such.
SAID = ("text", "image", "video", "audio", "voice", "sticker", "document", "location", "contacts", "order")
#: The answers among interactive messages; others are permissions to call.
ANSWERS = ("button_reply", "list_reply", "nfm_reply")
#: where a message has its text, by its type
TEXTS = (
    ("text", "body"),
    ("button", "text"),
    ("interactive", "button_reply", "title"),
    ("interactive", "list_reply", "title"),
    ("image", "caption"),
    ("video", "caption"),
    ("document", "caption"),
)
#: Labels of the button that Meta adds to marketing templates. Other languages can be set as opt-out words.
STOP_BUTTONS = ("stop promotions", "parar promoções")

#: states of a business account (waba_ban_state)
BANS = {"DISABLE": SessionState.BANNED, "REINSTATE": SessionState.ACTIVE}
#: other reports about it, in words
ACCOUNT_EVENTS = {
    "ACCOUNT_DELETED": (SessionState.BANNED, "Meta reports that the business account was deleted."),
    # The phone that shares the number was changed or registered again. Meta reconnects it by itself.
    "ACCOUNT_OFFBOARDED": (
        SessionState.UNPAIRED,
        "Meta reports that the number is disconnected from the Cloud API, because its phone was changed or registered "
        "again. It is used again when Meta reports that it is reconnected.",
    ),
    "ACCOUNT_RECONNECTED": (SessionState.ACTIVE, "Meta reports that the number is reconnected."),
}


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
        ours = Ours.of(account)
        return [event for entry, change in changes(request) for event in events(change, entry, ours)]

    def about_others(self, request: HookRequest, account: AccountConfig) -> set[tuple[str, str]]:
        """Return the ids of other numbers of the app, and of business accounts, which may have several numbers."""
        ours, named = Ours.of(account), set()
        for entry, change in changes(request):
            value = dig(change, "value")
            if dig(change, "field") == "account_update":
                named.add(("business_account_id", business_of(value, entry)))
            else:
                named.add(("phone_number_id", as_text(dig(value, "metadata", "phone_number_id"))))
        return {(name, value) for name, value in named if value and (name, value) != ("phone_number_id", ours.number)}

    def learned(self, request: HookRequest, account: AccountConfig) -> dict[str, str]:
        """Return the id of the business account, which stands beside every report about a number of it."""
        ours = Ours.of(account)
        about_us = (
            as_text(dig(entry, "id"))
            for entry, change in changes(request)
            if as_text(dig(change, "value", "metadata", "phone_number_id")) == ours.number
        )
        business = "" if ours.business else next(filter(None, about_us), "")
        return {"business_account_id": business} if business else {}


class Ours(NamedTuple):
    """Meta's ids of the account: one app may have several numbers and business accounts, and one webhook for all."""

    number: str
    #: empty until it is learned: then a report about a business account is only noted, because it may be another one's
    business: str

    @classmethod
    def of(cls, account: AccountConfig) -> Ours:
        return cls(as_text(account.config.get("phone_number_id")), as_text(account.config.get("business_account_id")))


def changes(request: HookRequest) -> Iterator[tuple[Any, Any]]:
    """Yield what has changed, with the entry that each change is in. Raises Unreadable."""
    entries = json_object(request).get("entry")
    if not isinstance(entries, list):
        raise Unreadable("The body has no entries.")
    yield from ((entry, change) for entry in entries for change in listed(entry, "changes"))


def events(change: Any, entry: Any, ours: Ours) -> Iterator[ProviderEvent]:
    field, value = dig(change, "field"), dig(change, "value")
    if field == "account_update":
        if not ours.business:
            reports = account_reports(value, entry)
            yield from (replace(one, detail={**one.detail, **ANOTHERS}) for one in reports)
        elif ours.business == business_of(value, entry):
            yield from account_reports(value, entry)
    elif as_text(dig(value, "metadata", "phone_number_id")) == ours.number:
        yield from (said(message) for message in listed(value, "messages") if is_said(message))
        yield from filter(None, (edited(message) for message in listed(value, "messages") if is_edit(message)))
        yield from (receipt(status) for status in listed(value, "statuses") if is_receipt(status))
        yield from (preference(wish) for wish in listed(value, "user_preferences") if is_preference(wish))


# -- messages ---------------------------------------------------------------------------------------------


def is_said(message: Any) -> bool:
    """Return whether a person said something, so that it is a reply."""
    if not as_text(dig(message, "id")):
        return False
    kind = as_text(dig(message, "type"))
    if kind == "interactive":
        return any(dig(message, "interactive", answer) is not None for answer in ANSWERS)
    return kind == "button" or kind in SAID


def said(message: Any) -> ProviderEvent:
    """Return a reply, or an opt-out where the person pressed Meta's own button for it."""
    text = next(filter(None, (as_text(dig(message, *place)) for place in TEXTS)), "")
    stops = is_stop_button(dig(message, "button", "text")) or is_stop_button(dig(message, "button", "payload"))
    return ProviderEvent(
        key=f"message:{as_text(message['id'])}",
        kind=EventKind.UNSUBSCRIBE if stops else EventKind.REPLY,
        at=moment(message.get("timestamp")),
        address=address_of(message.get("from")),
        group=as_text(message.get("group_id")),
        provider_id=as_text(dig(message, "context", "id")),
        text=text,
        # Meta shows no number of a person with a user name.
        detail={"user_id": as_text(message.get("from_user_id")) or as_text(message.get("user_id"))},
    )


def is_edit(message: Any) -> bool:
    return bool(as_text(dig(message, "id"))) and as_text(dig(message, "type")) == "edit"


def edited(message: Any) -> ProviderEvent | None:
    """Return what a person changed an earlier message to."""
    changed = dig(message, "edit", "message")
    return as_edit(said(message), next(filter(None, (as_text(dig(changed, *place)) for place in TEXTS)), ""))


def is_stop_button(label: Any) -> bool:
    return " ".join(as_text(label).casefold().split()) in STOP_BUTTONS


def is_preference(wish: Any) -> bool:
    return dig(wish, "category") == "marketing_messages" and dig(wish, "value") in ("stop", "resume")


def preference(wish: Any) -> ProviderEvent:
    """Return WhatsApp's own marketing opt-out, or that the person takes it back."""
    value, person, at = wish["value"], as_text(wish.get("wa_id")), as_text(wish.get("timestamp"))
    return ProviderEvent(
        key=f"preference:{person or as_text(wish.get('user_id'))}:{value}:{at}",
        kind=EventKind.UNSUBSCRIBE,
        at=moment(at),
        address=address_of(person),
        text=as_text(wish.get("detail")),
        detail={"resumed": True} if value == "resume" else {},
    )


# -- receipts ---------------------------------------------------------------------------------------------


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
    """Return what an error means that came after the message was accepted; it is the same as at once.

    Meta reports `failed` where the message did not reach the person; with a documented code that is certain.
    """
    meaning = meaning_of(dig(error, "code"))
    if meaning is None:
        return {"kind": Kind.UNKNOWN.value}
    wait = {} if meaning.wait is None else {"retry_after": meaning.wait}
    return {"kind": meaning.kind.value, "certain": True, **wait}


# -- the business account ---------------------------------------------------------------------------------


def business_of(value: Any, entry: Any) -> str:
    """Return the id of the business account that a report is about; one to a partner has it inside."""
    return as_text(dig(value, "waba_info", "waba_id")) or as_text(dig(entry, "id"))


def account_reports(value: Any, entry: Any) -> Iterator[ProviderEvent]:
    """Yield what stops the account or lets it go on; other reports are about prices, partners and reviews."""
    name = as_text(dig(value, "event"))
    if name in ACCOUNT_EVENTS:
        state, words = ACCOUNT_EVENTS[name]
        yield session(name, entry, state, words)
    elif name == "ACCOUNT_RESTRICTION":
        yield from restriction(value, entry)
    states = dig(value, "ban_info", "waba_ban_state")
    for ban in states if isinstance(states, list) else [states]:
        if isinstance(ban, str) and ban in BANS:
            yield session(ban, entry, BANS[ban], f"Meta reports for the business account: {ban}.")


def restriction(value: Any, entry: Any) -> Iterator[ProviderEvent]:
    """Yield a restriction of messages; others forbid calls, or adding numbers."""
    limits = [one for one in listed(value, "restriction_info") if is_about_messages(one)]
    if limits:
        ends = [moment(one.get("expiration")) for one in limits]
        known = [end for end in ends if end is not None]
        # Without an end for each of them, an operator decides.
        until = max(known) if len(known) == len(ends) else None
        names = ", ".join(sorted({as_text(one["restriction_type"]) for one in limits}))
        yield session("ACCOUNT_RESTRICTION", entry, SessionState.BANNED, f"Meta restricts messages: {names}.", until)


def is_about_messages(limit: Any) -> bool:
    return as_text(dig(limit, "restriction_type")).endswith("_MESSAGING")


def session(name: str, entry: Any, state: SessionState, words: str, until: datetime | None = None) -> ProviderEvent:
    return ProviderEvent(
        key=f"account:{name}:{as_text(dig(entry, 'time'))}",
        kind=EventKind.SESSION,
        at=moment(dig(entry, "time")),
        text=words,
        detail={"state": state.value} | ({"until": until.isoformat()} if until else {}),
    )
