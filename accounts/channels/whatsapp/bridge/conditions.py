"""The meaning of a session's state and of neonize's errors: for a send, for the account, and for the operator. Pure.

neonize raises one type of error for everything that can go wrong with a message, so its words decide. Unless they are
known to mean that nothing went out, the message may have gone out. Each row of the table in docs/whatsapp.md is a test.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Unknown
from accounts.channels.paired import ENDINGS
from accounts.channels.provider_events import EventKind, ProviderEvent, SessionState


class State(enum.StrEnum):
    UNPAIRED = "unpaired"
    PAIRING = "pairing"
    EXPIRED = "expired"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"
    BANNED = "banned"
    REPLACED = "replaced"
    OUTDATED = "outdated"


#: States that are reported to the account; the others are steps on the way.
REPORTED_AS = {
    State.CONNECTED: SessionState.ACTIVE,
    State.UNPAIRED: SessionState.UNPAIRED,
    State.BANNED: SessionState.BANNED,
    # Both need a person, so the account must stop trying.
    State.REPLACED: SessionState.BANNED,
    State.OUTDATED: SessionState.BANNED,
    State.DISCONNECTED: SessionState.DISCONNECTED,
    State.REFUSED: SessionState.DISCONNECTED,
}
#: The bridge tries again by itself after these.
COMES_BACK = {State.DISCONNECTED, State.REFUSED}

NEVER_PAIRED = "This number is not paired: open “Pair” on the account's page and scan the code with the phone."
#: Said by a bridge that has nothing of the account.
NOT_STORED = (
    "This number is not paired through any bridge that is running. If it is paired on another machine, start the "
    "bridge there; otherwise press “Pair” and scan the code with the phone."
)
ENDED_BY_WHATSAPP = "WhatsApp ended this session: pair the number again."
PAIR_AFTER_BAN = "Wait until WhatsApp works on the phone again, then pair the number again and reactivate the account."
EXPIRED = "The code has expired and no new one comes by itself: press “Pair again”."
DATABASE_RESTORED = (
    "The database was restored from a backup: it does not know what this number has sent since. Nothing is sent until "
    "you press “Compare with the journal” on the pairing page, or run `manage.py account restored`."
)
CLOSING = "the session is being closed"
MOVING = "the number is being moved to another machine"

BANNED_FOR = {
    1: "it wrote to too many people",
    2: "too many people blocked it",
    3: "it made too many groups",
    4: "it sent the same message too often",
    5: "its broadcast list",
}
#: WhatsApp's codes for the end of a session, by neonize's numbers for them (ConnectFailureReason in its protocol).
CODE_OF_REASON = {2: 401, 3: 402, 4: 403, 5: 406}


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of a session. `detail` says what happened and what to do; `until` is the end of a ban.

    `locked_out`: WhatsApp has logged the number out because it is locked or banned. It must be paired again, as after
    any log-out, but only once WhatsApp allows it.
    """

    state: State
    since: datetime
    detail: str = ""
    until: datetime | None = None
    locked_out: bool = False


def condition_after(name: str, event: Any, now: datetime) -> Condition | None:
    """Return the condition after an event of the client; None where it changes nothing."""
    if name in ("Connected", "KeepAliveRestored"):
        return Condition(State.CONNECTED, now)
    if name == "TemporaryBan":
        return banned(event.Code, event.Expire, now)
    if name == "LoggedOut":
        return after_log_out(event.Reason, event.OnConnect, now)
    if name == "ConnectFailure":
        return Condition(State.REFUSED, now, f"WhatsApp refused the connection: {event.Message or event.Reason}")
    words = WORDS.get(name)
    return Condition(words[0], now, words[1]) if words else None


WORDS = {
    "Disconnected": (State.DISCONNECTED, "The connection to WhatsApp was lost; it comes back by itself."),
    "KeepAliveTimeout": (State.DISCONNECTED, "WhatsApp does not answer; the connection comes back by itself."),
    "StreamReplaced": (
        State.REPLACED,
        "Another program uses this number's session now. End that program, press “Connect again”, then reactivate "
        "the account.",
    ),
    "ClientOutdated": (
        State.OUTDATED,
        "WhatsApp does not accept this version of neonize any more: install a newer one, restart the bridge, then "
        "reactivate the account.",
    ),
}


def after_log_out(reason: int, on_connect: bool, now: datetime) -> Condition:
    """Return the condition after a log-out. Without a reason, the device was removed on the phone."""
    ending = ENDINGS.get(CODE_OF_REASON.get(reason, 401), ENDINGS[401])
    if ending.state is SessionState.BANNED:
        advice = "" if "pair the number" in ending.words else f" {PAIR_AFTER_BAN}"
        return Condition(State.UNPAIRED, now, ending.words + advice, locked_out=True)
    return Condition(State.UNPAIRED, now, ENDED_BY_WHATSAPP if on_connect else ending.words)


def unpaired_by_operator(confirmed: bool) -> str:
    if confirmed:
        return "Unpaired by an operator: the device is logged out. Pair the number to use it again."
    return (
        "Unpaired by an operator while there was no connection, so WhatsApp has not confirmed it: remove the device on "
        "the phone (WhatsApp → Linked devices). Pair the number to use it again."
    )


