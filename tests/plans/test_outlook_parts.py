"""How much of a block has gone out at a moment."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fanout.plans.outlook import Block, _part_before


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
