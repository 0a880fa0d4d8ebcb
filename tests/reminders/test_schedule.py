"""Next firing: tables for clock changes, and Hypothesis against PostgreSQL's own clock."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from reminders import schedule
from reminders.schedule import cron_error, describe, next_firing, passed_error, upcoming
from reminders.window import Window
from tests.factories import ReminderFactory
from tests.reminders.test_window import days_of_change, utc

case = pytest.param
BERLIN, CAIRO, APIA, LORD_HOWE = "Europe/Berlin", "Africa/Cairo", "Pacific/Apia", "Australia/Lord_Howe"
NOON = utc("2025-06-10 12:00")


@pytest.mark.parametrize(
    "expr",
    [
        case("0 9 * * 1-5", id="weekdays"),
        case("*/15 8-18 * * mon,wed", id="names-in-lower-case"),
        case("  0   9 * *  *  ", id="extra-spaces"),
        case("0 0 29 2 *", id="leap-day"),
        case("0 0 * 2 MON#5", id="fifth-monday-of-february"),
        case("0 0 L * *", id="last-day"),
        case("0 0 31 2 1", id="impossible-day-or-monday"),
    ],
)
def test_usable_cron(expr: str) -> None:
    assert cron_error(expr) is None
    assert next_firing("cron", None, expr, "Europe/Berlin", NOON) is not None


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        case("", "Enter a cron expression", id="empty"),
        case("   ", "Enter a cron expression", id="blank"),
        case("every day", "has five fields", id="words"),
        case("@daily", "has five fields", id="nickname"),
        case("0 9 * *", "this one has 4", id="four-fields"),
        case("0 0 9 * * *", "this one has 6", id="with-seconds"),
        case("60 9 * * *", "minute field of the cron expression is not valid: “60”", id="minute-60"),
        case("0 24 * * *", "hour field of the cron expression is not valid: “24”", id="hour-24"),
        case("0 9 0 * *", "day-of-month field", id="day-0"),
        case("0 9 * 13 *", "month field", id="month-13"),
        case("0 9 * * 8", "day-of-week field", id="weekday-8"),
        case("0 9-8 * * *", "hour field", id="backward-range"),
        case("*/0 * * * *", "minute field", id="step-0"),
        case("٣ 9 * * *", "minute field", id="foreign-digits"),
        case("0 0 30 2 *", "never fires", id="30-february"),
        case("0 0 31 4,6,9,11 *", "never fires", id="31-of-short-months"),
        case("0 0 */31 * 1#5", "never fires", id="fifth-monday-on-the-first"),
        case("9" * 5000 + " * * * *", "at most 100 characters", id="endless"),
    ],
)
def test_unusable_cron(expr: str, words: str) -> None:
    error = cron_error(expr)
    assert error is not None
    assert words in error
    assert "\n" not in error
    assert error.endswith(".")
    assert describe(expr) == expr
    with pytest.raises(ValueError, match=r"\.$"):
        next_firing("cron", None, expr, "UTC", NOON)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        case("0 9 * * 1-5", "every weekday at 09:00", id="weekdays"),
        case("30 17 * * *", "every day at 17:30", id="daily"),
        case("5 8 * * 6", "every Saturday at 08:05", id="weekly"),
        case("0 9 * * 7", "every Sunday at 09:00", id="sunday-is-7-too"),
        case("0 9 * * 6,0", "every weekend at 09:00", id="weekend"),
        case("0 9 1 * *", "on day 1 of every month at 09:00", id="monthly"),
        case("0 9 1 2 *", "at 09:00 on February 1", id="unusual"),
        case("*/15 8 * * *", "every 15th minute from 08:00 through 08:59", id="several-times"),
    ],
)
def test_describe(cron: str, words: str) -> None:
    assert describe(cron) == words


@pytest.mark.parametrize(
    ("fire_at", "expected"),
    [
        case(NOON + timedelta(seconds=1), NOON + timedelta(seconds=1), id="ahead"),
        case(NOON, None, id="this-instant"),
        case(NOON - timedelta(days=1), None, id="past"),
        case(None, None, id="no-time"),
    ],
)
def test_once(fire_at: datetime | None, expected: datetime | None) -> None:
    assert next_firing("once", fire_at, "", "Europe/Berlin", NOON) == expected


def test_once_comes_back_in_utc() -> None:
    local = datetime(2025, 6, 10, 20, tzinfo=ZoneInfo("Europe/Berlin"))
    firing = next_firing("once", local, "", "Europe/Berlin", NOON)
    assert firing == local
    assert firing is not None
    assert firing.tzinfo is UTC


def test_unknown_kind() -> None:
    with pytest.raises(ValueError, match="Unknown kind"):
        next_firing("sometimes", None, "", "UTC", NOON)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        case("0 9 * * *", "Asia/Kolkata", "2025-06-10 03:29", ["06-10 03:30", "06-11 03:30"], id="own-zone"),
        case("0 9 * * *", "UTC", "2025-06-10 09:00", ["06-11 09:00", "06-12 09:00"], id="strictly-after"),
        case("0 9 * * *", BERLIN, "2025-03-29 12:00", ["03-30 07:00", "03-31 07:00"], id="summer-9"),
        case("30 2 * * *", BERLIN, "2025-03-29 12:00", ["03-30 01:00", "03-31 00:30"], id="in-gap"),
        case("0,30 2 * * *", BERLIN, "2025-03-29 12:00", ["03-30 01:00", "03-31 00:00"], id="gap-once"),
        case("30 2 * * *", BERLIN, "2025-10-25 12:00", ["10-26 00:30", "10-27 01:30"], id="fold-once"),
        case("30 2 * * *", BERLIN, "2025-10-26 01:15", ["10-27 01:30", "10-28 01:30"], id="in-fold"),
        case("30 * * * *", BERLIN, "2025-10-26 00:00", ["10-26 00:30", "10-26 01:30"], id="both"),
        case("*/30 2 * * *", BERLIN, "2025-03-29 12:00", ["03-31 00:00", "03-31 00:30"], id="star-in-gap"),
        case("*/30 0 * * *", CAIRO, "2025-04-24 12:00", ["04-25 21:00", "04-25 21:30"], id="at-midnight"),
        case("*/30 1 * * *", CAIRO, "2025-04-24 12:00", ["04-24 22:00", "04-24 22:30"], id="after-it"),
        case("50 * * * *", LORD_HOWE, "2025-10-04 15:21", ["10-04 15:50", "10-04 16:50"], id="half-hour"),
        case("*/30 3 * * *", LORD_HOWE, "2025-10-04 10:00", ["10-04 16:00", "10-04 16:30"], id="after-half-an-hour"),
        case("0 9 30 12 *", APIA, "2011-12-01 00:00", ["12-30 10:00", "2012-12-29 19:00"], id="skip"),
    ],
)
def test_cron_firings(cron: str, zone: str, after: str, expected: list[str]) -> None:
    year = after[:5]
    moments = [utc(text if text.startswith("20") else year + text) for text in expected]
    assert upcoming("cron", None, cron, zone, utc(after), count=2) == moments


def test_upcoming_counts() -> None:
    assert len(upcoming("cron", None, "* * * * *", "UTC", NOON)) == 5
    assert upcoming("once", NOON, "", "UTC", NOON - timedelta(hours=1)) == [NOON]


# --- against PostgreSQL -----------------------------------------------------------------------------------
#
# The same idea as for the windows: PostgreSQL reads its own clock minute by minute. An expression that
# follows the clock fires at each minute whose reading fits. One at fixed times fires at the first moment of
# its day at which the clock shows that time or a later one, once.

FOLLOWING = """
SELECT moment FROM generate_series(%(after)s + interval '1 minute', %(after)s + interval '60 hours',
                                   interval '1 minute') AS moment
