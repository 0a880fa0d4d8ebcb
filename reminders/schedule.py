"""When a reminder fires: once, or by a cron expression in its own timezone. Pure.

Clock changes are handled as Debian's cron does: a job at a fixed time runs once a day, just after the gap
when its time is skipped and at the first showing when it is repeated; a job whose minute or hour field
starts with a star follows the clock, so it runs in both showings and not in a gap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from reminders.moments import moment
from reminders.window import Window

ONCE = "once"
CRON = "cron"

#: within which a reminder's one moment lies; calendars end, and arithmetic near their ends fails
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
MOST_YEARS_AHEAD = 10
TOO_FAR = f"Choose a time within the next {MOST_YEARS_AHEAD} years."

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

MAX_CRON_LENGTH = 100
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
USUAL_DAYS = {"*": "every day", "1-5": "every weekday", "6,0": "every weekend", "0,6": "every weekend"}
LOOKED_AT = 100  # firings, of which one must be in time
FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
# Whether an expression can fire at all does not depend on the date: any start will do, and a fixed one
# gives the same verdict every day. cronsim looks 50 years ahead, past every leap-day weekday.
SOME_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)


def from_wall_clock(wall: datetime, timezone: str, now: datetime) -> datetime:
    """Return the moment of a local time, in UTC. Raises ValueError with a sentence for the operator."""
    if not EARLIEST.year <= wall.year <= now.year + MOST_YEARS_AHEAD:
        raise ValueError(TOO_FAR)
    return wall.replace(tzinfo=ZoneInfo(timezone)).astimezone(UTC)


def cron_error(expr: str) -> str | None:
    """Return a sentence when the expression cannot be used, else None."""
    fields = expr.split()
    if not fields:
        return "Enter a cron expression, for example “0 9 * * 1-5”."
    if len(expr) > MAX_CRON_LENGTH:
        return f"A cron expression may have at most {MAX_CRON_LENGTH} characters."
    if len(fields) != len(FIELDS):
        return f"A cron expression has five fields (minute hour day month weekday), this one has {len(fields)}."
    try:
        next(CronSim(expr, SOME_MOMENT))
    except CronSimError as exc:
        return _bad_field(fields, str(exc))
    except StopIteration:
        return "This cron expression never fires: no date fits it."
    return None


def _bad_field(fields: list[str], reason: str) -> str:
    name = reason.removeprefix("Bad ")
    value = dict(zip(FIELDS, fields)).get(name, "")
    if name == "day-of-month" and _parses_alone(value):
        return "This cron expression never fires: no month it names has that day."
    return f"The {name} field of the cron expression is not valid: “{value}”."


def _parses_alone(day_of_month: str) -> bool:
    # cronsim says "Bad day-of-month" both for nonsense and for 30 February.
    try:
        CronSim(f"0 0 {day_of_month} * *", SOME_MOMENT)
    except CronSimError:
        return False
    return True


def describe(cron: str) -> str:
    """Return the expression in words ("every weekday at 09:00"), or the expression itself."""
    if cron_error(cron):
        return cron
    minute, hour, *days = cron.split()
    usual = _days_in_words(*days)
    if usual and minute.isdecimal() and hour.isdecimal():
        return f"{usual} at {int(hour):02d}:{int(minute):02d}"
    words = str(CronSim(cron, SOME_MOMENT).explain())
    return words[:1].lower() + words[1:]


def _days_in_words(day: str, month: str, weekday: str) -> str:
    """Return words for the usual expressions, empty for others."""
    if (day, month) == ("*", "*"):
        if weekday.isdecimal():
            return f"every {WEEKDAYS[int(weekday) % 7]}"
        return USUAL_DAYS.get(weekday, "")
    return f"on day {int(day)} of every month" if day.isdecimal() and (month, weekday) == ("*", "*") else ""


def next_firing(kind: str, fire_at: datetime | None, cron: str, timezone: str, after: datetime) -> datetime | None:
    """Return the first firing strictly after `after`, in UTC, or None."""
    return next(firings(kind, fire_at, cron, timezone, after), None)


def upcoming(
    kind: str, fire_at: datetime | None, cron: str, timezone: str, after: datetime, count: int = 5
) -> list[datetime]:
    return list(islice(firings(kind, fire_at, cron, timezone, after), count))


def passed_error(fire_at: datetime, now: datetime) -> str:
    """Return a sentence for a time in the past, else nothing."""
    return "This time has passed." if fire_at <= now else ""


def late_error(
    kind: str, fire_at: datetime | None, cron: str, timezone: str, window: Window, after: datetime
) -> str | None:
    """Return a sentence when the reminder only ever fires after its window has closed, else None."""
    firings = upcoming(kind, fire_at, cron, timezone, after, LOOKED_AT)
    if not firings or any(firing < window.closes_on(firing) for firing in firings):
        return None
    return (
        f"It would fire {'always ' if kind == CRON else ''}after the delivery window has closed at "
        f"{window.end_hour:02d}:00 ({timezone}), for example {moment(firings[0], timezone)}, and send nothing. "
        "Fire earlier, or let the window close later."
    )


def firings(kind: str, fire_at: datetime | None, cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """Yield the firings strictly after `after`, in order, in UTC."""
    if kind == ONCE:
        return iter([fire_at.astimezone(UTC)] if fire_at and fire_at > after else [])
    if kind != CRON:
        raise ValueError(f"Unknown kind of schedule: {kind}.")
    if error := cron_error(cron):
        raise ValueError(error)
    minute, hour = cron.split()[:2]
    follow_clock = minute.startswith("*") or hour.startswith("*")
    follow = _by_the_clock if follow_clock else _at_fixed_times
    return follow(cron, ZoneInfo(timezone), after.astimezone(UTC))


def _at_fixed_times(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    last = after
    for local in CronSim(cron, after.astimezone(zone)):
        firing = local.astimezone(UTC)
        # In the second showing of an hour cronsim offers times of the first, which are past; and two times
        # skipped by one gap both come out as the moment after it, which is one firing.
        if firing > last:
            last = firing
            yield firing


def _by_the_clock(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield firings between clock changes, where local time is UTC plus a constant and cron maths is exact.

    cronsim's own stepping in local time loses a firing a year where clocks change at midnight or by half
    an hour (`*/30 1 * * *` in Cairo, `50 * * * *` on Lord Howe Island).
    """
    after = after.replace(microsecond=0)
    offset = _offset(zone, after)
    while (local := next(CronSim(cron, after + offset), None)) is not None:
        firing = local - offset
        change = _first_change(zone, offset, after, firing)
        if change is None:
            yield firing
            after = firing
        else:
            # From a second before it: the moment of the change may itself be a firing.
            after, offset = change - SECOND, _offset(zone, change)


def _first_change(zone: ZoneInfo, offset: timedelta, after: datetime, until: datetime) -> datetime | None:
    """Return the first moment after `after`, up to `until`, at which the zone's offset changes, or None."""
    while after < until:
        stop = min(after + DAY, until)
        if _offset(zone, stop) != offset:
            moments = range(1, (stop - after) // SECOND + 1)
            n = bisect_left(moments, True, key=lambda s: _offset(zone, after + s * SECOND) != offset)
            return after + moments[n] * SECOND
        after = stop
    return None


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None  # a ZoneInfo always knows
    return offset
