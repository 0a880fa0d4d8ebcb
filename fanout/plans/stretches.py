"""When a lane may send: where a window and the account's business hours overlap. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from fanout.rules.gates import local_date
from reminders.window import BusinessHours, Window, local_day_bounds


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time without a break in which the lane may send, and what ends it."""

    starts: float
    ends: float
    day: date  # whose window it belongs to
    ended_by: str  # "window", "hours" or "day": the account's calendar day, with its cap and its budget
    account_day: date | None


def stretches(window: Window, hours: BusinessHours, now: datetime, by_day: bool = False) -> Iterator[Stretch]:
    """Where window and hours overlap, from `now` on; split at the account's midnight where a cap or a budget counts."""
    at = now
    while True:
        opens = window.meets(hours, at)
        if opens is None:
            return
        ends = _ends(window, hours, opens, by_day)
        ended_by, at = min(ends, key=lambda end: end[1])
        account_day = local_date(hours.timezone, opens) if by_day else None
        day = local_date(window.timezone, opens)
        yield Stretch(opens.timestamp(), at.timestamp(), day, ended_by, account_day)


def _ends(window: Window, hours: BusinessHours, at: datetime, by_day: bool) -> list[tuple[str, datetime]]:
    ends = [("window", window.closes_on(at))]
    closes = hours.closes_at(at)
    if closes is not None:
        ends.append(("hours", closes))
    if by_day:
        ends.append(("day", local_day_bounds(hours.timezone, at)[1]))
    return ends


def outside_hours(hours: BusinessHours, window: Window, at: datetime) -> bool:
    """Whether the account's hours end before the window of that day does, or are over already."""
    closes = window.closes_on(at)
    opens = hours.next_open(max(at, window.opens_on(at)))
    ends = hours.closes_at(opens)
    return opens >= closes or (ends is not None and ends < closes)
