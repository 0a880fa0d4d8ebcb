"""Delivery windows and business hours: pure calendar maths.

One rule settles every odd day: an hour begins at the first moment the local clock shows it or a later time.

- Clocks go forward over it: the first moment after the gap. A window wholly inside the gap is empty.
- Clocks go back over it: its first showing. A window that has ended does not open again, and where one
  window ends another that starts at that hour begins: no moment belongs to both and none to neither.
- A calendar day begins at its hour 0 by the same rule, so days follow each other without hole or overlap,
  whether they last 23, 24 or 25 hours or, as 30 December 2011 in Samoa, do not happen at all.

Hours are whole: 0 is the start of the day and 24 its end. Results are aware and in UTC.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from accounts.inputs import EVERY_DAY, SEND_DAYS, valid_timezone

DAY = timedelta(days=1)
#: a window and hours that do not meet for so long never will
LOOK_AHEAD = timedelta(days=60)


def window_error(start_hour: int, end_hour: int) -> str | None:
    """Return a sentence for the operator if the hours make no window, else None."""
    if not 0 <= start_hour <= 23:
        return f"The window must start at an hour from 0 to 23, not {start_hour}."
    if not 1 <= end_hour <= 24:
        return f"The window must end at an hour from 1 to 24, not {end_hour}."
    if start_hour == end_hour:
        return f"The window must end after it starts, not at the same hour ({start_hour})."
    if start_hour > end_hour:
        return (
            f"A window over midnight ({start_hour} to {end_hour}) is not supported: "
            f"use two reminders, one from {start_hour} to 24 and one from 0 to {end_hour}."
        )
    return None


def local_day_bounds(timezone: str, at: datetime) -> tuple[datetime, datetime]:
    """Return the first moment of the local day of `at`, and of the day after it: a daily cap counts between them."""
    zone = ZoneInfo(timezone)
    day = _local_day(zone, at)
    return _hour_begins(zone, day, 0), _hour_begins(zone, day, 24)


@dataclass(frozen=True, slots=True)
class BusinessHours:
    """The calendar of an account: hours (None: from or to midnight) on ISO weekdays (1 is Monday)."""

    timezone: str
    start_hour: int | None = None
    end_hour: int | None = None
    days: frozenset[int] = EVERY_DAY

    def __post_init__(self) -> None:
        # Without this, hours that never open would send next_open() looking for ever.
        error = window_error(*self._hours)
        if not valid_timezone(self.timezone):
            error = f"“{self.timezone}” is not a known timezone."
        elif not self.days or not self.days <= EVERY_DAY:
            error = f"Choose at least one send day. {SEND_DAYS}"
        if error:
            raise ValueError(error)

    @property
    def _hours(self) -> tuple[int, int]:
        return (
            0 if self.start_hour is None else self.start_hour,
            24 if self.end_hour is None else self.end_hour,
        )

    @property
    def always_open(self) -> bool:
        return self._hours == (0, 24) and self.days == EVERY_DAY

    def next_open(self, at: datetime) -> datetime:
        """Return `at` while open, else the moment the hours begin next."""
        start, _ = next(_openings(self.timezone, *self._hours, self.days, at))
        return max(start, at.astimezone(UTC))

    def closes_at(self, at: datetime) -> datetime | None:
        """Return the end of the opening at `at`, or of the next one; None if it is open around the clock, every day.

        Whole days in a row are one opening: an account open from Monday 0 to Friday 24 closes once a week.
        """
        if self.always_open:
            return None
        openings = _openings(self.timezone, *self._hours, self.days, at)
        _, end = next(openings)
        for start, next_end in openings:
            if start > end:
                break
            end = next_end
        return end


@dataclass(frozen=True, slots=True)
class Window:
    """A delivery window: the same hours of every local day. `widened_to` is a later end for its own day only."""

    timezone: str
    start_hour: int = 0
    end_hour: int = 24
    widened_to: datetime | None = None

    def opens_on(self, at: datetime) -> datetime:
        """Return when the window of the local day of `at` opens."""
        zone = ZoneInfo(self.timezone)
        return _hour_begins(zone, _local_day(zone, at), self.start_hour)

    def closes_on(self, at: datetime) -> datetime:
        """Return when the window of the local day of `at` closes; in the past if that is over."""
        zone = ZoneInfo(self.timezone)
        day = _local_day(zone, at)
        closes = _hour_begins(zone, day, self.end_hour)
        # The end of a window that closes at midnight is the first moment of the next day.
        if self.widened_to and _local_day(zone, self.widened_to - timedelta.resolution) == day:
            return max(closes, self.widened_to)
        return closes

    def opened_before(self, closes_at: datetime) -> datetime:
        """Return when the window that closes at this moment opened; one that closes at midnight belongs to the day
        before."""
        return self.opens_on(closes_at - timedelta.resolution)

    def is_open(self, at: datetime) -> bool:
        # Most moments asked about are in the window: the local day is then looked up once.
        zone = ZoneInfo(self.timezone)
        day = _local_day(zone, at)
        if at < _hour_begins(zone, day, self.start_hour):
            return False
        return at < _hour_begins(zone, day, self.end_hour) or (self.widened_to is not None and at < self.closes_on(at))

    def next_opening(self, at: datetime) -> datetime:
        """Return `at` while the window is open, else the moment it opens next."""
        if self.is_open(at):
            return at.astimezone(UTC)
        start, _ = next(_openings(self.timezone, self.start_hour, self.end_hour, EVERY_DAY, at))
        return start

    def opening_after(self, at: datetime) -> datetime:
        """Return the next opening; while the window is open, the one after it."""
        return self.next_opening(self.closes_on(at) if self.is_open(at) else at)

    def meets(self, hours: BusinessHours, at: datetime) -> datetime | None:
        """Return the first moment from `at` on at which window and hours are both open; None: they never meet."""
        limit = at + LOOK_AHEAD
        while at < limit:
            opens = self.next_opening(at)
            both = opens if hours.always_open else hours.next_open(opens)
            if both == opens:
                return both
            at = both
        return None


def _openings(
    timezone: str, start_hour: int, end_hour: int, days: frozenset[int], at: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the openings on these days that are not over at `at`, in order; without the empty ones inside a gap."""
    if error := window_error(start_hour, end_hour):
        raise ValueError(error)
    zone = ZoneInfo(timezone)
    first = _local_day(zone, at)
    for day in (first + n * DAY for n in itertools.count()):
        if day.isoweekday() not in days:
            continue
        start, end = _hour_begins(zone, day, start_hour), _hour_begins(zone, day, end_hour)
        if start < end and at < end:
            yield start, end


