"""Decide what a provider's answer means for the target, the lane and the account. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from fanout.rules import breaker

MAX_RETRIES = 3
RATE_LIMIT_HOLD = 60.0  # or the provider's Retry-After, whichever is longer
OFFLINE_HOLD = 20.0  # a gateway whose device is offline
NETWORK_HOLD_MAX = 60.0
REFUSED_CHAT_HOLD = 3600.0
LONGEST_HOLD = 86_400.0  # even if a provider asks for more: operators must see an end of it
#: A call that takes longer and ends without an answer has kept a place of its driver for nothing.
TIMED_OUT_AFTER = 5.0
TIMEOUT_HOLD, LONGEST_TIMEOUT_HOLD = 15.0, 600.0  # seconds after the first timeout, doubled after each; and at most
SHORTEST_BAN = 600.0  # clocks differ: a ban that is over by ours may last by the provider's

#: a channel's own delays before each retry; empty: doubling from the account's base
Delays = tuple[float, ...]

RECIPIENT_KINDS = {Kind.HARD_BOUNCE, Kind.RECIPIENT_GONE, Kind.CONTENT_REJECTED, Kind.SENDER_REJECTED}
#: Trouble of the account or its provider: it says nothing about the recipient.
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
    letter: str | None = None  # for the lane's sample; None: not counted
    retry_at: datetime | None = None
    spends_attempt: bool = True
    hold_until: datetime | None = None
    hold_why: str = ""  # for operators; empty: the kind and the error
    slow: bool = False
    # Why the address gets nothing more (Suppression.Reason); empty: it is not suppressed.
    suppress: str = ""
    account: AccountChange | None = None
    kind: str = ""
    error: str = ""


WENT_OUT = Consequence("sent", breaker.SENT)


def consequence(
    outcome: Outcome, *, retries: Delays, attempts: int, base: float, sample: str, repeatable: bool, now: datetime
) -> Consequence:
    """Return the consequence of an outcome. `attempts` counts the one just made; `sample` is the lane's before this
    outcome."""
    if isinstance(outcome, Sent):
        return WENT_OUT
    if isinstance(outcome, Unknown):
        return _unknown(outcome, retries, attempts, base, repeatable, now)
    return _not_sent(outcome, retries, attempts, base, sample, now)


def parts_out(parts_sent: int, part_ids: Mapping[str, str]) -> set[int]:
    """Return the parts of a target's message that have gone out."""
    return {*range(parts_sent), *map(int, part_ids)}


def next_part(part: int, part_ids: Mapping[str, str]) -> int:
    """Return the part to send after this one. Parts behind one that was refused late may have gone out already."""
    part += 1
    while str(part) in part_ids:
        part += 1
    return part


def retry_delay(retries: Delays, attempts: int, base: float) -> float | None:
    """Return the seconds until the retry after the n-th attempt, or None after the last one."""
    if attempts > (len(retries) or MAX_RETRIES):
        return None
    return retries[attempts - 1] if retries else base * 2 ** (attempts - 1)


def _unknown(
    outcome: Unknown, retries: Delays, attempts: int, base: float, repeatable: bool, now: datetime
) -> Consequence:
    delay = retry_delay(retries, attempts, base) if repeatable else None
    if delay is None:
        return Consequence("unconfirmed", breaker.ERROR, kind="unknown", error=outcome.detail)
    # The provider drops a second message with the same id, so sending again is safe.
    retry_at = now + timedelta(seconds=delay)
    return Consequence("pending", breaker.ERROR, retry_at=retry_at, kind="unknown", error=outcome.detail)


def _not_sent(outcome: NotSent, retries: Delays, attempts: int, base: float, sample: str, now: datetime) -> Consequence:
    kind = outcome.kind
    cause: dict[str, Any] = {"kind": outcome.kind.value, "error": outcome.detail}
    if kind in RECIPIENT_KINDS:
        # The sender was refused, not the recipient; but too many of either pause the account.
        letter = breaker.BOUNCE if kind in (Kind.HARD_BOUNCE, Kind.SENDER_REJECTED) else breaker.ERROR
        return Consequence("failed", letter, suppress="hard_bounce" if kind == Kind.HARD_BOUNCE else "", **cause)
    if kind == Kind.OPTED_OUT:
        # Left out like people who opted out before.
        return Consequence("skipped", suppress="unsubscribed", **cause)
    if kind == Kind.NOT_WRITABLE:
        # Not a failure: the group is left out, and the others go on at their pace.
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
        retry_at = now + timedelta(seconds=_asked(outcome) or REFUSED_CHAT_HOLD)
        return Consequence("pending", retry_at=retry_at, spends_attempt=False, **cause)
    if kind == Kind.RECIPIENT_LIMITED:
        # Says nothing about the account: no letter, so that such answers neither slow the lane nor stop the run.
        return replace(_retry_or_fail(outcome, retries, attempts, base, now), letter=None)
    if kind == Kind.NETWORK:
        return _unreachable(outcome, retries, attempts, base, sample, now)
    return _retry_or_fail(outcome, retries, attempts, base, now)


def _asked(outcome: NotSent) -> float:
    """Return the seconds that the provider asked for, within limits; 0: none."""
    seconds = outcome.retry_after or 0.0
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_HOLD)


def ban_end(until: datetime | None, now: datetime) -> datetime | None:
    """Return when a temporary ban may be over. None: an operator decides."""
    return max(until, now + timedelta(seconds=SHORTEST_BAN)) if until is not None else None


def timed_out(outcome: Outcome, seconds: float) -> bool:
    """Return whether a call of so many seconds ended without the provider's answer."""
    unanswered = isinstance(outcome, Unknown) or (
        isinstance(outcome, NotSent) and outcome.kind in (Kind.NETWORK, Kind.UNAVAILABLE)
    )
    return unanswered and seconds >= TIMED_OUT_AFTER


def after_timeout(verdict: Consequence, timeouts: int, now: datetime) -> Consequence:
    """Return the consequence of a call that timed out, with the break of the lane that follows from it. `timeouts`:
    how many have, in a row. The lane gives its place to others meanwhile."""
    seconds = min(TIMEOUT_HOLD * 2 ** min(timeouts - 1, 10), LONGEST_TIMEOUT_HOLD)
    until = now + timedelta(seconds=seconds)
    return replace(verdict, hold_until=max(until, verdict.hold_until or until), hold_why=timeouts_in_words(timeouts))


def timeouts_in_words(timeouts: int) -> str:
    """Return why the lane takes a break; empty: nothing timed out."""
    if not timeouts:
        return ""
    times = "" if timeouts == 1 else f" {timeouts} times in a row"
    return f"the provider did not answer in time{times}; each time the account waits longer before it tries again"


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
    """Return the consequence of a provider that could not be reached. While no other message gets through, it is the
    account's trouble: the lane backs off and the recipient keeps its attempts. Otherwise it is this recipient's."""
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
