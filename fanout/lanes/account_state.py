"""An account and its lane as stored: what it may send, and how fast. Engine, forecast and `why` all read this class, so
that they agree; each adds what only it needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from django.conf import settings

from accounts import knobs
from accounts.channels.registry import channel
from accounts.inputs import EVERY_DAY
from accounts.models import Account
from accounts.presets import HOURS
from fanout.database import Steps, carry_out
from fanout.lanes.chats import BEGUN_TODAY, budget_of, hold_of
from fanout.models import LaneState
from fanout.rules.gates import AccountFacts
from fanout.rules.new_chat_limits import NO_HOLD, NO_LIMIT, NewChats
from fanout.rules.pace import PaceSettings, PaceState, slowed
from reminders.window import BusinessHours, local_day_bounds

Row = Mapping[str, Any]  # a row's columns
UNLIMITED = AccountFacts("active", "", None, BusinessHours("UTC"))
ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class AccountState:
    account_id: int
    pace_settings: PaceSettings
    hours: BusinessHours
    # As the gates see the account, without a cap: that depends on the action.
    base_facts: AccountFacts = UNLIMITED
    # As the lane's last holder stored it.
    pace: PaceState = field(default_factory=PaceState)
    channel: str = ""
    knobs: Mapping[str, float] = field(default_factory=dict)
    # Targets at the provider at the same time, and seconds between two parts of one target, at least and at most.
    concurrency: int = 3
    jitter: tuple[float, float] = (0.2, 0.5)
    # Messages that a person wrote with the account's phone, as of this reading.
    written_elsewhere: int = 0
    # The next message is a single trial.
    probing: bool = False
    # Calls in a row that the provider did not answer in time.
    timeouts: int = 0
    # Without those begun today: see `read_counts`.
    new_chats: NewChats = NO_LIMIT
    # The account's calendar day, as it was read.
    day: tuple[datetime, datetime] = ALWAYS

    @classmethod
    def read(cls, account: Row, lane: Row | None, now: datetime, **more: Any) -> Self:
        """Return the state in the rows of an account and its lane. `more`: fields of a subclass."""
        resolved = knobs.resolve(account, settings.BOT, channel(account["channel"]).knobs)
        effective = {name: setting.value for name, setting in resolved.items()}
        calendar = calendar_of(account)
        hold = hold_of(lane) if lane is not None else NO_HOLD
        day = local_day_bounds(calendar.timezone, now)
        state = {
            "account_id": account["id"],
            "pace_settings": pace_settings(effective),
            "hours": calendar,
            "base_facts": account_facts(account),
            "pace": pace_state(lane) if lane is not None else PaceState(),
            "channel": account["channel"],
            "knobs": effective,
            "concurrency": int(effective["group_concurrency"]),
            "jitter": (effective["part_jitter_min_ms"] / 1000, effective["part_jitter_max_ms"] / 1000),
            "written_elsewhere": lane["written_elsewhere"] if lane is not None else 0,
            "probing": lane is not None and lane["probing"],
            "timeouts": lane["timeouts"] if lane is not None else 0,
            "new_chats": NewChats(hold, budget_of(effective), day_ends_at=day[1]),
            "day": day,
        }
        return cls(**state | more)

    @property
    def interval(self) -> timedelta:
        """The time between two messages at the present pace."""
        return timedelta(seconds=slowed(self.pace_settings.interval, self.pace.slow_factor))

    @classmethod
    def of(cls, account: Account, lane: LaneState | None, now: datetime, **more: Any) -> Self:
        """Return the state of an account that Django has read."""
        row = account.__dict__ | account.overrides()
        return cls.read(row, lane.__dict__ if lane is not None else None, now, **more)


def pace_settings(effective: Mapping[str, float]) -> PaceSettings:
    return PaceSettings(
        per_minute=effective["max_send_per_minute"],
        burst=int(effective["send_burst"]),
        min_gap=effective["min_gap_seconds"],
        max_gap=effective["max_gap_seconds"],
        batch_size=int(effective["batch_size"]),
        batch_pause=effective["batch_pause_seconds"],
    )


def pace_state(lane: Row) -> PaceState:
    return PaceState(lane["theoretical_arrival"], lane["next_send_at"], lane["batch_sent"], lane["slow_factor"])


def account_facts(account: Row) -> AccountFacts:
    """Return the account as the gates see it, without a cap: that depends on the action."""
    return AccountFacts(account["status"], account["status_reason"], account["status_until"], calendar_of(account))


#: the columns of an account that `calendar_of` reads
CALENDAR_COLUMNS = ("timezone", *HOURS)


def calendar_of(account: Row) -> BusinessHours:
    """Return the account's calendar. All questions about its hours are asked of this object."""
    days = frozenset(account["send_days"] or EVERY_DAY)
    return BusinessHours(account["timezone"], account["hours_start"], account["hours_end"], days)


# --- what must be counted -----------------------------------------------------------------------------------


def counts(states: Collection[AccountState]) -> Steps[None]:
    """Count what the limits of these accounts are about, with one statement for each such limit. Engine, forecast and
    `why` carry out the same steps."""
    days = [(s.account_id, *s.day) for s in states if s.new_chats.budget is not None]
    if days:
        accounts, starts, ends = zip(*days)
        rows = yield BEGUN_TODAY, {"accounts": list(accounts), "starts": list(starts), "ends": list(ends)}
        begun = {row["account_id"]: row["begun"] for row in rows}
        for state in states:
            state.new_chats = state.new_chats.begin(begun.get(state.account_id, 0))


def read_counts(states: Collection[AccountState]) -> None:
    """Count on Django's connection."""
    carry_out(counts(states))


def new_chats_now(account: Account, now: datetime) -> NewChats:
    """Return the account's new chats as stored; counted only where they have a budget."""
    state = AccountState.of(account, getattr(account, "lane", None), now)
    read_counts([state])
    return state.new_chats
