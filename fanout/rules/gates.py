"""The gates: may this lane send now, for this run, to this target? Pure decisions, asked in this order. Each says why
not, and until when.

Also the cap of a day, and when a stopped run could go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from accounts.actions import warmup_cap
from accounts.channels.registry import channel as description
from fanout.models.run import PauseReason
from fanout.rules.follow_ups import ANYBODY, Limits, Person, refusal
from reminders.window import BusinessHours, Window, local_day_bounds


@dataclass(frozen=True, slots=True)
class Open:
    pass


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now; goes on by itself at `until`."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """This target gets nothing; it is skipped with the reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Close:
    """The run stops here."""

    reason: PauseReason
    why: str
    # When the wait is over, where it is not for one of the account's own limits.
    until: datetime | None = None


#: Message 2 that could not go out within a day of the reply
TOO_LATE = "too late: the reply was more than 24 hours ago"
#: Message 2 for a reply that came while Message 1 was under way, which then failed
NO_MESSAGE_1 = "Message 1 is not known to have gone out"

Gate = Open | Wait | Refuse | Close
OPEN = Open()


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """An account as the gates see it."""

    status: str
    status_reason: str
    status_until: datetime | None
    hours: BusinessHours
    cap: int | None = None
    used: int = 0
    # When the account's calendar day ends and a new cap begins.
    day_ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    window_opens_at: datetime
    window_closes_at: datetime


@dataclass(frozen=True, slots=True)
class TargetFacts:
    suppressed: str = ""
    person: Person = ANYBODY
    follow_up: bool = False
    expires_at: datetime | None = None
    # Message 2 only: the person has got nothing of Message 1.
    no_message_1: bool = False


def may_run(account: AccountFacts, run: RunFacts, now: datetime) -> Gate:
    """Ask all gates that do not depend on the target. A wait that ends after the window closes the run."""
    for ask, limit in (
        (window(run, now), PauseReason.WINDOW_CLOSED),
        (account_status(account, now), PauseReason.ACCOUNT_DOWN),
        (business_hours(account, now), PauseReason.ACCOUNT_CAPACITY),
        (daily_cap(account, now), PauseReason.ACCOUNT_CAPACITY),
    ):
        if isinstance(ask, Wait) and ask.until >= run.window_closes_at:
            return Close(limit, ask.why)
        if not isinstance(ask, Open):
            return ask
    return OPEN


def window(run: RunFacts, now: datetime) -> Gate:
    if now >= run.window_closes_at:
        return Close(PauseReason.WINDOW_CLOSED, "delivery window closed")
    if now < run.window_opens_at:
        return Wait(run.window_opens_at, "delivery window not open yet")
    return OPEN


def account_status(account: AccountFacts, now: datetime) -> Gate:
    if account.status == "active":
        return OPEN
    why = f"account {account.status}" + (f": {account.status_reason}" if account.status_reason else "")
    if account.status_until is not None and account.status_until > now:
        return Wait(account.status_until, why)
    return Close(PauseReason.ACCOUNT_DOWN, why)


def suspension_over(account: AccountFacts, now: datetime) -> bool:
    """Return whether a temporary ban has ended: the account may try a single message."""
    return account.status == "suspended" and account.status_until is not None and account.status_until <= now


def business_hours(account: AccountFacts, now: datetime) -> Gate:
    if account.hours.always_open:
        return OPEN  # most accounts, and computing the calendar is slow
    opens = account.hours.next_open(now)
    return OPEN if opens <= now else Wait(opens, "Outside send window")


def daily_cap(account: AccountFacts, now: datetime) -> Gate:
    if account.cap is None or account.used < account.cap or account.day_ends_at is None:
        return OPEN
    again = account.hours.next_open(account.day_ends_at)
    return Wait(again, f"Daily cap reached ({account.used}/{account.cap})")


def may_receive(target: TargetFacts, limits: Limits, now: datetime) -> Gate:
    if why := refusal(target.person, target.follow_up, limits, now):
        return Refuse(why)
    if target.suppressed:
        return Refuse(f"suppressed: {target.suppressed}")
    if target.expires_at is not None and target.expires_at <= now:
        return Refuse(TOO_LATE)
    if target.no_message_1:
        return Refuse(NO_MESSAGE_1)
    return OPEN


# --- when a stopped run could go on -----------------------------------------------------------------------


def goes_on_at(
    window: Window, account: AccountFacts, now: datetime, not_before: datetime | None = None
) -> datetime | None:
    """Return the first moment that window, business hours and the account's limits allow; None: there is none."""
    limit = limit_in_the_way(account, now)
    earliest = limit.until if limit else now
    return window.meets(account.hours, max(earliest, not_before or earliest))


def limit_in_the_way(account: AccountFacts, now: datetime) -> Wait | None:
    """Return the account's own limit that lasts longest, regardless of the window."""
    limits = account_status(account, now), business_hours(account, now), daily_cap(account, now)
    return max((limit for limit in limits if isinstance(limit, Wait)), key=lambda wait: wait.until, default=None)


# --- the cap of a day -------------------------------------------------------------------------------------


class HasLimit(Protocol):
    """An account's own row for an action; an empty limit means no cap, despite the fallback table."""

    @property
    def limit(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class OwnLimit:
    limit: int | None


@dataclass(frozen=True, slots=True)
class WarmUp:
    started_on: date | None = None
    days: int = 0
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Cap:
    """Messages per calendar day (None: no cap), and which rule says so."""

    limit: int | None
    source: str  # "account", "channel", "fallback", "warm-up" or "none"


def cap_of_day(
    channel: str, action: str, own: HasLimit | None, fallback: Mapping[str, int], warmup: WarmUp, today: date
) -> Cap:
    """Return the account's own limit, else the channel's or the fallback table's; less than that while it warms up."""
    warm = _when_warm(channel, action, own, fallback)
    if warmup.started_on is None:
        return warm
    limit = warmup_cap(warm.limit, warmup.floor, warmup.days, warmup.started_on, today)
    return warm if limit == warm.limit else Cap(limit, "warm-up")


def _when_warm(channel: str, action: str, own: HasLimit | None, fallback: Mapping[str, int]) -> Cap:
    if own is not None:
        return Cap(own.limit, "account")
    described = description(channel)
    if action in described.daily_caps:
        return Cap(described.daily_caps[action], "channel")
    if described.capped and action in fallback:
        return Cap(fallback[action], "fallback")
    return Cap(None, "none")


def local_date(timezone: str, at: datetime) -> date:
    """Return the calendar day that a cap counts `at` into."""
    return local_day_bounds(timezone, at)[0].astimezone(ZoneInfo(timezone)).date()
