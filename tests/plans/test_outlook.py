"""How much of a block has gone out at a moment."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fanout.plans.outlook import Block, _budget_used_up, _part_before


@pytest.mark.parametrize(
    ("last", "at", "messages"),
    [
        pytest.param(110.0, 105.0, 5, id="half of it"),
        pytest.param(110.0, 110.0, 10, id="just done"),
        pytest.param(110.0, 130.0, 10, id="done long ago"),
        pytest.param(100.0, 100.0, 10, id="all at once"),
    ],
)
def test_a_part_of_a_block(last: float, at: float, messages: int) -> None:
    assert _part_before(Block(0, cast(Any, None), 100.0, last, 10, 10), at) == messages


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
