"""How many messages of an action may an account send on a day, and which rule says so? Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from accounts.actions import warmup_cap
from accounts.channels.registry import channel as description
from reminders.window import local_day_bounds


class HasLimit(Protocol):
    """An account's own row for an action; an empty limit says: no cap, whatever the fallback table says."""

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


def daily_cap(
    channel: str, action: str, own: HasLimit | None, fallback: Mapping[str, int], warmup: WarmUp, today: date
) -> Cap:
    """The account's own limit, else the fallback table's; and while the account warms up, less than that."""
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
    """The calendar day that a cap counts `at` into."""
    return local_day_bounds(timezone, at)[0].astimezone(ZoneInfo(timezone)).date()
