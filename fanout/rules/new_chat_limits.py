"""The rules of new chats: may an account write to a person it has not talked to yet? Pure.

Providers watch for accounts that approach many strangers. An account has a daily budget of new chats; and when the
provider refuses one, all new chats are held for a while. Groups and known chats go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fanout.rules.gates import NEW_CHAT_BUDGET, NEW_CHAT_HOLD, Wait
from fanout.rules.outcomes import LONGEST_HOLD


@dataclass(frozen=True, slots=True)
class NewChatHold:
    """Until when new chats wait, why, and how many the provider has refused in a row."""

    until: datetime | None = None
    why: str = ""
    refusals: int = 0

    def lasts(self, now: datetime) -> bool:
        return self.until is not None and self.until > now


NO_HOLD = NewChatHold()


@dataclass(frozen=True, slots=True)
class NewChats:
    """An account's new chats: its hold, its budget per day (None: no limit) and how much of that is used."""

    hold: NewChatHold = NO_HOLD
    budget: int | None = None
    begun: int = 0
    # When the account's calendar day ends and a new budget begins.
    day_ends_at: datetime | None = None

    def limited(self, now: datetime) -> bool:
        """Return whether new chats are limited at all."""
        return self.budget is not None or self.hold.lasts(now)

    def begin(self, chats: int) -> NewChats:
        return replace(self, begun=self.begun + chats)


NO_LIMIT = NewChats()


def wait_for_new_chats(chats: NewChats, now: datetime) -> Wait | None:
    """Return when the next new chat may begin, and why not now; None: it may."""
    if chats.hold.lasts(now):
        assert chats.hold.until is not None
        return Wait(chats.hold.until, NEW_CHAT_HOLD.sentence.format(why=chats.hold.why))
    if chats.budget is None or chats.begun < chats.budget or chats.day_ends_at is None:
        return None
    return Wait(chats.day_ends_at, NEW_CHAT_BUDGET.sentence.format(begun=chats.begun, budget=chats.budget))


def may_begin(chats: NewChats, under_way: int, now: datetime) -> bool:
    """Return whether one more may begin. After a refusal one at a time, until one has gone through."""
    if chats.hold.refusals and under_way:
        return False
    return wait_for_new_chats(chats, now) is None


def refused(hold: NewChatHold, seconds: float, why: str, now: datetime) -> NewChatHold:
    """Return the hold after a refusal: twice as long with each in a row. Refusals of chats under way together count as
    one."""
    if hold.lasts(now):
        return hold
    refusals = hold.refusals + 1
    # No more doublings than lead to the longest hold: floats overflow.
    length = min(seconds * 2 ** min(refusals - 1, 20), LONGEST_HOLD)
    return NewChatHold(now + timedelta(seconds=length), why, refusals)


def went_through(hold: NewChatHold, now: datetime) -> NewChatHold:
    """Return the hold after a new chat went through: a current hold stays, and the refusals are forgotten."""
    return hold if hold.lasts(now) else replace(hold, refusals=0)


def later(one: NewChatHold, other: NewChatHold) -> NewChatHold:
    """Return the hold that ends later, of the lane's in memory and the stored one."""
    if one.until is None or (other.until is not None and other.until > one.until):
        return other
    return one
