"""The description of a channel, and the contract that every transport keeps.

A channel is one folder with one description (`Channel`), which the rest of Crier asks instead of comparing names; only
paired WhatsApp numbers need a process of their own besides (`fanout/bridge.py`). A transport talks to one provider for
one account. It never retries a send and never sleeps for pacing, because the lane does both. It must say
what happened to a message: `Sent`, `NotSent` or `Unknown`.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

from accounts.addresses import GROUP, NEW_CHAT_KINDS, PERSON, plurals
from accounts.channels.settings import Field, FieldKind

#: Below the lane's limit for a call (12 s), so that the transport decides whether a message had left.
LONGEST_TIMEOUT = 11.0
TIMEOUT = Field(
    name="timeout",
    label="Time-out",
    kind=FieldKind.NUMBER,
    low=0.05,
    high=3600,
    default=LONGEST_TIMEOUT,
    advanced=True,
    help=f"Seconds for one message; more than {LONGEST_TIMEOUT:g} counts as {LONGEST_TIMEOUT:g}.",
)


#: Before the end of the time in which a person is reached without a template: clocks differ, what we know of the
#: person's last message may be half a minute old, and the parts of a message take their time.
FREE_MARGIN = timedelta(minutes=5)


class Kind(enum.StrEnum):
    """The reason why nothing was sent, decided once where the provider's answer is known."""

    HARD_BOUNCE = "hard_bounce"
    SOFT_BOUNCE = "soft_bounce"
    AUTH = "auth"
    RATE_LIMITED = "rate_limited"
    BANNED = "banned"
    NEW_CHATS_BLOCKED = "new_chats_blocked"
    UNAVAILABLE = "unavailable"
    NETWORK = "network"
    CONTENT_REJECTED = "content_rejected"
    # The recipient's server refuses this sender: its reputation, its authentication (SPF, DKIM, DMARC), its address.
    SENDER_REJECTED = "sender_rejected"
    RECIPIENT_GONE = "recipient_gone"
    # The chat exists, and this account may not write there: it left the group, or only admins write.
    NOT_WRITABLE = "not_writable"
    # The provider takes nothing more for this one person before `retry_after` has passed; others go on.
    RECIPIENT_LIMITED = "recipient_limited"
    # The person told the provider that they want nothing more from this account.
    OPTED_OUT = "opted_out"
    UNKNOWN = "unknown"


class CaptionedAudio(enum.StrEnum):
    """The way in which audio with a text is sent. WhatsApp's own audio has no caption."""

    AS_AUDIO = "as audio"
    AS_DOCUMENT = "as document"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider took the message."""

    provider_id: str = ""
    #: The person as the provider calls them ("+553187654321", "382…@lid"), where that is not the address written to.
    known_as: str = ""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing went out, for certain."""

    kind: Kind
    detail: str = ""
    retry_after: float | None = None
    # The end of a temporary ban or an outage, where the provider gives it.
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The payload left and no answer came back: it may have gone out."""

    detail: str = ""
    #: The id that the message has at the provider if it went out, where we could choose it: receipts will name it.
    provider_id: str = ""


Outcome = Sent | NotSent | Unknown


@dataclass(frozen=True, slots=True)
class Media:
    """A file that a part carries, as frozen into the run. `read` opens it only when it must be uploaded."""

    sha256: str
    filename: str
    mime: str
    size: int
    read: Callable[[], bytes] = field(compare=False, repr=False)
    #: The kind it is sent as, where the provider stores a file differently for each kind of part; else empty.
    kind: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Return the key under which an account's upload of the file is found again."""
        return self.sha256, self.kind


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a reminder. The same object serves every recipient of a run: encode it once by `key`."""

    key: str  # "<run>:<index>", unique per run and part; a personal part adds its target
    index: int
    kind: str  # text, image, video, audio, document
    text: str = ""
    subject: str = ""
    html: str = ""
    media: Media | None = None
    handle: str | None = None
    #: made for one recipient, so its encoded form is not kept
    personal: bool = False
    #: The action of its run (accounts.actions): a channel may have more than one way to reach a person.
    action: str = ""
    #: The message template that was chosen for it, in plain JSON with a value for each variable.
    template: Mapping[str, Any] | None = field(default=None, hash=False)
    #: Whether it is known that the person may be written to without a template (`Transport.fit`).
    free: bool = False


@dataclass(frozen=True, slots=True)
class Handle:
    """The provider's handle of an uploaded file."""

    value: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group that the account is in, as its provider lists it. `size` counts its members, where it says so."""

    address: str
    name: str = ""
    size: int | None = None
    #: Only admins write there; and whether the account may, as far as the provider knows.
    announce_only: bool = False
    may_write: bool = True


@dataclass(frozen=True, slots=True)
class Contact:
    """A person in the account's own address book."""

    address: str
    name: str = ""


