"""The warm-up curve: from the floor to the target, never falling, never above it."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.actions import UNCAPPED_TARGET, warmup_cap, warmup_curve

STARTED = date(2026, 1, 5)
case = pytest.param


@pytest.mark.parametrize(
    ("target", "floor", "days", "day", "cap"),
    [
        case(100, 5, 14, 0, 5, id="first-day"),
        case(100, 5, 14, -3, 5, id="not-started-yet"),
        case(100, 5, 14, 7, 22, id="half-way"),
        case(100, 5, 14, 13, 80, id="last-day"),
        case(100, 5, 14, 14, 100, id="warm"),
        case(100, 5, 14, 400, 100, id="long-since-warm"),
        case(100, 5, 0, 0, 100, id="no-warm-up"),
        case(3, 5, 14, 0, 3, id="floor-above-target"),
        case(0, 5, 14, 6, 0, id="target-zero"),
        case(100, 0, 14, 0, 0, id="floor-zero"),
        case(100, 0, 14, 1, 1, id="floor-zero-grows"),
        case(None, 5, 14, 0, 5, id="uncapped-starts-at-the-floor"),
        case(None, 5, 14, 14, None, id="uncapped-when-warm"),
    ],
)
def test_cap_of_a_day(target: int | None, floor: int, days: int, day: int, cap: int | None) -> None:
    assert warmup_cap(target, floor, days, STARTED, STARTED + timedelta(days=day)) == cap


def test_the_year_and_the_leap_day_end_without_a_step_back() -> None:
    started = date(2027, 12, 20)
    caps = [cap for _, cap in warmup_curve(200, 5, 90, started)]
    assert caps == sorted(caps)
    assert (date(2028, 2, 29), caps[71]) in warmup_curve(200, 5, 90, started)


@given(st.integers(0, 5_000) | st.none(), st.integers(0, 200), st.integers(0, 120), st.dates(date(2020, 1, 1)))
def test_rises_and_never_passes_the_target(target: int | None, floor: int, days: int, started: date) -> None:
    if started > date(2090, 1, 1):
        return
    caps = [cap for _, cap in warmup_curve(target, floor, days, started)]
    goal = UNCAPPED_TARGET if target is None else target
    assert caps == sorted(caps)
    assert len(caps) == days + 1
    assert caps[-1] == goal
    assert days == 0 or caps[0] == min(floor, goal)


def test_no_day_is_a_leap() -> None:
    """The reason for the geometric curve: every day is about the same factor above the last."""
    caps = [cap for _, cap in warmup_curve(1_000, 5, 21, STARTED)]
    assert max(after / before for before, after in pairwise(caps)) < 1.5
