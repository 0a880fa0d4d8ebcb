"""Drivers of machines whose clocks differ, in real time: who lives is judged by the database's clock alone."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from fanout.engine.clock import SystemClock
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from fanout.models import LaneState
from fanout.ops.tasks import open_ledger
from tests.emptying import forget_claims
from tests.engine.stage import Stage, whole_day

pytestmark = pytest.mark.django_db(transaction=True)

SLICE = 8.0


class WrongClock(SystemClock):
    def __init__(self, wrong_by: timedelta) -> None:
        self.wrong_by = wrong_by

    def now(self) -> datetime:
        return super().now() + self.wrong_by


@pytest.fixture
def stage() -> Stage:
    """Two accounts with plenty to send, since ten minutes ago: also a clock that is behind sees them as due."""
    forget_claims()  # a process of an earlier test may have written them after that test's end
    stage = Stage(now=timezone.now() - timedelta(minutes=10))
    for _ in range(2):
        stage.fire(stage.reminder(stage.account(), groups=100, **whole_day(stage.now)))
    return stage


def drive(stage: Stage, host: str, wrong_by: timedelta, capacity: int = 1, silent_after: float = 60) -> Driver:
    async def open_without_journal(outbox: Outbox) -> Ledger:
        ledger = await open_ledger(outbox)
        ledger.journal = None  # it is this machine's: the other host's heartbeats would look lost
        return ledger

    driver = Driver(
        WrongClock(wrong_by),
        open_without_journal,
        stage.transport,
        capacity=capacity,
        slice_seconds=SLICE,
        silent_after=timedelta(seconds=silent_after),
    )
    driver.identity.host = host
    return driver


def play(*drivers: Driver) -> None:
    async def run() -> None:
        await asyncio.gather(*(driver.run() for driver in drivers))

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [-300, -4, 300], ids=["far behind", "behind", "ahead"])
def test_a_driver_whose_clock_is_wrong_keeps_its_lanes(
    stage: Stage, caplog: pytest.LogCaptureFixture, seconds: int
) -> None:
    play(drive(stage, "one", timedelta(0)), drive(stage, "two", timedelta(seconds=seconds)))
    # Each took a lane, once, and neither ended the other's session.
    assert list(LaneState.objects.values_list("epoch", "crashes")) == [(1, 0), (1, 0)]
    assert "its locks were freed" not in caplog.text
    assert {delivery.account for delivery in stage.book.deliveries()} == {"a0", "a1"}


@pytest.mark.slow
def test_a_silent_driver_loses_its_lanes_regardless_of_its_clock(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    silent = drive(stage, "silent", timedelta(minutes=5), capacity=2)

    async def no_beat() -> None:
        silent.share = 2

    monkeypatch.setattr(silent, "_beat", no_beat)

    async def run() -> None:
        first = asyncio.create_task(silent.run())
        while len(silent.lanes) < 2 and not first.done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.gather(first, drive(stage, "other", timedelta(0), capacity=2, silent_after=3).run())

    asyncio.run(run())
    assert "its locks were freed" in caplog.text
    assert min(LaneState.objects.values_list("epoch", flat=True)) >= 2
    assert not stage.book.duplicates("account", "to", "part")