def _local_day(zone: ZoneInfo, at: datetime) -> date:
    if at.tzinfo is None:
        raise ValueError("A moment needs its timezone: this datetime is naive.")
    day = at.astimezone(zone).date()
    # Clocks that go back over midnight show yesterday's date again after today has begun.
    return day + DAY if _hour_begins(zone, day, 24) <= at else day


# Kept: a calendar asks for the same few hours of each day thousands of times.
@lru_cache(maxsize=8192)
def _hour_begins(zone: ZoneInfo, day: date, hour: int) -> datetime:
    """Return the first moment the local clock shows this hour of this day, or a later time."""
    wall = datetime.combine(day + hour // 24 * DAY, time(hour % 24))
    # fold=0 is the first showing of a repeated time.
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _wall_clock(zone, moment) == wall:
        return moment
    # The clock never shows this time. Read with the offset from after the gap it lies before the change,
    # with the one from before the gap at or after it. Zones change their clocks on whole seconds.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    seconds = range(int((moment - before).total_seconds()) + 1)
    after_gap = bisect_left(seconds, True, key=lambda s: _wall_clock(zone, before + timedelta(seconds=s)) >= wall)
    return before + timedelta(seconds=after_gap)


def _wall_clock(zone: ZoneInfo, at: datetime) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)
