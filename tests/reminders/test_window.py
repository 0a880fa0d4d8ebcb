"""Window maths: tables for the days that matter, and Hypothesis against PostgreSQL's own clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from django.db import connection
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from accounts.inputs import EVERY_DAY, valid_timezone
from reminders.window import (
    BusinessHours,
    Window,
    local_day_bounds,
    window_error,
)

case = pytest.param
MINUTE = timedelta(minutes=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def open_at(hours: BusinessHours, at: datetime) -> bool:
    return hours.next_open(at) == at


@pytest.mark.parametrize(
    "name",
    [
        case("Europe/Berlin", id="city"),
        case("UTC", id="utc"),
        case("America/Argentina/Buenos_Aires", id="three-parts"),
        case("Asia/Kathmandu", id="quarter-hour"),
    ],
)
def test_valid_timezone(name: str) -> None:
    assert valid_timezone(name)


@pytest.mark.parametrize(
    "name",
    [
        case("", id="empty"),
        case("Mars/Olympus", id="unknown"),
        case("europe/berlin", id="lower-case"),
        case("EUROPE/BERLIN", id="upper-case"),
        case(" Europe/Berlin", id="space"),
        case("Europe", id="folder"),
        case("../../etc/passwd", id="path-up"),
        case("/usr/share/zoneinfo/UTC", id="absolute-path"),
        case("posix/Europe/Berlin", id="variant-folder"),
        case("localtime", id="machine-setting"),
        case("Factory", id="not-set-up"),
        case("UTC\x00", id="null-byte"),
        case("+02:00", id="offset"),
    ],
)
def test_invalid_timezone(name: str) -> None:
    assert not valid_timezone(name)


@pytest.mark.parametrize("hours", [(0, 24), (6, 18), (0, 1), (23, 24)])
def test_valid_window(hours: tuple[int, int]) -> None:
    assert window_error(*hours) is None


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        case((22, 6), "over midnight (22 to 6) is not supported: use two reminders", id="over-midnight"),
        case((6, 6), "must end after it starts", id="empty"),
        case((6, 25), "must end at an hour from 1 to 24, not 25", id="end-too-late"),
        case((6, 0), "must end at an hour from 1 to 24, not 0", id="end-zero"),
        case((-1, 6), "must start at an hour from 0 to 23, not -1", id="start-negative"),
        case((24, 24), "must start at an hour from 0 to 23, not 24", id="start-too-late"),
    ],
)
def test_invalid_window(hours: tuple[int, int], words: str) -> None:
    error = window_error(*hours)
    assert error is not None
    assert words in error
    assert error.endswith(".")


@pytest.mark.parametrize(
    ("zone", "end_hour", "fire_at", "end"),
    [
        case("Europe/Berlin", 18, "2025-06-10 07:00", "2025-06-10 16:00", id="later-today"),
        case("Europe/Berlin", 18, "2025-06-10 20:00", "2025-06-10 16:00", id="already-over"),
        case("Europe/Berlin", 24, "2025-06-10 07:00", "2025-06-10 22:00", id="next-midnight"),
        case("Europe/Berlin", 18, "2025-06-10 22:30", "2025-06-11 16:00", id="local-day-is-ahead"),
        case("America/New_York", 18, "2025-06-10 02:00", "2025-06-09 22:00", id="local-day-is-behind"),
        case("Europe/Berlin", 24, "2025-12-31 12:00", "2025-12-31 23:00", id="year-end"),
        case("Europe/Berlin", 2, "2025-03-30 00:00", "2025-03-30 01:00", id="gap-starts-here"),
        case("Europe/Berlin", 24, "2025-03-30 00:00", "2025-03-30 22:00", id="23-hour-day"),
        case("Europe/Berlin", 24, "2025-10-26 00:00", "2025-10-26 23:00", id="25-hour-day"),
        case("Europe/Berlin", 2, "2025-10-25 23:00", "2025-10-26 00:00", id="fold-first-showing"),
        case("Europe/Berlin", 3, "2025-10-25 23:00", "2025-10-26 02:00", id="fold-ends-here"),
        case("Antarctica/Troll", 2, "2025-03-30 00:00", "2025-03-30 01:00", id="inside-two-hour-gap"),
        case("Antarctica/Troll", 2, "2025-10-26 00:00", "2025-10-26 00:00", id="inside-two-hour-fold"),
        case("Africa/Cairo", 24, "2025-04-24 12:00", "2025-04-24 22:00", id="midnight-gap-cairo"),
        case("Asia/Beirut", 24, "2025-03-29 12:00", "2025-03-29 22:00", id="midnight-gap-beirut"),
        case("America/Sao_Paulo", 24, "2018-11-03 12:00", "2018-11-04 03:00", id="midnight-gap-brazil"),
        case("America/Sao_Paulo", 24, "2018-02-17 12:00", "2018-02-18 03:00", id="midnight-fold-brazil"),
        case("Pacific/Apia", 24, "2011-12-29 20:00", "2011-12-30 10:00", id="skipped-day"),
        case("America/St_Johns", 1, "2011-03-13 03:30", "2011-03-13 03:31", id="gap-at-one-past-midnight"),
        case("America/St_Johns", 24, "2010-11-06 12:00", "2010-11-07 02:30", id="fold-over-midnight"),
        case("Australia/Lord_Howe", 2, "2025-10-04 14:00", "2025-10-04 15:30", id="half-hour-gap"),
        case("Asia/Kolkata", 18, "2025-06-10 07:00", "2025-06-10 12:30", id="half-hour-zone"),
        case("Asia/Kathmandu", 18, "2025-06-10 07:00", "2025-06-10 12:15", id="quarter-hour-zone"),
    ],
)
def test_window_end(zone: str, end_hour: int, fire_at: str, end: str) -> None:
    assert Window(zone, 0, end_hour).closes_on(utc(fire_at)) == utc(end)
    assert Window(zone, 0, end_hour).closes_on(utc(fire_at)).tzinfo is UTC


@pytest.mark.parametrize(
    ("zone", "hours", "now", "opens"),
    [
        case("Europe/Berlin", (6, 18), "2025-06-10 10:00", "2025-06-10 10:00", id="open-now"),
        case("Europe/Berlin", (6, 18), "2025-06-10 04:00", "2025-06-10 04:00", id="opens-this-instant"),
        case("Europe/Berlin", (6, 18), "2025-06-10 03:59", "2025-06-10 04:00", id="later-today"),
        case("Europe/Berlin", (6, 18), "2025-06-10 16:00", "2025-06-11 04:00", id="closes-this-instant"),
        case("Europe/Berlin", (6, 18), "2025-03-29 20:00", "2025-03-30 04:00", id="after-clocks-forward"),
        case("Europe/Berlin", (6, 18), "2025-10-25 20:00", "2025-10-26 05:00", id="after-clocks-back"),
        case("Europe/Berlin", (2, 3), "2025-03-30 00:00", "2025-03-31 00:00", id="window-in-the-gap"),
        case("Europe/Berlin", (2, 3), "2025-10-26 00:30", "2025-10-26 00:30", id="fold-first-pass"),
        case("Europe/Berlin", (2, 3), "2025-10-26 01:30", "2025-10-26 01:30", id="fold-second-pass"),
        case("Europe/Berlin", (1, 2), "2025-10-26 01:30", "2025-10-27 00:00", id="over-before-the-fold"),
        case("Pacific/Apia", (9, 17), "2011-12-30 04:00", "2011-12-30 19:00", id="over-the-skipped-day"),
    ],
)
def test_next_opening(zone: str, hours: tuple[int, int], now: str, opens: str) -> None:
    assert Window(zone, *hours).next_opening(utc(now)) == utc(opens)
    assert Window(zone, *hours).is_open(utc(now)) == (now == opens)


def test_naive_moments_are_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        Window("UTC", 6, 18).closes_on(datetime(2025, 6, 10))  # noqa: DTZ001


def test_impossible_window_never_opens_and_says_so() -> None:
    with pytest.raises(ValueError, match="over midnight"):
        Window("UTC", 22, 6).next_opening(utc("2025-06-10 10:00"))


OFFICE = BusinessHours("America/New_York", 9, 18, frozenset({1, 2, 3, 4, 5}))
WEEKDAYS = BusinessHours("America/New_York", days=frozenset({1, 2, 3, 4, 5}))


@pytest.mark.parametrize(
    ("hours", "at", "opens", "closes"),
    [
        case(OFFICE, "2025-06-10 15:00", "2025-06-10 15:00", "2025-06-10 22:00", id="tuesday-open"),
        case(OFFICE, "2025-06-10 22:00", "2025-06-11 13:00", "2025-06-11 22:00", id="tuesday-evening"),
        case(OFFICE, "2025-06-13 22:00", "2025-06-16 13:00", "2025-06-16 22:00", id="over-the-weekend"),
        case(OFFICE, "2025-03-07 23:00", "2025-03-10 13:00", "2025-03-10 22:00", id="clocks-forward"),
        case(OFFICE, "2025-10-31 22:00", "2025-11-03 14:00", "2025-11-03 23:00", id="clocks-back"),
        case(WEEKDAYS, "2025-06-10 15:00", "2025-06-10 15:00", "2025-06-14 04:00", id="whole-days-in-a-row"),
        case(WEEKDAYS, "2025-06-14 15:00", "2025-06-16 04:00", "2025-06-21 04:00", id="whole-days-weekend"),
        case(
            BusinessHours("America/New_York", 2, 3, frozenset({7})),
            "2025-03-09 06:00",
            "2025-03-16 06:00",
            "2025-03-16 07:00",
            id="only-hour-is-in-the-gap",
        ),
        case(
            BusinessHours("Pacific/Apia", 9, 17, frozenset({5})),
            "2011-12-29 20:00",
            "2012-01-05 19:00",
            "2012-01-06 03:00",
            id="only-day-is-skipped",
        ),
    ],
)
def test_business_hours(hours: BusinessHours, at: str, opens: str, closes: str) -> None:
    assert hours.next_open(utc(at)) == utc(opens)
    assert open_at(hours, utc(at)) == (at == opens)
    assert hours.closes_at(utc(at)) == utc(closes)


def test_always_open_never_closes() -> None:
    assert open_at(BusinessHours("Europe/Berlin"), utc("2025-03-30 01:00"))
    assert BusinessHours("Europe/Berlin").closes_at(utc("2025-03-30 01:00")) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        case(("Mars/Olympus",), "not a known timezone", id="zone"),
        case(("UTC", 22, 6), "over midnight", id="over-midnight"),
        case(("UTC", 9, 18, frozenset()), "at least one send day", id="no-day"),
        case(("UTC", 9, 18, frozenset({0})), "at least one send day", id="sunday-as-zero"),
    ],
)
def test_impossible_business_hours(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BusinessHours(*arguments)


# --- the oracle -------------------------------------------------------------------------------------------
#
# PostgreSQL reads its own clock (`AT TIME ZONE`, with its own bundle of zone data) at every minute around
# the moment. `shown` is the latest time that clock has shown so far: equal to the clock except while it
# repeats an hour. A window is open while `shown` is inside it, a day lasts while `shown` has its date. Local
# times are never turned into moments here, which is what our code does and where mistakes would be:
# PostgreSQL's own answer for a skipped or repeated local time is a guess by another rule.

ORACLE = """
WITH clock AS (
    SELECT moment, moment AT TIME ZONE %(zone)s AS wall
    FROM generate_series(%(at)s - interval '72 hours', %(at)s + %(hours_ahead)s * interval '1 hour',
                         interval '1 minute') AS moment
), settled AS (
    SELECT moment, wall, max(wall) OVER (ORDER BY moment) AS shown FROM clock
), marked AS (
    SELECT *, extract(hour FROM shown) >= %(start)s AND extract(hour FROM shown) < %(end)s
              AND extract(isodow FROM shown) = ANY(%(days)s) AS open
    FROM settled
), today AS (SELECT shown::date AS day FROM marked WHERE moment = %(at)s)
SELECT min(moment) FILTER (WHERE shown >= day),
       min(moment) FILTER (WHERE shown >= day + 1),
       min(moment) FILTER (WHERE shown >= day + %(start)s * interval '1 hour'),
       min(moment) FILTER (WHERE shown >= day + %(end)s * interval '1 hour'),
       min(moment) FILTER (WHERE open AND moment >= %(at)s),
       array_agg(wall ORDER BY moment) FILTER (WHERE extract(minute FROM moment) IN (0, 30))
