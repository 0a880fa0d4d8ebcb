"""An account and its lane as stored: what it may send, and how fast. Engine, forecast and `why` all read this class, so
that they agree; each adds what only it needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from django.conf import settings

from accounts import knobs
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import execute
from fanout.lanes.chats import BEGUN_TODAY, budget_of, hold_of
from fanout.models import LaneState
from fanout.rules.gates import AccountFacts
from fanout.rules.new_chat_limits import NO_HOLD, NO_LIMIT, NewChats
from fanout.rules.pace import PaceSettings, PaceState
from reminders.window import EVERY_DAY, BusinessHours, local_day_bounds

Row = Mapping[str, Any]  # a row's columns
ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class AccountState:
    account_id: int
    pace_settings: PaceSettings
    hours: BusinessHours
    # As the lane's last holder stored it.
    pace: PaceState = field(default_factory=PaceState)
    channel: str = ""
    knobs: Mapping[str, float] = field(default_factory=dict)
    # Targets at the provider at the same time, and seconds between two parts of one target, at least and at most.
    concurrency: int = 3
    jitter: tuple[float, float] = (0.2, 0.5)
    # The next message is a single trial.
    probing: bool = False
    # Calls in a row that the provider did not answer in time.
    timeouts: int = 0
    # Without those begun today: see `count_new_chats`.
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
            "pace": pace_state(lane) if lane is not None else PaceState(),
            "channel": account["channel"],
            "knobs": effective,
            "concurrency": int(effective["group_concurrency"]),
            "jitter": (effective["part_jitter_min_ms"] / 1000, effective["part_jitter_max_ms"] / 1000),
            "probing": lane is not None and lane["probing"],
            "timeouts": lane["timeouts"] if lane is not None else 0,
            "new_chats": NewChats(hold, budget_of(effective), day_ends_at=day[1]),
            "day": day,
        }
        return cls(**state | more)

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
    return PaceState(lane["tat"], lane["next_send_at"], lane["batch_sent"], lane["slow_factor"])


def account_facts(account: Row) -> AccountFacts:
    """Return the account as the gates see it, without a cap: that depends on the action."""
    return AccountFacts(account["status"], account["status_reason"], account["status_until"], calendar_of(account))


#: the columns of an account that `calendar_of` reads
CALENDAR_COLUMNS = ("timezone", "hours_start", "hours_end", "send_days")


def calendar_of(account: Row) -> BusinessHours:
    """Return the account's calendar. All questions about its hours are asked of this object."""
    days = frozenset(account["send_days"] or EVERY_DAY)
    return BusinessHours(account["timezone"], account["hours_start"], account["hours_end"], days)


# --- new chats ----------------------------------------------------------------------------------------------


def budgeted(states: Collection[AccountState]) -> list[list[Any]]:
    """Return the parameters of BEGUN_TODAY for the accounts that limit their new chats; empty: there are none."""
    days = [(s.account_id, *s.day) for s in states if s.new_chats.budget is not None]
    return [list(column) for column in zip(*days)]


def count_new_chats(states: Collection[AccountState]) -> None:
    """Add the new chats that each account has begun today, where they have a budget, with one query."""
    if parameters := budgeted(states):
        begun = {row["account_id"]: row["begun"] for row in execute(BEGUN_TODAY, parameters)}
        for state in states:
            state.new_chats = state.new_chats.begin(begun.get(state.account_id, 0))


def new_chats_now(account: Account, now: datetime) -> NewChats:
    """Return the account's new chats as stored; counted only where they have a budget."""
    state = AccountState.of(account, getattr(account, "lane", None), now)
    count_new_chats([state])
    return state.new_chats