WHERE extract(minute FROM moment AT TIME ZONE %(zone)s) = ANY(%(minutes)s)
  AND extract(hour FROM moment AT TIME ZONE %(zone)s) = ANY(%(hours)s)
ORDER BY moment LIMIT 5
"""

FIXED = """
WITH clock AS (
    SELECT moment, moment AT TIME ZONE %(zone)s AS wall
    FROM generate_series(%(after)s - interval '96 hours', %(after)s + interval '96 hours',
                         interval '1 minute') AS moment
), days AS (
    SELECT generate_series(min(wall)::date + 1, max(wall)::date - 1, interval '1 day') AS day FROM clock
), firings AS (
    SELECT day, (SELECT min(moment) FROM clock
                 WHERE wall >= day + make_interval(hours => %(hour)s, mins => %(minute)s)) AS moment
    FROM days
)
SELECT DISTINCT moment FROM firings WHERE moment > %(after)s ORDER BY moment LIMIT 2
"""

# Zones whose data have long been settled in every release: this compares our maths, not their news.
SETTLED_ZONES = (
    "America/Havana",
    "America/New_York",
    "Antarctica/Troll",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Chatham",
)

against_postgres = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def places_near_changes(draw: st.DrawFn) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(SETTLED_ZONES))
    # 2008 to 2024: rules in force everywhere here, all of it in every release still shipped.
    changes = [day for day in days_of_change(zone) if 2008 <= day.year <= 2024] or [NOON]
    day = draw(st.sampled_from(changes)).replace(hour=0, minute=0)
    return zone, day + timedelta(minutes=draw(st.integers(-24 * 60, 36 * 60)))


def rows(sql: str, arguments: dict) -> list[datetime]:
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return [moment for (moment,) in cursor.fetchall()]


@pytest.mark.django_db
@against_postgres
@given(places_near_changes(), st.sampled_from([1, 7, 15, 30]), st.integers(0, 23), st.integers(0, 23))
def test_following_the_clock_agrees_with_postgres(
    place: tuple[str, datetime], step: int, first_hour: int, last_hour: int
) -> None:
    zone, after = place
    assume(first_hour <= last_hour)
    minutes, hours = list(range(0, 60, step)), list(range(first_hour, last_hour + 1))
    expected = rows(FOLLOWING, {"zone": zone, "after": after, "minutes": minutes, "hours": hours})
    cron = f"*/{step} {first_hour}-{last_hour} * * *"
    assert upcoming("cron", None, cron, zone, after, count=len(expected)) == expected


@pytest.mark.django_db
@against_postgres
@given(places_near_changes(), st.integers(0, 59))
def test_every_hour_agrees_with_postgres(place: tuple[str, datetime], minute: int) -> None:
    zone, after = place
    arguments = {"zone": zone, "after": after, "minutes": [minute], "hours": list(range(24))}
    assert upcoming("cron", None, f"{minute} * * * *", zone, after) == rows(FOLLOWING, arguments)


@pytest.mark.django_db
@against_postgres
@given(places_near_changes(), st.integers(0, 23) | st.integers(0, 3), st.integers(0, 59))
@example(("Europe/Berlin", utc("2024-10-27 01:10")), 2, 30)
@example(("Antarctica/Troll", utc("2024-03-31 00:00")), 2, 0)
def test_fixed_times_agree_with_postgres(place: tuple[str, datetime], hour: int, minute: int) -> None:
    zone, after = place
    expected = rows(FIXED, {"zone": zone, "after": after, "hour": hour, "minute": minute})
    assert upcoming("cron", None, f"{minute} {hour} * * *", zone, after, count=2) == expected


# --- properties -------------------------------------------------------------------------------------------

term = st.one_of(
    st.just("*"),
    st.integers(0, 70).map(str),
    st.tuples(st.integers(0, 31), st.integers(0, 31)).map(lambda r: f"{r[0]}-{r[1]}"),
    st.integers(0, 40).map(lambda n: f"*/{n}"),
    st.sampled_from(["L", "LW", "5L", "MON#2", "MON-FRI", "JAN", "1/7", "L/2", "1-5/2", "?", "W", "-", "#", ","]),
)
fields = st.lists(term, min_size=1, max_size=3).map(",".join)
expressions = st.lists(fields, min_size=5, max_size=5).map(" ".join) | st.text(max_size=30)


@settings(deadline=None)
@given(expressions, st.sampled_from(SETTLED_ZONES))
def test_no_expression_breaks_anything(expr: str, zone: str) -> None:
    if cron_error(expr) is not None:
        return
    assert describe(expr)
    firings = upcoming("cron", None, expr, zone, NOON)
    assert firings == sorted(set(firings))
    assert all(firing > NOON and firing.tzinfo is UTC for firing in firings)
    # Each firing is the next one after the one before: nothing depends on where the iteration began.
    for before, firing in zip([NOON, *firings], firings):
        assert next_firing("cron", None, expr, zone, before) == firing


def test_the_present_moment_has_passed() -> None:
    now = datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert passed_error(now, now) == "This time has passed."
    assert passed_error(now + timedelta(microseconds=1), now) == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("bound", "seconds", "fits"),
    [("EARLIEST", 0, True), ("EARLIEST", -1, False), ("LATEST", -1, True), ("LATEST", 0, False)],
)
def test_the_database_keeps_the_same_calendar(bound: str, seconds: int, fits: bool) -> None:
    reminder, moment = ReminderFactory.create(), getattr(schedule, bound) + timedelta(seconds=seconds)
    with nullcontext() if fits else pytest.raises(IntegrityError), transaction.atomic():
        type(reminder).objects.filter(pk=reminder.pk).update(fire_at=moment)


# --- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wall", "fits"),
    [
        case("2000-01-01 01:00", True, id="the-first-year"),
        case("1999-12-31 23:00", False, id="before-it"),
        case("2035-12-31 23:00", True, id="ten-years-ahead"),
        case("2036-01-01 01:00", False, id="eleven"),
    ],
)
def test_times_that_can_be_chosen(wall: str, fits: bool) -> None:
    shown = utc(wall).replace(tzinfo=None)
    with nullcontext() if fits else pytest.raises(ValueError, match="within the next 10 years"):
        moment = schedule.from_wall_clock(shown, BERLIN, NOON)
        assert (moment, moment.tzinfo) == (shown.replace(tzinfo=ZoneInfo(BERLIN)), UTC)


@pytest.mark.parametrize(
    ("kind", "fire_at", "cron", "late"),
    [
        case("once", utc("2025-06-11 17:59"), "", False, id="just-in-time"),
        case("once", utc("2025-06-11 18:00"), "", True, id="just-closed"),
        case("once", utc("2025-06-11 03:00"), "", False, id="before-it-opens"),
        case("once", NOON, "", False, id="past"),
        case("cron", None, "0 19 * * *", True, id="always-late"),
        case("cron", None, "0 8,19 * * *", False, id="sometimes-in-time"),
    ],
)
def test_a_reminder_that_always_fires_late_is_refused(
    kind: str, fire_at: datetime | None, cron: str, late: bool
) -> None:
    error = schedule.late_error(kind, fire_at, cron, "UTC", Window("UTC", 6, 18), NOON)
    assert (error is not None) is late
    if error:
        assert error.startswith(f"It would fire {'always ' if kind == 'cron' else ''}after the delivery window")
        assert "closed at 18:00 (UTC), for example " in error


@pytest.mark.parametrize(("length", "fits"), [(100, True), (101, False)])
def test_length_limit_of_an_expression(length: int, fits: bool) -> None:
    expr = "0 9 * * *".ljust(length)
    assert (cron_error(expr) is None) is fits


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        case("0 9 * * 0,6", "every weekend at 09:00", id="the-other-way-round"),
        case("0 9 * * 0", "every Sunday at 09:00", id="sunday-is-0"),
        case("0 9 5 * *", "on day 5 of every month at 09:00", id="monthly"),
    ],
)
def test_usual_expressions_have_words(cron: str, words: str) -> None:
    assert describe(cron) == words


@pytest.mark.parametrize("cron", ["0 9 5 * 1", "0 9 * 5 *", "0 9 * * 1,3", "0 9,17 * * *", "0,30 9 * * *"])
def test_unusual_expressions_are_explained(cron: str) -> None:
    assert not describe(cron).startswith(("every ", "on day"))


def test_the_change_of_a_clock_is_found_to_the_second() -> None:
    zone, change = ZoneInfo(BERLIN), utc("2025-03-30 01:00")
    winter, summer = timedelta(hours=1), timedelta(hours=2)
    day, second = timedelta(days=1), timedelta(seconds=1)
    assert schedule._first_change(zone, winter, change - 3 * day, change + day) == change
    assert schedule._first_change(zone, winter, change - second, change) == change
    assert schedule._first_change(zone, winter, change - day, change - second) is None
    assert schedule._first_change(zone, summer, change, change + day) is None
    assert schedule._first_change(zone, winter, change, change) is None
