"""The second message: only to a contact who replied to the first in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reminders.follow_up import may_send_second

FIRST = datetime(2026, 3, 28, 12, tzinfo=UTC)
case = pytest.param


@pytest.mark.parametrize(
    ("hours", "may"),
    [
        case(0, True, id="at-once"),
        case(23.99, True, id="within-a-day"),
        case(24, True, id="on-the-hour"),
        case(24.01, False, id="too-late"),
        case(-1, False, id="before-the-first"),
    ],
)
def test_reply_in_time(hours: float, may: bool) -> None:
    replied = FIRST + timedelta(hours=hours)
    assert may_send_second(FIRST, replied, replied) is may


def test_never_without_a_reply_or_a_first_message() -> None:
    assert not may_send_second(FIRST, None, FIRST + timedelta(hours=1))
    assert not may_send_second(None, FIRST, FIRST)


def test_a_reply_from_the_future_waits_for_it() -> None:
    replied = FIRST + timedelta(hours=1)
    assert not may_send_second(FIRST, replied, FIRST + timedelta(minutes=59))
