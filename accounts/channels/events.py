"""What a provider tells of its own accord, in one shape for all channels: replies, receipts, bounces, sessions.

A channel's webhook, or its event feed, turns the provider's words into these. What they change is decided in one place
(fanout.inbound), for all channels alike.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from accounts.channels.base import AccountConfig


class EventKind(enum.StrEnum):
    REPLY = "reply"
    DELIVERED = "delivered"
    READ = "read"
    # Also a message that was accepted first and refused later.
    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    UNSUBSCRIBE = "unsubscribe"
    # The account itself: paired, logged out, banned, disconnected.
    SESSION = "session"


class SessionState(enum.StrEnum):
    """What a session event says of its account (`detail["state"]`)."""

    ACTIVE = "active"
    UNPAIRED = "unpaired"
    BANNED = "banned"  # until `detail["until"]` (ISO), where the provider says so
    DISCONNECTED = "disconnected"  # comes back by itself; only noted


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """One thing that happened, as a provider reports it. It may come twice, late, and in any order."""

    #: What the provider calls this event, or what of it is stable. The same event has the same key and is stored once
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
    #: What was said, or the provider's words about a failure.
    text: str = ""
    #: Plain values for the kinds that need more: `state` and `until` of a session, `kind` (accounts.channels.base.Kind)
    #: of a bounce and `certain` where nothing had gone out, `seen_as` a name, `by_device` of a receipt: a linked device
    #: of the account wrote the message, as a gateway is one, and nobody on the phone.
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookRequest:
    """What came to an account's webhook address."""

    method: str
    #: Names in lower case.
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


class Unreadable(ValueError):
    """The body is not what this provider sends; the text says what is wrong with it."""


class Webhook(abc.ABC):
    """How one channel's provider calls us. It never touches the database."""

    @abc.abstractmethod
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        """Whether the provider sent this. Signatures are over the raw body and compared in constant time."""

    @abc.abstractmethod
    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        """The events in it; none for what does not concern us. Raises Unreadable."""

    def greeting(self, request: HookRequest, account: AccountConfig) -> str | None:
        """What a GET must answer, where a provider asks whether the address is ours; None: not to this one."""
        return None
