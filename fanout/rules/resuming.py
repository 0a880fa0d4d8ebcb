"""When could a run go on that its window or its account's limits have stopped? Pure."""

from __future__ import annotations

from datetime import datetime

from fanout.rules import gates
from fanout.rules.gates import AccountFacts, Wait
from reminders.window import Window


def goes_on_at(
    window: Window, account: AccountFacts, now: datetime, not_before: datetime | None = None
) -> datetime | None:
    """The first moment that window, business hours and the account's limits allow; None: there is none."""
    limit = limit_in_the_way(account, now)
    earliest = limit.until if limit else now
    return window.meets(account.hours, max(earliest, not_before or earliest))


def limit_in_the_way(account: AccountFacts, now: datetime) -> Wait | None:
    """The account's own limit that lasts longest, whatever the window says."""
    limits = gates.account_status(account, now), gates.business_hours(account, now), gates.daily_cap(account, now)
    return max((limit for limit in limits if isinstance(limit, Wait)), key=lambda wait: wait.until, default=None)