FROM marked, today
"""


@dataclass(frozen=True)
class Answer:
    day_start: datetime
    day_end: datetime
    window_start: datetime
    window_end: datetime
    next_open: datetime
    walls: list[datetime]


def ask_postgres(
    zone: str, hours: tuple[int, int], at: datetime, days: frozenset[int] = EVERY_DAY, hours_ahead: int = 96
) -> Answer:
    arguments: dict[str, Any] = {
        "zone": zone,
        "start": hours[0],
        "end": hours[1],
        "at": at,
        "days": sorted(days),
        "hours_ahead": hours_ahead,
    }
    with connection.cursor() as cursor:
        cursor.execute(ORACLE, arguments)
        return Answer(*cursor.fetchone())


def same_zone_data(zone: str, at: datetime, answer: Answer) -> bool:
    """Whether both sides read the same release of the zone database here.

    PostgreSQL brings its own copy, and governments change their clocks between releases. Only the given
    direction is compared, from a moment to the clock's reading, which none of our code takes part in.
    """
    first = at - timedelta(hours=72)
    first += (-first.minute % 30) * MINUTE
    ours = [(first + n * 30 * MINUTE).astimezone(ZoneInfo(zone)) for n in range(len(answer.walls))]
    return [wall.replace(tzinfo=None, fold=0) for wall in ours] == answer.walls


@cache
def postgres_zones() -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_timezone_names")
        return frozenset(name for (name,) in cursor.fetchall())


# Gaps and folds at midnight, one minute past it, of half an hour, of two and three hours, of a whole day.
ODD_ZONES = (
    "Africa/Cairo",
    "America/Goose_Bay",
    "America/Havana",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kolkata",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
)
ZONES = sorted(name for name in available_timezones() if valid_timezone(name))
FIRST, LAST = datetime(2000, 1, 5, tzinfo=UTC), datetime(2035, 12, 20, tzinfo=UTC)


@cache
def days_of_change(zone: str) -> list[datetime]:
    days = [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    return [day for day, before, after in zip(days, offsets, offsets[1:]) if before != after]


@st.composite
def places_and_moments(draw: st.DrawFn) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(ODD_ZONES) | st.sampled_from(ZONES))
    day = draw(
        st.sampled_from(days_of_change(zone) or [FIRST])
        | st.datetimes(FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None), timezones=st.just(UTC))
    )
    at = day.replace(hour=0, minute=0, second=0, microsecond=0)
    return zone, at + draw(st.integers(-24 * 60, 48 * 60)) * MINUTE


windows = st.tuples(st.integers(0, 23), st.integers(1, 24)).filter(lambda hours: hours[0] < hours[1])
send_days = st.frozensets(st.integers(1, 7), min_size=1)

against_postgres = settings(
    deadline=None,
    max_examples=150,
    # One transaction for all examples is fine: they only read.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.slow
@pytest.mark.django_db
@against_postgres
@given(places_and_moments(), windows)
@example(("Pacific/Apia", utc("2011-12-30 09:00")), (9, 17))
@example(("America/St_Johns", utc("2010-11-07 03:00")), (0, 24))
@example(("Antarctica/Casey", utc("2010-03-04 16:30")), (0, 1))
@example(("Africa/Cairo", utc("2025-04-24 22:00")), (0, 1))
@example(("Antarctica/Troll", utc("2025-03-30 00:30")), (0, 2))
@example(("America/St_Johns", utc("2011-03-13 03:00")), (1, 5))
def test_windows_agree_with_postgres(place: tuple[str, datetime], hours: tuple[int, int]) -> None:
    zone, at = place
    assume(zone in postgres_zones())
    answer = ask_postgres(zone, hours, at)
    assume(same_zone_data(zone, at, answer))
    assert Window(zone, *hours).opens_on(at) == answer.window_start
    assert Window(zone, *hours).closes_on(at) == answer.window_end
    assert Window(zone, *hours).next_opening(at) == answer.next_open
    assert Window(zone, *hours).is_open(at) == (answer.next_open == at)
    assert local_day_bounds(zone, at) == (answer.day_start, answer.day_end)


@pytest.mark.slow
@pytest.mark.django_db
@settings(against_postgres, max_examples=60)
@given(places_and_moments(), windows, send_days)
def test_business_hours_agree_with_postgres(
    place: tuple[str, datetime], hours: tuple[int, int], days: frozenset[int]
) -> None:
    zone, at = place
    assume(zone in postgres_zones())
    # Two weeks and two days: the only send day of a week can fall into a gap.
    answer = ask_postgres(zone, hours, at, days, hours_ahead=16 * 24)
    assume(same_zone_data(zone, at, answer))
    business = BusinessHours(zone, *hours, days)
    assert business.next_open(at) == answer.next_open
    assert open_at(business, at) == (answer.next_open == at)


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ODD_ZONES)
def test_the_comparison_covers_zones_with_unusual_rules(zone: str) -> None:
    """The comparison above skips where zone data differ; it must not skip what it is there for."""
    assert zone in postgres_zones()
    changes = days_of_change(zone)[:6]
    assert all(same_zone_data(zone, at, ask_postgres(zone, (0, 24), at)) for at in changes)


# --- properties that need no oracle -----------------------------------------------------------------------


@settings(deadline=None)
@given(places_and_moments())
def test_the_whole_day_is_always_open(place: tuple[str, datetime]) -> None:
    zone, at = place
    assert Window(zone).is_open(at)
    assert Window(zone).next_opening(at) == at


@settings(deadline=None)
@given(places_and_moments())
def test_days_follow_each_other(place: tuple[str, datetime]) -> None:
    zone, at = place
    start, end = local_day_bounds(zone, at)
    assert start <= at < end
    assert local_day_bounds(zone, end)[0] == end
    assert local_day_bounds(zone, start) == (start, end)
    assert local_day_bounds(zone, start - timedelta(microseconds=1))[1] == start


@settings(deadline=None)
@given(places_and_moments(), windows, send_days)
def test_a_stretch_is_open_until_it_closes(
    place: tuple[str, datetime], hours: tuple[int, int], days: frozenset[int]
) -> None:
    zone, at = place
    business = BusinessHours(zone, *hours, days)
    closes = business.closes_at(at)
    if closes is None:
        assert open_at(business, at)
        return
    assert business.next_open(at) < closes
    assert open_at(business, closes - timedelta(microseconds=1))
    assert not open_at(business, closes)


# --- window and hours -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-01-05 09:00", "2026-01-06 06:00"),  # open: tomorrow's
        ("2026-01-05 05:59", "2026-01-05 06:00"),
        ("2026-01-05 18:00", "2026-01-06 06:00"),
    ],
)
def test_the_opening_after_this_one(now: str, opens: str) -> None:
    assert Window("UTC", 6, 18).opening_after(utc(now)) == utc(opens)


@pytest.mark.parametrize(("end_hour", "closes"), [(18, "2026-01-05 18:00"), (24, "2026-01-06 00:00")])
def test_the_opening_that_belongs_to_an_end(end_hour: int, closes: str) -> None:
    """A window that closes at midnight belongs to the day before."""
    assert Window("UTC", 6, end_hour).opened_before(utc(closes)) == utc("2026-01-05 06:00")


@pytest.mark.parametrize(
    ("hours", "now", "both"),
    [
        (BusinessHours("UTC"), "2026-01-05 20:00", "2026-01-06 06:00"),
        (BusinessHours("UTC", 9, 17), "2026-01-05 10:00", "2026-01-05 10:00"),
        (BusinessHours("UTC", 9, 17, frozenset({3})), "2026-01-05 10:00", "2026-01-07 09:00"),
        (BusinessHours("UTC", 4, 7), "2026-01-05 10:00", "2026-01-06 06:00"),
        (BusinessHours("UTC", 18, 20), "2026-01-05 10:00", None),
    ],
)
def test_when_window_and_hours_meet(hours: BusinessHours, now: str, both: str | None) -> None:
    assert Window("UTC", 6, 18).meets(hours, utc(now)) == (utc(both) if both else None)


@pytest.mark.parametrize(
    ("widened_to", "now", "closes", "opens"),
    [
        ("2026-01-05 20:00", "2026-01-05 19:00", "2026-01-05 20:00", "2026-01-05 19:00"),
        ("2026-01-05 20:00", "2026-01-05 20:00", "2026-01-05 20:00", "2026-01-06 06:00"),
        ("2026-01-05 20:00", "2026-01-06 19:00", "2026-01-06 18:00", "2026-01-07 06:00"),
        ("2026-01-06 00:00", "2026-01-05 23:00", "2026-01-06 00:00", "2026-01-05 23:00"),
        ("2026-01-06 00:00", "2026-01-06 19:00", "2026-01-06 18:00", "2026-01-07 06:00"),
        ("2026-01-05 17:00", "2026-01-05 17:30", "2026-01-05 18:00", "2026-01-05 17:30"),  # never narrower
    ],
)
def test_a_widened_window_holds_for_its_own_day(widened_to: str, now: str, closes: str, opens: str) -> None:
    window = Window("UTC", 6, 18, widened_to=utc(widened_to))
    assert (window.closes_on(utc(now)), window.next_opening(utc(now))) == (utc(closes), utc(opens))
    assert window.is_open(utc(now)) == (now == opens)


# --- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (0, 24, None),
        (23, 24, None),
        (0, 1, None),
        (-1, 24, "must start at an hour from 0 to 23, not -1"),
        (24, 24, "must start at an hour from 0 to 23, not 24"),
        (0, 0, "must end at an hour from 1 to 24, not 0"),
        (0, 25, "must end at an hour from 1 to 24, not 25"),
        (9, 9, "not at the same hour (9)"),
        (10, 9, "one from 10 to 24 and one from 0 to 9"),
    ],
)
def test_hours_that_make_a_window(start: int, end: int, words: str | None) -> None:
    error = window_error(start, end)
    assert (error is None) if words is None else (error is not None and words in error)


@pytest.mark.parametrize(
    ("hours", "closes"),
    [
        (BusinessHours("UTC"), None),
        (BusinessHours("UTC", 0, 24), None),
        (BusinessHours("UTC", 0, 23), "2026-01-05 23:00"),
        (BusinessHours("UTC", 9, 17), "2026-01-05 17:00"),
        (BusinessHours("UTC", days=frozenset({1, 2, 3, 4, 5})), "2026-01-10 00:00"),
        (BusinessHours("UTC", days=frozenset({1, 3})), "2026-01-06 00:00"),
        (BusinessHours("UTC", 9, 17, frozenset({3})), "2026-01-07 17:00"),
    ],
)
def test_when_hours_close(hours: BusinessHours, closes: str | None) -> None:
    assert hours.closes_at(utc("2026-01-05 10:00")) == (utc(closes) if closes else None)
    assert hours.always_open is (closes is None)


@pytest.mark.parametrize("days", [set(), {0}, {8}, {1, 8}])
def test_invalid_days(days: set[int]) -> None:
    with pytest.raises(ValueError, match="at least one send day"):
        BusinessHours("UTC", days=frozenset(days))


def test_unknown_timezone() -> None:
    with pytest.raises(ValueError, match="not a known timezone"):
        BusinessHours("Nowhere/Here")
