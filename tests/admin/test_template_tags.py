"""Durations and relative times in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.templatetags.crier import relative
from reminders.moments import duration

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7500, "2 h 5 min"), (90000, "1 d 1 h")]
)
def test_durations_have_two_units_at_most(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "now"),
        (1, "in 1 s"),
        (-4, "now"),
        (-5, "5 s ago"),
        (2, "in 2 s"),
        (90, "in 1 min"),
        (-7200, "2 h ago"),
        (-200000, "2 d ago"),
    ],
)
def test_relative_times(seconds, words):
    assert relative(NOON + timedelta(seconds=seconds), NOON) == words
