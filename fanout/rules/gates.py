"""The gates: may this lane send now, for this run, to this target? Pure decisions. Each says why not, and until when.

`LIMITS` is the one list of what stops a lane for a while, with its words; `may_run` asks it in order, then
`may_receive` judges the target. Also when a stopped run could go on, and the cap of a day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from accounts.actions import warmup_cap
from accounts.channels.registry import channel as description
from accounts.models import status_in_words
from fanout.models.run import PauseReason
from fanout.rules.follow_up_limits import UNKNOWN_PROSPECT, Limits, Prospect, refusal
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
#: a single message whose latest time has passed
LATEST_PASSED = "too late: it was not to be sent after its latest time"
CLOSED_FOR_A_DAY = "the account and the window are not open together within 24 hours of the reply"
#: Message 2 for a reply that came while Message 1 was under way, which then failed
NO_MESSAGE_1 = "Message 1 is not known to have gone out"

#: a follow-up to a person who has replied to the message that it follows
REPLIED = "the person has replied"

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
    person: Prospect = UNKNOWN_PROSPECT
    follow_up: bool = False
    expires_at: datetime | None = None
    # Message 2 only: the person has got nothing of Message 1.
    no_message_1: bool = False
    # Follow-ups only: the person has replied to the message before.
    has_replied: bool = False


# --- the limits of an account and a run -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """The words of a limit: its name in forecasts, the sentence for a run that waits for it, and the pause reason of a
    run whose window closes first."""

    name: str
    sentence: str  # a template for `str.format`
    reason: PauseReason = PauseReason.ACCOUNT_CAPACITY
    # A run that stopped for it may go on without an operator, if its switch says so: see `goes_on_by_itself`.
    ends_by_itself: bool = True

    def wrote(self, why: str) -> bool:
        """Return whether this recorded sentence is its own."""
        return why.startswith(self.sentence.partition("{")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimit(Limit):
    """A limit that does not depend on the target. `gate` is asked without a run for the account's own limits alone."""

    gate: Callable[[AccountFacts, RunFacts | None, datetime], Gate]
    # Forecasts go through it day by day (`fanout.plans.projection`). All others they take as a hold that ends when the
    # gate says.
    by_day: bool = False


def window(account: AccountFacts, run: RunFacts | None, now: datetime) -> Gate:
    if run is None:
        return OPEN
    if now >= run.window_closes_at:
        return Close(DELIVERY_WINDOW.reason, DELIVERY_WINDOW.sentence.format(state="closed"))
    if now < run.window_opens_at:
        return Wait(run.window_opens_at, DELIVERY_WINDOW.sentence.format(state="not open yet"))
    return OPEN


def account_status(account: AccountFacts, run: RunFacts | None, now: datetime) -> Gate:
    if account.status == "active":
        return OPEN
    why = ACCOUNT_STATUS.sentence.format(status=status_in_words(account.status, account.status_reason))
    if account.status_until is not None and account.status_until > now:
        return Wait(account.status_until, why)
    return Close(ACCOUNT_STATUS.reason, why)


def business_hours(account: AccountFacts, run: RunFacts | None, now: datetime) -> Gate:
    if account.hours.always_open:
        return OPEN  # most accounts, and computing the calendar is slow
    opens = account.hours.next_open(now)
    return OPEN if opens <= now else Wait(opens, BUSINESS_HOURS.sentence)


def daily_cap(account: AccountFacts, run: RunFacts | None, now: datetime) -> Gate:
    if account.cap is None or account.used < account.cap or account.day_ends_at is None:
        return OPEN
    again = account.hours.next_open(account.day_ends_at)
    return Wait(again, DAILY_CAP.sentence.format(used=account.used, cap=account.cap))


DELIVERY_WINDOW = LaneLimit(
    "delivery window", "delivery window {state}", PauseReason.WINDOW_CLOSED, gate=window, by_day=True
)
ACCOUNT_STATUS = LaneLimit(
    "account status", "account {status}", PauseReason.ACCOUNT_DOWN, ends_by_itself=False, gate=account_status
)
BUSINESS_HOURS = LaneLimit(
    "business hours",
    "outside the account's business hours",
    PauseReason.ACCOUNT_HOURS,
    gate=business_hours,
    by_day=True,
)
DAILY_CAP = LaneLimit("daily cap", "Daily cap reached ({used}/{cap})", gate=daily_cap, by_day=True)

