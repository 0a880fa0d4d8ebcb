"""One time limit for many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from fanout.engine.clock import TimeLimit, VirtualClock, run_virtual

START = datetime(2026, 1, 5, tzinfo=UTC)


def virtually(play: Callable[[TimeLimit, asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        await play(TimeLimit(10), asyncio.get_running_loop())

    run_virtual(main, START)


async def answer(after: float) -> float:
    await asyncio.sleep(after)
    return after


def test_each_call_has_its_own_time() -> None:
    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        ended: dict[str, float] = {}

        async def call(name: str, begins: float, takes: float) -> object:
            await asyncio.sleep(begins)
            try:
                return await limit.keep(answer(takes))
            except TimeoutError:
                return "late"
            finally:
                ended[name] = loop.time()

        calls = [("quick", 0, 9), ("late", 0, 99), ("later", 4, 99), ("in time", 5, 9.5), ("after all", 40, 99)]
        answers = await asyncio.gather(*(asyncio.create_task(call(*one)) for one in calls))
        assert answers == [9, "late", "late", 9.5, "late"]
        assert ended == pytest.approx({"quick": 9, "late": 10, "later": 14, "in time": 14.5, "after all": 50})

    virtually(play)


def test_a_task_whose_call_was_late_goes_on() -> None:
    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        with pytest.raises(TimeoutError):
            await limit.keep(answer(11))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert await limit.keep(answer(1)) == 1

    virtually(play)


@pytest.mark.parametrize("at", [3, 10], ids=["before the limit", "at the same moment"])
def test_a_task_cancelled_from_outside_ends(at: float) -> None:
    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.create_task(limit.keep(answer(11)))
        await asyncio.sleep(at)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    virtually(play)


def test_an_answer_that_comes_although_the_call_was_ended_counts() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(99)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "it went out"

    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        assert await limit.keep(stubborn()) == "it went out"
        assert loop.time() == pytest.approx(11)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    virtually(play)
