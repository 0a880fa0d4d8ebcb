"""Events that providers report by themselves, in one shape for all channels: replies, receipts, bounces, sessions.

A channel's webhook or event feed turns the provider's report into these. Their effects are the same for all channels
and are decided in fanout.inbound. The second half has the checks that webhooks share.
"""

from __future__ import annotations

import abc
import enum
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from accounts.channels.base import AccountConfig


class EventKind(enum.StrEnum):
    REPLY = "reply"
    DELIVERED = "delivered"
    READ = "read"
    # Also a message that was accepted first and refused later.
    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    # A person opts out, or takes that back (`detail["resumed"]`).
    UNSUBSCRIBE = "unsubscribe"
    # An absence note or another mail that a program wrote (`detail["what"]`, `detail["away_until"]`).
    AUTOMATIC = "automatic"
    # A person wrote a message with the account on its phone or another of its devices.
    WRITTEN = "written"
    # The account itself: paired, logged out, banned, disconnected.
    SESSION = "session"


class SessionState(enum.StrEnum):
    """The state that a session event reports of its account (`detail["state"]`)."""

    ACTIVE = "active"
    UNPAIRED = "unpaired"
    BANNED = "banned"  # until `detail["until"]` (ISO), where the provider says so
    DISCONNECTED = "disconnected"  # reconnects by itself; only noted


#: In the detail of a session event that may be about another account of the provider: it is only noted.
ANOTHERS = {"whose": "unknown"}


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """One event as a provider reports it. It may come twice, late, and in any order."""

    #: The provider's id of this event, or its stable part. The same event has the same key and is stored once
    #: per account.
    key: str
    kind: EventKind
    #: When it happened, where the provider says so.
    at: datetime | None = None
    #: The person or mailbox it is about, in the stored spelling (accounts.addresses); of a reply: who wrote.
    address: str = ""
    #: The group it was said in; empty in a one-to-one chat.
    group: str = ""
    #: The message it is about, as the provider calls it (`Sent.provider_id`); of a reply: the one that it quotes.
    provider_id: str = ""
    #: The message it is about, as we called it (the `message_id` given to `send`).
    message_id: str = ""
    #: The words of a person, or the provider's about a failure.
    text: str = ""
    #: Plain values for the kinds that need more: `state` and `until` of a session, `kind` (accounts.channels.base.Kind)
    #: of a bounce, its `retry_after` in seconds and `certain` where nothing had gone out, `seen_as` a name, `by_device`
    #: of a receipt: a linked device of the account, such as a gateway, wrote the message, not a person on the phone;
    #: `edited` of a reply: an earlier message was changed to this text.
    detail: Mapping[str, Any] = field(default_factory=dict)


def as_edit(reply: ProviderEvent, text: str) -> ProviderEvent | None:
    """Return the event of a message that its writer changed to this text; None where nothing is left of it. It is no
    second reply, but what it says now may be an opt-out."""
    if not text:
        return None
    # Gateways repeat an edit under other ids; a message may be edited more than once.
    key = f"edit:{reply.key}:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
    return replace(reply, key=key, text=text, detail={**reply.detail, "edited": True})


@dataclass(frozen=True, slots=True)
class HookRequest:
    """A request to an account's webhook address."""

    method: str
    #: Names in lower case.
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Unreadable(ValueError):
    """Raised for a body that is not what this provider sends; the text says what is wrong with it."""


class Webhook(abc.ABC):
    """Reader of the requests of one channel's provider. It never touches the database."""

    @abc.abstractmethod
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        """Return whether the provider sent this. Signatures are over the raw body and compared in constant time."""

    @abc.abstractmethod
    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        """Return the events in a request; none where it does not concern us. Raises Unreadable."""

    def about_others(self, request: HookRequest, account: AccountConfig) -> set[tuple[str, str]]:
        """Return settings of other accounts that a request is about, as names and values. Raises Unreadable.

        A provider may have one webhook for several accounts. The accounts with these settings get the request too,
        where it is authentic for them.
        """
        return set()

    def learned(self, request: HookRequest, account: AccountConfig) -> dict[str, str]:
        """Return settings that the account lacks and an authentic request tells. Raises Unreadable."""
        return {}

    def greeting(self, request: HookRequest, account: AccountConfig) -> str | None:
        """Return the answer to a GET by which a provider asks whether the address is ours; None refuses it."""
        return None


# -- signatures and bodies of webhooks --------------------------------------------------------------------


#: The header that we ask gateways without signatures to send.
CRIER_HEADER = "x-crier-token"


def signed(request: HookRequest, key: str | None, signature: str | None, digest: str = "sha256") -> bool:
    """Return whether the signature (hex) fits the raw body. Without a key nothing is authentic."""
    if not key or not signature:
        return False
    expected = hmac.new(key.encode(), request.body, getattr(hashlib, digest)).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.strip().lower().encode())


def same_secret(secret: str | None, presented: str | None) -> bool:
    """Return whether a header has the secret that we set. Without a secret nothing is authentic."""
    if not secret or not presented:
        return False
    return hmac.compare_digest(secret.encode(), presented.encode())


def json_object(request: HookRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise Unreadable("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Unreadable("The body is not a JSON object.")
    return body


def moment(seconds: Any, per_second: int = 1) -> datetime | None:
    """Return a moment from seconds since 1970, as a number or a text; None for other values."""
    try:
        return datetime.fromtimestamp(float(seconds) / per_second, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def milliseconds(value: Any) -> datetime | None:
    return moment(value, 1000) if isinstance(value, int) else None
