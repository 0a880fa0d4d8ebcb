"""The rules of follow-ups: who may get one, and a person's state after an attempt, a reply or a cooldown. Pure.

Attempts are follow-ups that went out and had no reply, from any account. `MAY_GET` in `fanout.engine.commit`,
`COUNTED` in `fanout.runs.follow_ups` and `END_WAITING` in `fanout.inbound.replies` say the same in SQL; tests compare
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reminders.models import Recipient

URGENT = "high"


@dataclass(frozen=True, slots=True)
class Limits:
    """`BOT_FOLLOW_UP_MAX_ATTEMPTS` and `BOT_FOLLOW_UP_COOLDOWN_HOURS`."""

    attempts: int = 3
    cooldown: timedelta = timedelta(hours=48)
    # `BOT_ACTIVE_CHAT_HOURS`: for the follow-ups that a reminder sends by itself.
    active_chat: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Prospect:
    """A person as follow-ups see it: columns of Recipient, the same for every recipient with that address."""

    status: str = "active"
    follow_up_attempts: int = 0
    attempts_reset_at: datetime | None = None
    cooldown_until: datetime | None = None
    replied_at: datetime | None = None
    # Not interested only because of the limit.
    limited: bool = False


#: a person of whom nothing is known
UNKNOWN_PROSPECT = Prospect()


def refusal(person: Prospect, follow_up: bool, limits: Limits, now: datetime) -> str:
    """Return why this person gets nothing now; empty: nothing is in the way."""
    if person.status in Recipient.GETS_NOTHING:
        return person.status
    if not follow_up:
        return ""
    person = after_cooldown(person, now)
    by_limit = person.limited and person.status == "not_interested"
    if person.status != "active" and not by_limit:
        return person.status
    if person.cooldown_until is not None:
        return f"cooldown_active_{hours_left(person.cooldown_until, now)}h"
    if person.follow_up_attempts >= limits.attempts:
        return f"max_attempts_reached_{limits.attempts}"
    return person.status if by_limit else ""


def not_by_itself(person: Prospect, limits: Limits, now: datetime) -> str:
    """Return why this person gets no automatic follow-up although they may get others: they wrote a short while ago.
    Asked when the run is made; a person who writes later is taken out of it."""
    if person.replied_at is None or now - person.replied_at >= limits.active_chat:
        return ""
    return f"active_chat_{math.ceil((now - person.replied_at) / timedelta(hours=1))}h"


def hours_left(until: datetime, now: datetime) -> int:
    """Return the hours until then, rounded up."""
    return math.ceil((until - now) / timedelta(hours=1))


def after_attempt(person: Prospect, limits: Limits, at: datetime) -> Prospect:
    """Return the person after a follow-up went out at `at`. One that went out before the last reset does not count."""
    if person.attempts_reset_at is not None and at < person.attempts_reset_at:
        return person
    person = after_cooldown(person, at)
    person = replace(person, follow_up_attempts=person.follow_up_attempts + 1)
    if person.follow_up_attempts < limits.attempts:
        return person
    until = at + limits.cooldown
    person = replace(person, cooldown_until=max(until, person.cooldown_until or until))
    return replace(person, status="not_interested", limited=True) if person.status == "active" else person


def under_lower_limit(person: Prospect, limits: Limits, now: datetime) -> Prospect:
    """Return the person after `BOT_FOLLOW_UP_MAX_ATTEMPTS` was lowered: a person with so many attempts and no cooldown
    begins it now, or would be refused for ever."""
    if person.follow_up_attempts < limits.attempts or person.cooldown_until is not None:
        return person
    person = replace(person, cooldown_until=now + limits.cooldown)
    return replace(person, status="not_interested", limited=True) if person.status == "active" else person


def after_cooldown(person: Prospect, now: datetime) -> Prospect:
    """Return the person without a cooldown that has expired."""
    if person.cooldown_until is None or person.cooldown_until > now:
        return person
    return _from_the_start(person, person.cooldown_until)


def after_reply(person: Prospect, at: datetime) -> Prospect:
    """Return the person after a reply at `at`, after all attempts. The same reply again, or an earlier one that came
    late, changes nothing."""
    if person.replied_at is not None and at <= person.replied_at:
        return person
    return _from_the_start(replace(person, replied_at=at), max(at, person.attempts_reset_at or at))


def _from_the_start(person: Prospect, at: datetime) -> Prospect:
    """Return the person without attempts and cooldown, and active where only the limit had said otherwise."""
    status = "active" if person.limited and person.status == "not_interested" else person.status
    return replace(
        person, status=status, follow_up_attempts=0, attempts_reset_at=at, cooldown_until=None, limited=False
    )


# --- an account's queue of follow-ups -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """`BOT_BACKPRESSURE_THRESHOLD` and `BOT_QUEUE_MAX`."""

    threshold: int = 200
    full: int = 5_000

    def above_threshold(self, queued: int) -> bool:
        return queued > self.threshold


def not_admitted(queued: int, urgency: str, limits: QueueLimits) -> str:
    """Return why one more follow-up may not join the account's queue of this length; empty: it may."""
    if queued >= limits.full:
        return f"queue_full_{limits.full}"
    if limits.above_threshold(queued) and urgency != URGENT:
        return f"backpressure_{limits.threshold}"
    return ""


def without_number(reason: str) -> str:
    """Return the reason without its number, to be counted: `cooldown_active_12h` → `cooldown_active`."""
    head, _, tail = reason.rpartition("_")
    return head if tail.removesuffix("h").isdecimal() else reason
