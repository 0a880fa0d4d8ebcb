"""The contract every transport keeps.

A transport talks to one provider for one account. It never retries a send and never sleeps for pacing:
the lane does both. What it must do well is to say what happened, in one of three words.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar


class Kind(enum.StrEnum):
    """Why nothing was sent. Decided once, where the provider's answer is known."""

    HARD_BOUNCE = "hard_bounce"
    SOFT_BOUNCE = "soft_bounce"
    AUTH = "auth"
    RATE_LIMITED = "rate_limited"
    BANNED = "banned"
    NEW_CHATS_BLOCKED = "new_chats_blocked"
    UNAVAILABLE = "unavailable"
    NETWORK = "network"
    CONTENT_REJECTED = "content_rejected"
    RECIPIENT_GONE = "recipient_gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider took the message."""

    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Certain that nothing went out."""

    kind: Kind
    detail: str = ""
    retry_after: float | None = None
    # A temporary ban or an outage whose end the provider told us.
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The payload left and no answer came back: it may have gone out."""

    detail: str = ""


Outcome = Sent | NotSent | Unknown


@dataclass(frozen=True, slots=True)
class Media:
    """A file that a part carries, as frozen into the run. `read` opens it only when it must be uploaded."""

    sha256: str
    filename: str
    mime: str
    size: int
    read: Callable[[], bytes] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a reminder. The same object serves every recipient of a run: encode once by `key`."""

    key: str  # "<run>:<index>", unique per run and part
    index: int
    kind: str  # text, image, video, audio, document
    text: str = ""
    subject: str = ""
    html: str = ""
    media: Media | None = None
    handle: str | None = None


@dataclass(frozen=True, slots=True)
class Handle:
    """What `prepare` got from the provider for an uploaded file."""

    value: str
    expires_at: datetime | None = None


class UploadFailed(Exception):
    """`prepare` did not get a handle; `reason` says why as for a send."""

    def __init__(self, reason: NotSent) -> None:
        super().__init__(reason.detail or reason.kind.value)
        self.reason = reason


class CheckFailed(Exception):
    """`check` could not authenticate or reach the provider. The text is the provider's own words."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class AccountConfig:
    """What a transport needs of an account: plain values, so that it never touches the database."""

    id: int
    channel: str
    label: str
    address: str
    config: dict[str, Any]
    credentials: dict[str, Any] = field(repr=False, default_factory=dict)
    concurrency: int = 1
    # A one-click unsubscribe address for a recipient, where the site has a public URL.
    unsubscribe_url: Callable[[str], str | None] = field(repr=False, compare=False, default=lambda address: None)


class Transport(abc.ABC):
    """One account's way to its provider."""

    channel: ClassVar[str]
    #: True where the provider drops a second message with the same id, so that a repeat is safe.
    recognises_repeats: bool = False
    #: Per kind of part: does it need an upload (`prepare`) before it can be sent?
    uploads_media: ClassVar[bool] = False

    def __init__(self, account: AccountConfig) -> None:
        self.account = account

    @abc.abstractmethod
    async def check(self) -> str:
        """Authenticate and say who we are; raise CheckFailed with the provider's words."""

    async def prepare(self, media: Media) -> Handle:
        """Upload a file once; raise UploadFailed."""
        raise NotImplementedError(f"{self.channel} does not upload media")

    @abc.abstractmethod
    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        """Hand one part to the provider. Never raises for what a provider may do."""

    async def close(self) -> None:  # noqa: B027 - a transport without connections has nothing to do
        """Let go of connections."""

    def parse_webhook(self, headers: dict[str, str], body: bytes) -> list[dict[str, Any]]:
        """Events of a provider's callback, after its signature was checked."""
        raise NotImplementedError(f"{self.channel} has no webhook")
