"""Questions of many tasks, asked in one statement."""

from __future__ import annotations

import asyncio

import pytest

from fanout.database import AT_ONCE, Gathering


class Doubling:
    """Doubles numbers; takes a moment, and raises for a list with 13 in it."""

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
        return await asyncio.gather(*map(gathering, numbers), return_exceptions=True)

    return asyncio.run(ask())


def test_questions_that_come_together_are_asked_together() -> None:
    doubling = Doubling()
    assert ask_all(doubling, [1, 2, 3]) == [2, 4, 6]
    assert doubling.asked == [[1, 2, 3]]


def test_one_after_the_other_is_asked_alone() -> None:
    doubling = Doubling()

    async def ask() -> list[int]:
        gathering = Gathering(doubling)
        return [await gathering(1), await gathering(2)]

    assert asyncio.run(ask()) == [2, 4]
    assert doubling.asked == [[1], [2]]


def test_no_statement_grows_without_limit() -> None:
    doubling = Doubling()
    many = list(range(100, 100 + AT_ONCE + 1))
    assert ask_all(doubling, many) == [2 * number for number in many]
    assert [len(group) for group in doubling.asked] == [AT_ONCE, 1]


def test_the_limit_can_be_chosen() -> None:
    doubling = Doubling()

    async def ask() -> list[int]:
        gathering = Gathering(doubling, 500)
        return await asyncio.gather(*(gathering(number) for number in range(100, 100 + 2 * 500 + 1)))

    assert asyncio.run(ask()) == [2 * number for number in range(100, 1101)]
    assert [len(numbers) for numbers in doubling.asked] == [500, 500, 1]


def test_questions_that_come_while_an_answer_is_under_way_wait_for_it() -> None:
    doubling = Doubling()

    async def ask() -> int:
        gathering = Gathering(doubling)
        first = asyncio.create_task(gathering(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.create_task(gathering(number)) for number in (2, 3)]
        await asyncio.gather(first, *later)
        return await gathering(4)

    assert asyncio.run(ask()) == 8
    assert doubling.asked == [[1], [2, 3], [4]]


def test_a_question_without_an_answer_fails_alone() -> None:
    one, thirteen, three = ask_all(Doubling(), [1, 13, 3])
    assert (one, three) == (2, 6)
    assert isinstance(thirteen, ValueError)


def test_without_a_second_try_those_that_asked_together_fail_together() -> None:
    doubling = Doubling()

    async def ask() -> list[int | BaseException]:
        gathering = Gathering(doubling, retry_alone=False)
        failed = await asyncio.gather(gathering(1), gathering(13), return_exceptions=True)
        return [*failed, await gathering(2)]

    first, second, third = asyncio.run(ask())
    assert (str(first), str(second), third) == ("thirteen", "thirteen", 4)
    assert doubling.asked == [[1, 13], [2]]


def test_a_task_that_stopped_asking_does_not_hold_up_the_next() -> None:
    async def ask() -> int:
        gathering = Gathering(Doubling())
        gone = asyncio.create_task(gathering(1))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await gathering(2)

    assert asyncio.run(ask()) == 4


def test_a_task_that_stopped_asking_does_not_keep_others_from_their_answer() -> None:
    async def ask(number: int) -> list[int | BaseException]:
        gathering = Gathering(Doubling(), retry_alone=False)
        impatient = asyncio.create_task(gathering(number))
        beside = asyncio.create_task(gathering(2))
        await asyncio.sleep(0)
        impatient.cancel()
        return [*await asyncio.gather(beside, gathering(3), return_exceptions=True)]

    assert asyncio.run(ask(1)) == [4, 6]
    failed, later = asyncio.run(ask(13))
    assert (str(failed), later) == ("thirteen", 6)
