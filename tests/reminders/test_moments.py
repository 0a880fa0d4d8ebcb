"""A moment has the same words everywhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reminders.moments import in_full, moment, wall_clock

NOW = datetime(2026, 12, 28, 16, tzinfo=UTC)  # Monday, 11:00 in New York
case = pytest.param


@pytest.mark.parametrize(
    ("at", "words"),
    [
        case("2026-12-28T23:30", "18:30", id="today"),
        case("2026-12-29T04:59", "23:59", id="today-there"),
        case("2026-12-29T05:00", "Tue 00:00", id="tomorrow"),
        case("2027-01-03T14:05", "Sun 09:05", id="within-six-days-and-another-year"),
        case("2027-01-04T14:05", "Mon 04 Jan 2027 09:05", id="in-a-week"),
        case("2026-12-27T14:05", "Sun 27 Dec 09:05", id="yesterday"),
        case("2025-12-28T14:05", "Sun 28 Dec 2025 09:05", id="a-year-ago"),
    ],
)
def test_the_day_is_named_where_it_is_not_today(at: str, words: str) -> None:
    assert wall_clock(datetime.fromisoformat(at).replace(tzinfo=UTC), "America/New_York", NOW) == words


def test_a_text_that_is_kept_names_day_and_zone() -> None:
    assert moment(NOW, "America/New_York") == "Mon 28 Dec 11:00 (America/New_York)"
    assert moment(NOW, "America/New_York", NOW, seconds=True) == "11:00:00 (America/New_York)"
    assert in_full(NOW, "America/New_York") == "Monday 28 December 2026 11:00:00 (America/New_York)"
