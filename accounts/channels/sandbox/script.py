"""The script of the sandbox provider: latency, limits and faults, per account, from plain JSON.

    {"*":     {"latency_ms": [20, 80], "recognises_repeats": true},
     "alice": {"faults": [{"match": {"every": 10}, "effect": "rate_limited", "retry_after": 3}]}}

An account's settings are laid over those of "*", key by key. The first fault that matches decides; `slow`
adds its time and lets the next ones match too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")

ON = ("messages", "media", "check")
#: effect -> HTTP status and the provider's words. None: there is no answer at all.
EFFECTS: dict[str, tuple[int, str] | None] = {
    "rate_limited": (429, "Too many messages"),
    "hard_bounce": (422, "This address does not exist"),
    "content_rejected": (422, "This content is not allowed"),
    "soft_bounce": (452, "The recipient's mailbox is full"),
    "auth": (401, "The key is not valid"),
    "banned": (403, "This account is banned"),
    "unavailable": (503, "The device is not connected"),
    "recipient_gone": (404, "The recipient has left"),
    "not_writable": (403, "Only admins write in this group"),
    "new_chats_blocked": (463, "This account may not start new chats"),
    "recipient_limited": (422, "This person gets no more messages today"),
    "opted_out": (422, "This person wants no more messages"),
    # A front end that could not reach the provider behind it, as HTTP gateways answer.
    "refused": (521, "The provider refused the connection"),
    # The message is delivered, but the answer is an error.
    "error_after_accept": (500, "The message was sent, and storing it failed"),
    "outage": None,
    "drop_after_accept": None,
    "hang": None,
    "slow": None,
}
RETRY_AFTER = {"rate_limited": 60.0, "unavailable": 20.0}


class ScriptError(ValueError):
    """Raised for a script that the provider does not understand; the text says why."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request, with everything that a fault may look at."""

    account: str
    now: float
    on: str = "messages"
    to: str = ""
    part: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The conditions of a fault. All that are set must hold; without any it matches every call."""

    address: str | None = None
    suffix: str | None = None
    part: int | None = None
    #: Numbers are seconds since the script began, texts are ISO moments. The end is not included.
    between: tuple[float | str, float | str] | None = None
    after_accepted: int | None = None
    # The next three count or draw among the calls that the conditions above let through.
    every: int | None = None
    first: int | None = None
    probability: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    effect: str
    match: Match = field(default_factory=Match)
    on: str = "messages"
    retry_after: float | None = None
    #: For `banned`: how long, from the first hit on. Without it the ban has no end.
    seconds: float | None = None
    #: For `slow`: how much longer.
    ms: float = 1000
    #: For `hang`: whether the message is accepted before the silence.
    accept: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """The provider's own rate limit: more than `count` in `seconds` is answered 429."""

    count: int
    seconds: float = 60


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports that follow an accepted message: how likely each is, and how much later it comes."""

    delivered: float = 0
    #: the next four: shares of the delivered messages
    read: float = 0
    reply: float = 0
    complaint: float = 0
    unsubscribe: float = 0
    #: instead of delivered: the message comes back later
    bounce: float = 0
    #: in addition: a body that is not a report, or not signed, or malformed
    junk: float = 0
    #: between one report and the next
    delay_ms: tuple[float, float] = (500, 3000)
    replies: tuple[str, ...] = ("Thanks!", "OK, see you there.", "Who is this?", "STOP")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The provider's behaviour towards one account."""

    latency_ms: tuple[float, float] = (0, 0)
    upload_latency_ms: tuple[float, float] = (0, 0)
    recognises_repeats: bool = False
    key: str | None = None
    limit: Limit | None = None
    #: Seconds until an uploaded file's handle expires; None: never.
    media_ttl: float | None = None
    faults: tuple[Fault, ...] = ()
    reports: Reports = field(default_factory=Reports)


class Script:
    """The behaviour towards every account."""

    def __init__(self, raw: dict[str, Any] | None = None) -> None:
        self.raw = checked_object(raw or {}, "The script")
        self._default = checked_object(self.raw.get("*", {}), "“*”")
        self._known = {name: self._read(name) for name in {"*", *self.raw}}

    def _read(self, name: str) -> Behaviour:
        own = checked_object(self.raw.get(name, {}), f"“{name}”")
        return read_behaviour({**self._default, **own}, name)

    def behaviour(self, account: str) -> Behaviour:
        return self._known.get(account) or self._known["*"]