def banned(code: int, seconds: int, now: datetime) -> Condition:
    until = now + timedelta(seconds=seconds) if seconds > 0 else None
    reason = BANNED_FOR.get(code, f"reason {code}")
    end = "Sending continues by itself after that." if until else "WhatsApp did not say for how long."
    return Condition(State.BANNED, now, f"WhatsApp has banned this number for a while ({reason}). {end}", until)


def refusal(condition: Condition) -> NotSent | None:
    """Return why nothing can be sent in this condition. It is certain, because the client is not even asked."""
    if condition.state is State.CONNECTED:
        return None
    words = condition.detail or f"the session is {condition.state}"
    if condition.state is State.BANNED or condition.locked_out:
        return NotSent(Kind.BANNED, words, until=condition.until)
    # Neither the recipient's fault nor yet the account's: the session's event reports the account's state.
    return NotSent(Kind.UNAVAILABLE, words, RETRY_WHEN_OFFLINE)


def event_of(condition: Condition) -> ProviderEvent | None:
    state = SessionState.BANNED if condition.locked_out else REPORTED_AS.get(condition.state)
    if state is None:
        return None
    until = condition.until.isoformat() if condition.until else None
    return ProviderEvent(
        key=f"session:{condition.state}:{condition.since.isoformat()}",
        kind=EventKind.SESSION,
        at=condition.since,
        text=condition.detail,
        detail={"state": state.value, "condition": condition.state.value} | ({"until": until} if until else {}),
    )


def utc_now() -> datetime:
    return datetime.now(UTC)


# -- errors of neonize ------------------------------------------------------------------------------------


#: neonize reconnects by itself, after 0, 2, 4, 6 … seconds.
RETRY_WHEN_OFFLINE = 20.0

#: The server's own code, in an acknowledgement or in an answer to a question before the message.
ACK = re.compile(r"server returned error (\d{3})")
QUESTION = re.compile(r"(?:info query returned status|\b)\s*(429)\b")

KIND_OF_CODE = {
    404: Kind.RECIPIENT_GONE,
    429: Kind.RATE_LIMITED,
    # "Reach-out timelock": no new one-to-one chats; existing chats and groups go on.
    463: Kind.NEW_CHATS_BLOCKED,
    503: Kind.UNAVAILABLE,
}

#: Words that are known to come before anything left, with their meaning.
CERTAIN = (
    # Without "failed to send", it comes from the client's own second try, and the first may have arrived.
    ("failed to send message node: websocket not connected", Kind.UNAVAILABLE),
    ("client is nil", Kind.UNAVAILABLE),
    ("the store doesn't contain a device jid", Kind.UNAVAILABLE),
    ("no lid found for", Kind.RECIPIENT_GONE),
    ("you're not participating in that group", Kind.NOT_WRITABLE),
    ("that group does not exist", Kind.RECIPIENT_GONE),
)
#: Beginnings of errors in the steps that whatsmeow takes before it sends a message (its send.go): questions to
#: WhatsApp, its own store, and the encryption. Its second try of a message has other words.
BEFORE_SENDING = (
    "failed to get device list",
    "failed to get group",
    "failed to get user devices",
    "failed to get user info for",
    "failed to get lid for",
    "failed to prefetch sessions",
    "failed to marshal message:",
    "failed to marshal message (for own devices)",
    "failed to create sender key distribution message",
    "failed to encrypt group message to send",
)
#: Words for a missing connection, and for the session's own store: both are the account's trouble.
ACCOUNTS_TROUBLE = ("websocket", "timed out", "not connected", "database", "disk i/o", "sqlite")


def outcome_of_error(words: str) -> Outcome:
    """Return the outcome of a send that raised with these words."""
    if match := ACK.search(words):
        return refused_by_server(int(match[1]), words)
    lowered = words.lower()
    for certain, kind in CERTAIN:
        if certain in lowered:
            return not_sent(kind, words)
    if lowered.startswith(BEFORE_SENDING):
        return not_sent(question_kind(words), words)
    return Unknown(words)


def refused_by_server(code: int, words: str) -> NotSent:
    """Return the refusal of a message that the server acknowledged with an error: it certainly went nowhere."""
    return not_sent(KIND_OF_CODE.get(code, Kind.UNKNOWN), words)


def question_failed(words: str) -> NotSent:
    """Return the refusal after a failed question about a recipient, a group or a file: nothing was sent by it."""
    return not_sent(question_kind(words), words)


def question_kind(words: str) -> Kind:
    if QUESTION.search(words):
        return Kind.RATE_LIMITED
    troubled = any(sign in words.lower() for sign in ACCOUNTS_TROUBLE)
    return Kind.UNAVAILABLE if troubled else Kind.UNKNOWN


def not_sent(kind: Kind, words: str) -> NotSent:
    return NotSent(kind, words, RETRY_WHEN_OFFLINE if kind is Kind.UNAVAILABLE else None)


def upload_failed(words: str) -> NotSent:
    """Return the refusal of WhatsApp's media server. Nothing reaches a recipient by an upload."""
    if "status code 429" in words:
        return NotSent(Kind.RATE_LIMITED, words)
    rejected = any(f"status code {code}" in words for code in (400, 413, 415))
    return not_sent(Kind.CONTENT_REJECTED if rejected else Kind.UNAVAILABLE, words)
