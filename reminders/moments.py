"""Format moments and durations for people: the same on every page, in every command and in every stored text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def wall_clock(at: datetime, timezone: str, now: datetime | None = None, seconds: bool = False) -> str:
    """Return the local time, with the day unless it is today. Without `now` the day is always named, for texts that are
    stored and read later."""
    local = at.astimezone(ZoneInfo(timezone))
    time = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    if now is None:
        return f"{local:%a %d %b} {time}"
    today = now.astimezone(ZoneInfo(timezone)).date()
    ahead = (local.date() - today).days
    if ahead == 0:
        return time
    if 0 < ahead < 7:
        return f"{local:%a} {time}"
    return f"{local:%a %d %b} {time}" if local.year == today.year else f"{local:%a %d %b %Y} {time}"


def two_clocks(at: datetime, zone: str, own: str, now: datetime | None = None, seconds: bool = False) -> str:
    """Return the time in the reader's timezone, followed by the place's own in brackets if its clocks differ."""
    theirs = wall_clock(at, zone, now, seconds)
    return theirs if same_clock(at, zone, own) else f"{theirs} ({wall_clock(at, own, now, seconds)} {own})"


def same_clock(at: datetime, zone: str, other: str) -> bool:
    return zone == other or at.astimezone(ZoneInfo(zone)).utcoffset() == at.astimezone(ZoneInfo(other)).utcoffset()


def moment(at: datetime, timezone: str, now: datetime | None = None, seconds: bool = False) -> str:
    """Return the local time with the name of its timezone."""
    return f"{wall_clock(at, timezone, now, seconds)} ({timezone})"


def closing_time(at: datetime, timezone: str) -> str:
    """Return the end of a window: one that ends with its day closes at 24:00, not at 00:00."""
    local = f"{at.astimezone(ZoneInfo(timezone)):%H:%M}"
    return "24:00" if local == "00:00" else local


def in_full(at: datetime, timezone: str) -> str:
    """Return weekday, date, time to the second and timezone."""
    return f"{at.astimezone(ZoneInfo(timezone)):%A %d %B %Y %H:%M:%S} ({timezone})"


@dataclass(frozen=True, slots=True)
class TimeWords:
    """A format for the moments of a place. `zone` is the reader's timezone; without one the place's own is named."""

    own: str
    zone: str = ""

    def __call__(self, at: datetime, now: datetime | None = None, seconds: bool = False) -> str:
        return two_clocks(at, self.zone, self.own, now, seconds) if self.zone else moment(at, self.own, now, seconds)


def duration(seconds: float) -> str:
    """Return a duration in at most two units: "2 h 5 min"."""
    left = max(0, int(seconds))
    words: list[str] = []
    for size, unit in UNITS:
        if left >= size or (unit == "s" and not words):
            words.append(f"{left // size} {unit}")
            left %= size
        if len(words) == 2:
            break
    return " ".join(words)


def about(seconds: float) -> str:
    """Return an expected duration in whole minutes: "about 2 min"."""
    return f"about {duration(max(1, round(seconds / 60)) * 60)}"