class Progress:
    """The state of faults while a script runs: counts, draws and bans. A new script starts from zero."""

    def __init__(self, started: float) -> None:
        self.started = started
        # Keyed by the fault's identity: two equal faults in one list count apart.
        self._calls: dict[tuple[str, int], int] = {}
        self._draws: dict[tuple[str, str, int, int], int] = {}
        self._bans: dict[tuple[str, int], float] = {}

    def faults_for(self, settings: Behaviour, call: Attempt) -> list[Fault]:
        """Return the faults of this call: any number of `slow`, then at most one other."""
        faults: list[Fault] = []
        for fault in settings.faults:
            if fault.on == call.on and self._applies(fault, call):
                faults.append(fault)
                if fault.effect != "slow":
                    break
        return faults

    def ban_end(self, fault: Fault, account: str) -> float | None:
        return self._bans.get((account, id(fault)))

    def _applies(self, fault: Fault, call: Attempt) -> bool:
        if fault.effect == "banned" and fault.seconds is not None:
            return self._ban_holds(fault, call, fault.seconds)
        return self._matches(fault, call)

    def _ban_holds(self, fault: Fault, call: Attempt, seconds: float) -> bool:
        """Return whether a ban with an end holds.

        It begins once, holds for every call until its end, and is not given again.
        """
        key = (call.account, id(fault))
        if key not in self._bans and self._matches(fault, call):
            self._bans[key] = call.now + seconds
        return key in self._bans and call.now < self._bans[key]

    def _matches(self, fault: Fault, call: Attempt) -> bool:
        match = fault.match
        if not self._fits(match, call):
            return False
        count = self._count(fault, call)
        if match.first is not None and count > match.first:
            return False
        if match.every is not None and count % match.every:
            return False
        return match.probability is None or self._draw(fault, call) < match.probability

    def _fits(self, match: Match, call: Attempt) -> bool:
        if match.address is not None and call.to != match.address:
            return False
        if match.suffix is not None and not call.to.endswith(match.suffix):
            return False
        if match.part is not None and call.part != match.part:
            return False
        if match.after_accepted is not None and call.accepted < match.after_accepted:
            return False
        return match.between is None or self._within(match.between, call.now)

    def _within(self, between: tuple[float | str, float | str], now: float) -> bool:
        start, end = (self._moment(edge) for edge in between)
        return start <= now < end

    def _moment(self, edge: float | str) -> float:
        return parse_moment(edge) if isinstance(edge, str) else self.started + edge

    def _count(self, fault: Fault, call: Attempt) -> int:
        key = (call.account, id(fault))
        self._calls[key] = self._calls.get(key, 0) + 1
        return self._calls[key]

    def _draw(self, fault: Fault, call: Attempt) -> float:
        """Return a number in [0, 1) that depends on the message and on how often it was tried.

        It does not depend on the order in which calls arrive: the same seed gives the same faults however the lanes
        interleave.
        """
        key = (call.account, call.to, call.part, id(fault))
        tries = self._draws[key] = self._draws.get(key, 0) + 1
        text = f"{fault.match.seed}\0{fault.effect}\0{call.account}\0{call.to}\0{call.part}\0{tries}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64


def read_behaviour(raw: dict[str, Any], name: str) -> Behaviour:
    known(raw, Behaviour, f"“{name}”")
    values = dict(raw)
    for key in ("latency_ms", "upload_latency_ms"):
        if key in values:
            values[key] = read_range(values[key], key)
    if values.get("limit") is not None:
        values["limit"] = build(Limit, values["limit"], "limit")
    values["faults"] = tuple(read_fault(fault) for fault in values.get("faults", ()))
    values["reports"] = read_reports(values.get("reports", {}))
    return Behaviour(**values)


def read_range(value: Any, name: str) -> tuple[float, float]:
    """Return [min, max]; one number stands for both."""
    low, high = value if isinstance(value, list | tuple) and len(value) == 2 else (value, value)
    if not (isinstance(low, int | float) and isinstance(high, int | float) and 0 <= low <= high):
        raise ScriptError(f"{name} must be a number or [min, max] of milliseconds, not {value!r}.")
    return (low, high)


def read_reports(raw: Any) -> Reports:
    values = dict(checked_object(raw, "The reports"))
    for key in ("delivered", "read", "reply", "complaint", "unsubscribe", "bounce", "junk"):
        check_number(values.get(key), key, most=1)
    if "delay_ms" in values:
        values["delay_ms"] = read_range(values["delay_ms"], "delay_ms")
    if "replies" in values:
        values["replies"] = tuple(map(str, values["replies"]))
    return build(Reports, values, "report")


def read_fault(raw: Any) -> Fault:
    values = dict(checked_object(raw, "A fault"))
    if values.get("effect") not in EFFECTS:
        raise ScriptError(f"Unknown effect {values.get('effect')!r}. Known: {', '.join(EFFECTS)}.")
    if values.get("on", "messages") not in ON:
        raise ScriptError(f"Unknown “on” {values['on']!r}. Known: {', '.join(ON)}.")
    for key in ("retry_after", "seconds", "ms"):
        check_number(values.get(key), key)
    values["match"] = read_match(values.get("match", {}))
    return build(Fault, values, "fault")


def read_match(raw: Any) -> Match:
    values = dict(checked_object(raw, "A match"))
    for key in ("every", "first"):
        if values.get(key) is not None and not (isinstance(values[key], int) and values[key] > 0):
            raise ScriptError(f"“{key}” must be a whole number above zero, not {values[key]!r}.")
    check_number(values.get("probability"), "probability", most=1)
    if values.get("between") is not None:
        values["between"] = read_between(values["between"])
    return build(Match, values, "match")


def read_between(value: Any) -> tuple[float | str, float | str]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ScriptError(f"“between” must be [start, end], not {value!r}.")
    for edge in value:
        if isinstance(edge, str):
            parse_moment(edge)
    return (value[0], value[1])


def check_number(value: Any, name: str, most: float = float("inf")) -> None:
    if value is not None and not (isinstance(value, int | float) and 0 <= value <= most):
        raise ScriptError(f"“{name}” is out of range or not a number: {value!r}.")


def parse_moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ScriptError(f"{text!r} is not an ISO date and time.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def build(kind: type[T], raw: Any, name: str) -> T:
    values = checked_object(raw, f"A {name}")
    known(values, kind, f"A {name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ScriptError(f"A {name} is not complete: {error}.") from None


def known(raw: dict[str, Any], kind: Any, name: str) -> None:
    allowed = [f.name for f in fields(kind)]
    unknown = sorted(set(raw) - set(allowed))
    if unknown:
        raise ScriptError(f"{name} has unknown settings: {', '.join(unknown)}. Known: {', '.join(allowed)}.")


def checked_object(raw: Any, name: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ScriptError(f"{name} must be a JSON object, not {raw!r}.")
    return raw
