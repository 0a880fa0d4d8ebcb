"""What a session is in, what that means for its account, and what an operator can do about it. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from accounts.channels.base import Kind, NotSent
from accounts.channels.events import EventKind, ProviderEvent, SessionState
from accounts.channels.whatsapp.answers import RETRY_WHEN_OFFLINE


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


#: What the account learns of it; the others are steps on the way.
TOLD_AS = {
    State.CONNECTED: SessionState.ACTIVE,
    State.UNPAIRED: SessionState.UNPAIRED,
    State.BANNED: SessionState.BANNED,
    # Both need a person, so the account must not go on trying.
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
EXPIRED = "The code has expired and no new one comes by itself: press “Pair again”."
CLOSING = "the session is just being closed"

BANNED_FOR = {
    1: "it wrote to too many people",
    2: "too many people blocked it",
    3: "it made too many groups",
    4: "it sent the same message too often",
    5: "its broadcast list",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`detail` says what happened and what to do; `until` is the end of a ban."""

    state: State
    since: datetime
    detail: str = ""
    until: datetime | None = None


def after(name: str, event: Any, now: datetime) -> Condition | None:
    """The condition after an event of the client; None where it changes nothing."""
    if name in ("Connected", "KeepAliveRestored"):
        return Condition(State.CONNECTED, now)
    if name == "TemporaryBan":
        return banned(event.Code, event.Expire, now)
    if name == "LoggedOut":
        return Condition(State.UNPAIRED, now, logged_out(event.OnConnect))
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


def logged_out(on_connect: bool) -> str:
    where = "WhatsApp ended this session" if on_connect else "The device was removed on the phone"
    return f"{where}: pair the number again."


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
    end = "It goes on by itself after that." if until else "WhatsApp did not say until when."
    return Condition(State.BANNED, now, f"WhatsApp has banned this number for a while ({reason}). {end}", until)


def refusal(condition: Condition) -> NotSent | None:
    """Why nothing can be sent in this condition; certain, because the client is not even asked."""
    if condition.state is State.CONNECTED:
        return None
    words = condition.detail or f"the session is {condition.state}"
    if condition.state is State.BANNED:
        return NotSent(Kind.BANNED, words, until=condition.until)
    # Not the recipient's fault, and not yet the account's: what the account is in, its session's event tells.
    return NotSent(Kind.UNAVAILABLE, words, RETRY_WHEN_OFFLINE)


def event_of(condition: Condition) -> ProviderEvent | None:
    state = TOLD_AS.get(condition.state)
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
