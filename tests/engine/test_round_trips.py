"""The cost of deliveries in round trips to PostgreSQL: a statement per target or per lane would show here first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.channels.sandbox.script import Script
from fanout.engine.connection import BlockingLink
from fanout.models import Run
from tests.engine.stage import Stage

case = pytest.param


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every question that a driver sends to PostgreSQL."""
    asked: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        really = getattr(BlockingLink, name)

        async def ask(self: BlockingLink, *args: Any) -> Any:
            asked.append(name)
            return await really(self, *args)

        return ask

    for name in ("query", "call", "script"):
        monkeypatch.setattr(BlockingLink, name, counted(name))
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lanes", "targets", "per_target"),
    [case(1, 60, 2.0, id="one lane"), case(50, 20, 0.1, id="many lanes share them")],
)
def test_round_trips_per_delivered_target(
    stage: Stage, trips: list[str], lanes: int, targets: int, per_target: float
) -> None:
    # All answers take the same time, so that lanes come back together, as they do beside a commit that takes a while.
    stage.provider.set_script(Script({"*": {"latency_ms": [100, 100]}}))
    for _ in range(lanes):
        stage.fire(stage.reminder(stage.account(max_send_per_minute=0), groups=targets))
    trips.clear()
    stage.play()
    assert len(stage.book.deliveries()) == lanes * targets
    assert set(Run.objects.values_list("status", flat=True)) == {Run.Status.SUCCESS}
    assert len(trips) < per_target * lanes * targets


def test_between_two_calls_of_a_place_there_is_one_commit(stage: Stage, trips: list[str]) -> None:
    """The result of the first and the claim of the second share it."""
    stage.provider.set_script(Script({"*": {"latency_ms": [100, 100]}}))
    stage.fire(stage.reminder(stage.account(max_send_per_minute=0, group_concurrency=3), groups=60))
    stage.play()
    assert len(stage.book.deliveries()) == 60
    assert 60 / 3 <= trips.count("call") <= 60 / 3 + 5  # the first delivery clears the lane, and waits