class Refused(Exception):
    """Raised inside a transport when the provider or a setting refuses; `reason` says why.

    It never leaves the transport.
    """

    def __init__(self, reason: NotSent) -> None:
        super().__init__(reason.detail)
        self.reason = reason


class UploadFailed(Exception):
    """Raised by `prepare` when it gets no handle; `reason` says why, as for a send."""

    def __init__(self, reason: NotSent) -> None:
        super().__init__(reason.detail or reason.kind.value)
        self.reason = reason


class CheckFailed(Exception):
    """Raised by `check` when it cannot authenticate or reach the provider. The text is the provider's own."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class AccountConfig:
    """The part of an account that a transport needs: plain values, so that it never touches the database."""

    id: int
    channel: str
    label: str
    address: str
    config: dict[str, Any]
    credentials: dict[str, Any] = field(repr=False, default_factory=dict)
    concurrency: int = 1
    # The template that the settings name for texts, in the words in which the provider lists it; None: not read yet.
    own_template: Mapping[str, Any] | None = None
    # A one-click unsubscribe address for a recipient, where the site has a public URL.
    unsubscribe_url: Callable[[str], str | None] = field(repr=False, compare=False, default=lambda address: None)
    # An address from which the provider fetches a file itself, where the site has a public URL.
    media_url: Callable[[Media], str | None] = field(repr=False, compare=False, default=lambda media: None)


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """A well-known provider: the settings of an account there, and a hint for the person."""

    name: str
    label: str
    settings: Mapping[str, Any]
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Everything that is particular to a channel, except how to talk to its provider."""

    key: str  # as accounts store it, and the name of its folder
    label: str
    transport: str = ""  # "module:Class", imported when an account first needs it
    webhook: str = ""  # "module:Class" of its accounts.channels.provider_events.Webhook, where its provider calls us
    #: What an operator must know to enter the webhook address at the provider; shown beside it.
    webhook_hint: str = ""
    #: Kinds of address it reaches (accounts.addresses).
    kinds: frozenset[str] = frozenset({GROUP, PERSON})
    #: The actions that its provider counts per day (accounts.actions); a reminder does the first.
    actions: tuple[str, ...] = ("message",)
    #: Whether the environment's fallback caps apply to an account without its own limit.
    capped: bool = False
    #: Known caps of its provider per action; they replace the environment's fallback.
    daily_caps: Mapping[str, int] = field(default_factory=dict)
    #: Defaults of knobs that differ from the general ones (accounts.knobs).
    knobs: Mapping[str, float] = field(default_factory=dict)
    #: Shortest and longest seconds between two sends that its provider tolerates.
    delay: tuple[float, float] | None = None
    #: Seconds before each further try of a message; empty: doubling from the knob retry_base_seconds.
    retries: tuple[float, ...] = ()
    #: Settings of an account, and its credentials where `secret`.
    fields: tuple[Field, ...] = ()
    #: Well-known providers, to start the settings from.
    providers: tuple[KnownProvider, ...] = ()
    #: Settings from Django's settings, where the account has none.
    defaults: Callable[[], dict[str, Any]] = dict
    #: Recipients see the account's own address as the sender, so it must have one.
    needs_sender: bool = False
    #: The kind of the account's own address (accounts.addresses); empty: any text.
    own_kind: str = ""
    #: The account signs in as its own address, where no setting names a user.
    address_signs_in: bool = False
    #: Only for demonstrations and tests, on a machine that may talk to itself.
    demo: bool = False
    #: An account is paired with a phone before it can send, on a page of its own, which asks `pairing`
    #: ("module:function"). `bridge` is the command of the process that keeps its sessions; `bridge_problem` returns
    #: why that cannot run here, in a sentence: it may need a package of its own.
    pairing: str = ""
    bridge: str = ""
    bridge_problem: Callable[[], str] = str
    #: Abilities: files, files that are uploaded once for all recipients, a subject, receipts and replies.
    #: Whether repeats are recognised is up to the transport, because it may depend on the account.
    media: bool = True
    uploads: bool = False
    #: Whether an upload serves one kind of part only: WhatsApp encrypts pictures and documents with different keys.
    uploads_by_kind: bool = False
    captioned_audio: CaptionedAudio = CaptionedAudio.AS_AUDIO
    #: Largest file in MB by kind of part, where its provider takes less than reminders allow.
    file_mb: Mapping[str, int] = field(default_factory=dict)
    subject: bool = False
    receipts: bool = False
    inbound: bool = False
    #: Whether its provider lists the groups that an account is in (`Transport.groups`).
    lists_groups: bool = False
    #: Whether its provider lists the account's address book (`Transport.contacts`), without people seen in groups.
    lists_contacts: bool = False
    #: Every try of a message has the same provider id, made from ours.
    own_ids: bool = False
    #: Whether its provider approves templates and lists them (`Transport.templates`).
    lists_templates: bool = False
    #: For how long after a person's message they are reached without a template; None: always.
    free_for: timedelta | None = None

    @property
    def pairs(self) -> bool:
        return bool(self.pairing)

    @property
    def action(self) -> str:
        return str(self.actions[0])

    def counts(self, action: str) -> str:
        """Return the action that its provider counts for a run: in a run over several channels each counts its own.

        It is plain text, although descriptions name members of an enumeration: statements and texts take it as it is.
        """
        return str(action) if action in self.actions else self.action

    @property
    def settings(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if not f.secret)

    @property
    def credentials(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.secret)

    def sends_as(self, kind: str, text: str) -> str:
        """Return the kind that a part is sent as: a part that cannot carry its caption goes as a document."""
        as_file = kind == "audio" and text and self.captioned_audio is CaptionedAudio.AS_DOCUMENT
        return "document" if as_file else kind

    def uploaded_as(self, kind: str, text: str) -> str:
        return self.sends_as(kind, text) if self.uploads_by_kind else ""

    def reaches(self, kind: str) -> bool:
        return kind in self.kinds

    def free_since(self, now: datetime) -> datetime | None:
        """Return since when a person must have written to be reached without a template; None: all people are."""
        return None if self.free_for is None else now - self.free_for + FREE_MARGIN

    @property
    def begins_chats(self) -> bool:
        return not self.kinds.isdisjoint(NEW_CHAT_KINDS)

    def takes(self) -> str:
        """Return the kinds of address that it reaches, in words: "people and groups"."""
        return plurals(self.kinds)

    def can(self) -> str:
        """Return its abilities in one line."""
        abilities = {
            "sends files": self.media,
            "delivery and read receipts": self.receipts,
            "replies": self.inbound,
            "lists its groups": self.lists_groups,
        }
        return " · ".join([f"sends to {self.takes()}", *(word for word, able in abilities.items() if able)])

    def read_settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return every setting in its own type, with defaults filled in; raises BadSetting."""
        return {f.name: f.read(config.get(f.name)) for f in self.settings}

    def read_credentials(self, credentials: Mapping[str, Any]) -> dict[str, Any]:
        return {f.name: f.read(credentials.get(f.name)) for f in self.credentials}

    def setting_problems(self, config: Mapping[str, Any]) -> list[str]:
        misplaced = {f.name: f"“{f.name}” is a secret: put it among the credentials." for f in self.credentials}
        return self._problems("setting", self.settings, config, misplaced)

    def credential_problems(self, credentials: Mapping[str, Any]) -> list[str]:
        misplaced = {f.name: f"“{f.name}” is not a secret: put it among the settings." for f in self.settings}
        return self._problems("credential", self.credentials, credentials, misplaced)

    def destination(self, config: Mapping[str, Any], address: str) -> dict[str, Any]:
        """Return where the account's credentials are sent, and as whom. They are for no other place."""
        values = {f.name: config.get(f.name) for f in self.fields if f.destination}
        return values | ({"address": address} if self.address_signs_in else {})

    def _problems(
        self, what: str, fields: tuple[Field, ...], values: Mapping[str, Any], misplaced: Mapping[str, str]
    ) -> list[str]:
        names = [f.name for f in fields]
        choice = f"{self.label} has {', '.join(names)}" if names else f"{self.label} has none"
        strange = [
            misplaced.get(name, f"There is no {what} “{name}”: {choice}.") for name in values.keys() - set(names)
        ]
        return sorted(strange) + [problem for f in fields if (problem := f.problem(values.get(f.name)))]


