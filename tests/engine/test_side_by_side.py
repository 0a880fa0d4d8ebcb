"""Sends at the same time, and parts at exactly their moment."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fanout.engine.dispatcher import Dispatcher
from fanout.engine.loading import TargetQueue
from tests.engine.stage import MONDAY, Stage
from tests.engine.test_protection import faults


@pytest.mark.parametrize(
    ("ready_at", "is_ready"),
    [
        pytest.param(None, True, id="no-jitter"),
        pytest.param(MONDAY, True, id="exactly-then"),
        pytest.param(MONDAY + timedelta(microseconds=1), False, id="a-moment-later"),
    ],
)
def test_a_part_is_ready_exactly_at_its_jitter(ready_at: Any, is_ready: bool) -> None:
    target: Any = SimpleNamespace(ready_at=ready_at)
    run: Any = SimpleNamespace(queue=TargetQueue(between_parts=[target]))
    dispatcher: Any = object()
    assert Dispatcher.ready(dispatcher, run, MONDAY) is (target if is_ready else None)


def test_the_next_part_goes_out_after_its_jitter(stage: Stage) -> None:
    faults(stage, latency_ms=[0, 0])
    account = stage.account(send_burst=50, max_send_per_minute=0, part_jitter_min_ms=200, part_jitter_max_ms=500)
    stage.fire(stage.reminder(account, groups=20, parts=("text", "text")))
    stage.play()
    at = {(one.to, one.part): one.t for one in stage.book.deliveries()}
    waits = [at[to, 1] - at[to, 0] for to, part in at if part == 0]
    assert len(waits) == 20
    assert 0.2 <= min(waits) <= max(waits) <= 0.6  # and a tick of the dispatcher
    assert max(waits) - min(waits) > 0.1, "they differ"


def test_lanes_send_side_by_side(stage: Stage) -> None:
    """Four accounts with a provider that takes five seconds: none waits for another."""
    faults(stage, latency_ms=[5000, 5000])
    runs = [stage.fire(stage.reminder(stage.account(), groups=1, first=n)) for n in range(4)]
    stage.play(9)
    assert len(runs) == len(stage.times()) == 4
    assert max(stage.times()) - min(stage.times()) < timedelta(seconds=5)


def test_one_account_has_as_many_in_flight_as_it_may(stage: Stage) -> None:
    faults(stage, latency_ms=[3000, 3000])
    for concurrency in (1, 3):
        account = stage.account(group_concurrency=concurrency, send_burst=5, max_send_per_minute=600)
        stage.fire(stage.reminder(account, groups=3, first=3 * concurrency))
        began = stage.now
        stage.play(20)
        times = [at for at in stage.times(account.address) if at >= began]
        assert len(times) == 3
        assert (max(times) - min(times) < timedelta(seconds=1)) is (concurrency == 3)
