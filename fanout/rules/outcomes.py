"""What a provider's answer means for the target, the lane and the account. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from fanout.rules import breaker

MAX_RETRIES = 3
RATE_LIMIT_HOLD = 60.0  # or the provider's Retry-After, whichever is longer
OFFLINE_HOLD = 20.0  # a gateway whose device is offline
NETWORK_HOLD_MAX = 60.0
NEW_CHAT_HOLD = 3600.0
LONGEST_HOLD = 86_400.0  # whatever a provider asks for: an operator must be able to see an end of it
SHORTEST_BAN = 600.0  # clocks differ: a ban that ended a second ago by ours is still one by the provider's

#: a channel's own delays before each further try; empty: doubling from the account's base
Delays = tuple[float, ...]

RECIPIENT_KINDS = {Kind.HARD_BOUNCE, Kind.RECIPIENT_GONE, Kind.CONTENT_REJECTED}
#: The account's trouble, or its provider's: they say nothing about the recipient.
ACCOUNT_KINDS = {
    Kind.AUTH,
    Kind.BANNED,
    Kind.RATE_LIMITED,
    Kind.UNAVAILABLE,
    Kind.NETWORK,
    Kind.NEW_CHATS_BLOCKED,
}


@dataclass(frozen=True, slots=True)
class AccountChange:
    status: str
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Consequence:
    """`status` is the target's next state; `sent` means this part is done."""

    status: str
    letter: str | None = None  # into the lane's sample; None: says nothing about the recipients
    retry_at: datetime | None = None
    spends_attempt: bool = True
    hold_until: datetime | None = None
    slow: bool = False
    suppress: bool = False
    account: AccountChange | None = None
    kind: str = ""
    error: str = ""


DELIVERED = Consequence("sent", breaker.SENT)


def consequence(
    outcome: Outcome, *, retries: Delays, attempts: int, base: float, sample: str, repeatable: bool, now: datetime
) -> Consequence:
    """`attempts` counts the one just made; `sample` is the lane's before this outcome."""
    if isinstance(outcome, Sent):
        return DELIVERED
    if isinstance(outcome, Unknown):
        return _unknown(outcome, retries, attempts, base, repeatable, now)
    return _not_sent(outcome, retries, attempts, base, sample, now)


def retry_delay(retries: Delays, attempts: int, base: float) -> float | None:
    """Seconds until the next try after the n-th, or None when it was the last."""
    if attempts > (len(retries) or MAX_RETRIES):
        return None
    return retries[attempts - 1] if retries else base * 2 ** (attempts - 1)


def _unknown(
    outcome: Unknown, retries: Delays, attempts: int, base: float, repeatable: bool, now: datetime
) -> Consequence:
    delay = retry_delay(retries, attempts, base) if repeatable else None
    if delay is None:
        return Consequence("unconfirmed", breaker.ERROR, kind="unknown", error=outcome.detail)
    # The provider drops a second message with the same id, so asking again is safe.
    retry_at = now + timedelta(seconds=delay)
    return Consequence("pending", breaker.ERROR, retry_at=retry_at, kind="unknown", error=outcome.detail)


def _not_sent(outcome: NotSent, retries: Delays, attempts: int, base: float, sample: str, now: datetime) -> Consequence:
    kind = outcome.kind
    cause: dict[str, Any] = {"kind": outcome.kind.value, "error": outcome.detail}
    if kind in RECIPIENT_KINDS:
        letter = breaker.BOUNCE if kind == Kind.HARD_BOUNCE else breaker.ERROR
        return Consequence("failed", letter, suppress=kind == Kind.HARD_BOUNCE, **cause)
    if kind == Kind.NOT_WRITABLE:
        # Nobody's failure: the group is left out, and the others go on at their pace.
        return Consequence("skipped", **cause)
    if kind in (Kind.AUTH, Kind.BANNED):
        reason = outcome.detail or kind.value
        change = AccountChange("suspended", reason, ban_end(outcome.until, now))
        return Consequence("pending", spends_attempt=False, account=change, **cause)
    if kind == Kind.RATE_LIMITED:
        hold = now + timedelta(seconds=max(RATE_LIMIT_HOLD, _asked(outcome)))
        return Consequence("pending", breaker.LIMITED, hold, spends_attempt=False, hold_until=hold, slow=True, **cause)
    if kind == Kind.UNAVAILABLE:
        hold = now + timedelta(seconds=_asked(outcome) or OFFLINE_HOLD)
        return Consequence("pending", retry_at=hold, spends_attempt=False, hold_until=hold, **cause)
    if kind == Kind.NEW_CHATS_BLOCKED:
        # Only this new contact waits; groups and existing chats go on.
        retry_at = now + timedelta(seconds=_asked(outcome) or NEW_CHAT_HOLD)
        return Consequence("pending", retry_at=retry_at, spends_attempt=False, **cause)
    if kind == Kind.RECIPIENT_LIMITED:
        # Says nothing about the account: no letter, so that such answers neither slow the lane nor stop the run.
        return replace(_retry_or_fail(outcome, retries, attempts, base, now), letter=None)
    if kind == Kind.NETWORK:
        return _unreachable(outcome, retries, attempts, base, sample, now)
    return _retry_or_fail(outcome, retries, attempts, base, now)


def _asked(outcome: NotSent) -> float:
    """The seconds that the provider asked for, within reason; 0: it said nothing."""
    seconds = outcome.retry_after or 0.0
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_HOLD)


def ban_end(until: datetime | None, now: datetime) -> datetime | None:
    """When a temporary ban may be over. None: an operator decides."""
    return max(until, now + timedelta(seconds=SHORTEST_BAN)) if until is not None else None


def _retry_or_fail(outcome: NotSent, retries: Delays, attempts: int, base: float, now: datetime) -> Consequence:
    cause: dict[str, Any] = {"kind": outcome.kind.value, "error": outcome.detail}
    delay = retry_delay(retries, attempts, base)
    if delay is None:
        return Consequence("failed", breaker.ERROR, **cause)
    seconds = max(delay, _asked(outcome))
    return Consequence("pending", breaker.ERROR, retry_at=now + timedelta(seconds=seconds), **cause)


def _unreachable(
    outcome: NotSent, retries: Delays, attempts: int, base: float, sample: str, now: datetime
) -> Consequence:
    """The provider could not be reached. While nobody else gets through either, that is the account's
    trouble: the lane backs off and the recipient keeps its attempts. While others do, it is this one's."""
    others_get_through = sample.endswith(breaker.SENT)
    if others_get_through:
        return _retry_or_fail(outcome, retries, attempts, base, now)
    backoff = min(NETWORK_HOLD_MAX, base * 2 ** min(breaker.failing(sample), 6))
    hold = now + timedelta(seconds=backoff)
    return Consequence(
        "pending",
        breaker.UNREACHABLE,
        retry_at=hold,
        spends_attempt=False,
        hold_until=hold,
        kind=outcome.kind.value,
        error=outcome.detail,
    )
