"""Questions of many lanes, asked together."""

from __future__ import annotations

import asyncio

import pytest

from fanout.engine.gathering import AT_ONCE, Gathering


class Doubling:
    """Doubles numbers; takes a moment, and cannot do thirteen."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    async def __call__(self, numbers: list[int]) -> list[int]:
        self.asked.append(numbers)
        await asyncio.sleep(0)
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * number for number in numbers]


def ask_all(doubling: Doubling, numbers: list[int]) -> list[int | BaseException]:
    async def ask() -> list[int | BaseException]:
        gathering = Gathering(doubling)
        return await asyncio.gather(*map(gathering.ask, numbers), return_exceptions=True)

    return asyncio.run(ask())


def test_what_comes_together_is_asked_together() -> None:
    doubling = Doubling()
    assert ask_all(doubling, [1, 2, 3]) == [2, 4, 6]
    assert doubling.asked == [[1, 2, 3]]


def test_no_question_grows_without_limit() -> None:
    doubling = Doubling()
    many = list(range(100, 100 + AT_ONCE + 1))
    assert ask_all(doubling, many) == [2 * number for number in many]
    assert [len(group) for group in doubling.asked] == [AT_ONCE, 1]


def test_what_comes_while_an_answer_is_under_way_waits_for_it() -> None:
    doubling = Doubling()

    async def ask() -> int:
        gathering = Gathering(doubling)
        first = asyncio.create_task(gathering.ask(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.create_task(gathering.ask(number)) for number in (2, 3)]
        await asyncio.gather(first, *later)
        return await gathering.ask(4)

    assert asyncio.run(ask()) == 8
    assert doubling.asked == [[1], [2, 3], [4]]


def test_a_question_without_an_answer_fails_alone() -> None:
    one, thirteen, three = ask_all(Doubling(), [1, 13, 3])
    assert (one, three) == (2, 6)
    assert isinstance(thirteen, ValueError)


def test_who_stopped_asking_holds_nobody_up() -> None:
    async def ask() -> int:
        gathering = Gathering(Doubling())
        gone = asyncio.create_task(gathering.ask(1))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await gathering.ask(2)

    assert asyncio.run(ask()) == 4
