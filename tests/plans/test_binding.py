"""Which limit binds, where that depends on days."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fanout.plans.outlook import _budget_used_up

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("starts", "begun", "ahead", "ends", "used_up"),
    [
        pytest.param(NOON, 5, {}, NOON + DAY, True, id="today"),
        pytest.param(NOON, 4, {}, NOON + DAY, False, id="today, with one left"),
        pytest.param(NOON, 4, {date(2026, 1, 5): 1}, NOON + DAY, True, id="today, by its own"),
        pytest.param(NOON, 5, {}, NOON, False, id="on the day on which it is done"),
        pytest.param(NOON + DAY, 5, {}, NOON + 3 * DAY, False, id="before it starts"),
        pytest.param(NOON + DAY, 0, {date(2026, 1, 6): 5}, NOON + 3 * DAY, True, id="on its first day"),
        pytest.param(NOON + DAY, 0, {date(2026, 1, 6): 5}, None, True, id="without an end"),
    ],
)
def test_a_budget_is_used_up_between_the_start_and_the_last_day(
    starts: datetime, begun: int, ahead: dict[date, int], ends: datetime | None, used_up: bool
) -> None:
    account = SimpleNamespace(hours=SimpleNamespace(timezone="UTC"), new_chats=SimpleNamespace(begun=begun))
    share: Any = SimpleNamespace(
        lane=SimpleNamespace(account=account),
        ahead=SimpleNamespace(new_chats=ahead),
        end=ends.timestamp() if ends else math.inf,
    )
    assert _budget_used_up(share, 5, starts, NOON) is used_up