class Transport(abc.ABC):
    """The connection of one account to its provider."""

    channel: ClassVar[Channel]
    #: True where the provider drops a second message with the same id, so that a repeat is safe.
    recognises_repeats: bool = False
    #: The epoch of the claim that the next `send` is for, set by the lane. A provider of our own refuses an order of an
    #: earlier holder of the lane by it.
    epoch: int = 0

    def __init__(self, account: AccountConfig) -> None:
        self.account = account

    @property
    def uploads_media(self) -> bool:
        """Return whether a file must be uploaded (`prepare`) before it can be sent."""
        return self.channel.uploads

    @abc.abstractmethod
    async def check(self) -> str:
        """Authenticate and return who we are; raise CheckFailed with the provider's words."""

    async def learn(self) -> dict[str, str]:
        """Return settings that the account lacks and its provider knows; raise CheckFailed where it does not say."""
        return {}

    async def prepare(self, media: Media) -> Handle:
        """Upload a file once and return its handle; raise UploadFailed."""
        raise NotImplementedError(f"{self.channel.key} does not upload media")

    def fit(self, part: Part, last_wrote_at: datetime | None, now: datetime) -> Part | NotSent:
        """Return the part as it may be sent to a person who last wrote to the account at `last_wrote_at` (None: never).

        Returns a refusal where the provider would take nothing that this part has, so that it is not asked.
        """
        return part

    def unfit(self, part: Part) -> NotSent | None:
        """Return why the provider would not take the part as it stands, rendered for one person; None: it may.

        All parts of a message are judged before the first is sent.
        """
        return None

    @abc.abstractmethod
    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        """Hand one part to the provider and return the outcome. Never raises for what a provider may do."""

    async def groups(self) -> list[Group]:
        """Return the groups that the account is in; raise CheckFailed with the provider's words."""
        raise NotImplementedError(f"{self.channel.key} does not list groups")

    async def contacts(self) -> list[Contact]:
        """Return the people in the account's address book; raise CheckFailed with the provider's words."""
        raise NotImplementedError(f"{self.channel.key} does not list contacts")

    async def number_behind(self, hidden: str) -> str:
        """Return the number of the person with a hidden WhatsApp id (…@lid) in the stored spelling; "" where the
        provider does not know it. Raise CheckFailed where it could not be asked."""
        return ""

    async def templates(self) -> list[Any]:
        """Return the account's message templates, in the channel's own type; raise CheckFailed."""
        raise NotImplementedError(f"{self.channel.key} has no templates")

    async def close(self) -> None:  # noqa: B027 - a transport without connections has nothing to do
        """Close the connections."""
