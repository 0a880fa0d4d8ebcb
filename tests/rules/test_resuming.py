"""When a run goes on that its window or its account's limits have stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.rules.gates import AccountFacts, Wait, goes_on_at, limit_in_the_way
from reminders.window import BusinessHours, Window

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)  # a Monday
HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)
WINDOW = Window("UTC", 8, 18)
case = pytest.param


def account(**fields: Any) -> AccountFacts:
    return replace(AccountFacts("active", "", None, BusinessHours("UTC")), **fields)


CAPPED = {"cap": 1, "used": 1, "day_ends_at": MIDNIGHT}


@pytest.mark.parametrize(
    ("fields", "until"),
    [
        case({}, None, id="nothing"),
        case({"status": "paused"}, None, id="an-operator-decides"),
        case({"status": "suspended", "status_until": NOON + HOUR}, NOON + HOUR, id="a-ban"),
        case({"hours": BusinessHours("UTC", 15, 17)}, NOON + 3 * HOUR, id="its-hours"),
        case(CAPPED, MIDNIGHT, id="its-cap"),
        case(CAPPED | {"status": "suspended", "status_until": NOON + HOUR}, MIDNIGHT, id="the-longer-one"),
    ],
)
def test_the_limit_that_lasts_longest_is_in_the_way(fields: dict[str, Any], until: datetime | None) -> None:
    limit = limit_in_the_way(account(**fields), NOON)
    assert (limit.until if isinstance(limit, Wait) else None) == until


@pytest.mark.parametrize(
    ("fields", "not_before", "goes_on"),
    [
        case({}, None, NOON, id="at-once"),
        case({}, NOON - HOUR, NOON, id="not-before-a-moment-that-is-over"),
        case({}, NOON + HOUR, NOON + HOUR, id="not-before-later"),
        case({}, NOON + 7 * HOUR, NOON + 20 * HOUR, id="when-the-window-opens"),
        case({"status": "suspended", "status_until": NOON + 2 * HOUR}, None, NOON + 2 * HOUR, id="after-the-ban"),
        case({"status": "suspended", "status_until": NOON + 2 * HOUR}, NOON + HOUR, NOON + 2 * HOUR, id="the-later"),
        case(CAPPED, None, MIDNIGHT + 8 * HOUR, id="tomorrow"),
    ],
)
def test_a_run_goes_on_as_soon_as_window_and_account_allow(
    fields: dict[str, Any], not_before: datetime | None, goes_on: datetime
) -> None:
    assert goes_on_at(WINDOW, account(**fields), NOON, not_before) == goes_on


def test_where_window_and_hours_never_meet_a_run_does_not_go_on() -> None:
    assert goes_on_at(WINDOW, account(hours=BusinessHours("UTC", 19, 22)), NOON) is None
