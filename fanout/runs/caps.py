"""What is an account's cap for an action today, where does it come from, and how much of it is used?

The lane, the plan, the forecast, the `why` line and the admin all ask here, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection

from accounts.channels.registry import channel as description
from accounts.models import Account, DailyLimit
from accounts.warmup import warmup_cap
from fanout.engine import sql
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


NO_WARMUP = WarmUp()


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


# --- the same, read from the database -------------------------------------------------------------------


def caps(account: Account, action: str) -> Callable[[date], Cap]:
    """The cap of any day, with one query."""
    own = DailyLimit.objects.filter(account=account, action=action).first()
    warmup = WarmUp(account.warmup_started_on, account.warmup_days, account.warmup_floor)

    def on(day: date) -> Cap:
        return daily_cap(account.channel, action, own, settings.BOT_DAILY_LIMITS, warmup, day)

    return on


def cap_for(account: Account, action: str, today: date) -> Cap:
    return caps(account, action)(today)


def used_today(account: Account, action: str, now: datetime) -> int:
    """Sent today, in flight and unconfirmed: by the lane's own statement."""
    starts, ends = local_day_bounds(account.timezone, now)
    given: dict[str, Any] = {"account": account.pk, "action": action, "starts": starts, "ends": ends}
    with connection.cursor() as cursor:
        cursor.execute(sql.USED_TODAY, given)
        (used,) = cursor.fetchone()
    return int(used)