#: All limits that do not depend on the target, in the order in which they are asked. Lane, auto-resume, `why` line,
#: forecast and the texts of runs take a limit from this list.
LIMITS = (DELIVERY_WINDOW, ACCOUNT_STATUS, BUSINESS_HOURS, DAILY_CAP)

#: pause reasons of limits that end without an operator
ENDS_BY_ITSELF = frozenset(limit.reason for limit in LIMITS if limit.ends_by_itself)
#: those of the account's own limits: a failure in flight may give something back, so they are asked again
ASKED_AGAIN = ENDS_BY_ITSELF - {DELIVERY_WINDOW.reason}


def goes_on_by_itself(run: Mapping[str, Any], reason: PauseReason) -> bool:
    """Return whether a run that stopped for this reason goes on without a person. It has two switches: one for its
    window, where the text may be stale the next day, and one for the limits of its account."""
    if reason not in ENDS_BY_ITSELF:
        return False
    return bool(run["auto_resume" if reason == DELIVERY_WINDOW.reason else "resume_after_limit"])


# New chats depend on the target: `fanout.rules.new_chat_limits` has their rules.
NEW_CHAT_BUDGET = Limit("budget of new chats", "New chats today: {begun} of {budget}")
NEW_CHAT_HOLD = Limit("hold of new chats", "No new chats for now: {why}")


def reason_recorded(why: str) -> PauseReason:
    """Return the pause reason for the sentence that an active account's lane recorded when it stepped aside."""
    own = (limit for limit in LIMITS if limit.reason in ASKED_AGAIN)
    return next((limit.reason for limit in own if limit.wrote(why)), PauseReason.ACCOUNT_CAPACITY)


def may_run(account: AccountFacts, run: RunFacts, now: datetime) -> Gate:
    """Ask all limits that do not depend on the target. A wait that ends after the window closes the run."""
    for limit in LIMITS:
        gate = limit.gate(account, run, now)
        if isinstance(gate, Wait) and gate.until >= run.window_closes_at:
            return Close(limit.reason, gate.why)
        if not isinstance(gate, Open):
            return gate
    return OPEN


def goes_on_at(
    window: Window, account: AccountFacts, now: datetime, not_before: datetime | None = None
) -> datetime | None:
    """Return the first moment at which a stopped run could go on by its window and the account's limits; None: there is
    none."""
    wait = limit_in_the_way(account, now)
    earliest = wait.until if wait else now
    return window.meets(account.hours, max(earliest, not_before or earliest))


def limit_in_the_way(account: AccountFacts, now: datetime) -> Wait | None:
    """Return the account's own limit that lasts longest, regardless of the window."""
    asked = (limit.gate(account, None, now) for limit in LIMITS)
    return max((gate for gate in asked if isinstance(gate, Wait)), key=lambda wait: wait.until, default=None)


class Held(NamedTuple):
    """A limit that keeps the account from sending for now."""

    limit: str
    until: datetime
    why: str


def held_by(account: AccountFacts, now: datetime) -> Held | None:
    """Return the limit that lasts longest among those that forecasts do not go through day by day."""
    asked = ((limit, limit.gate(account, None, now)) for limit in LIMITS if not limit.by_day)
    held = (Held(limit.name, gate.until, gate.why) for limit, gate in asked if isinstance(gate, Wait))
    return max(held, key=lambda one: one.until, default=None)


def suspension_over(account: AccountFacts, now: datetime) -> bool:
    """Return whether a temporary ban has ended: the account may try a single message."""
    return account.status == "suspended" and account.status_until is not None and account.status_until <= now


# --- one target -------------------------------------------------------------------------------------------


def late_words(collects: object) -> str:
    """Return why an expired target is skipped, in a run of single messages or in Message 2."""
    return LATEST_PASSED if collects else TOO_LATE


def may_receive(target: TargetFacts, limits: Limits, now: datetime, late: str = TOO_LATE) -> Gate:
    if why := refusal(target.person, target.follow_up, limits, now):
        return Refuse(why)
    if target.suppressed:
        return Refuse(f"suppressed: {target.suppressed}")
    if target.expires_at is not None and target.expires_at <= now:
        return Refuse(late)
    if target.no_message_1:
        return Refuse(NO_MESSAGE_1)
    if target.has_replied:
        return Refuse(REPLIED)
    return OPEN


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
