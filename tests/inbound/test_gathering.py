"""What comes while one question is under way goes out together with the next."""

from __future__ import annotations

import asyncio

from fanout.inbound.gathering import MOST, Gathered


class Asked:
    """Answers each number with its double; of a list with 13 it knows none."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []

    async def __call__(self, numbers: list[int]) -> list[int]:
        self.lists.append(numbers)
        await asyncio.sleep(0)
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * number for number in numbers]


def test_those_that_wait_are_asked_about_together_and_no_more_than_so_many_at_once() -> None:
    asked = Asked()

    async def ask() -> list[int]:
        gathered = Gathered(asked)
        return await asyncio.gather(*(gathered(number) for number in range(100, 100 + 2 * 500 + 1)))

    assert asyncio.run(ask()) == [2 * number for number in range(100, 1101)]
    assert [len(numbers) for numbers in asked.lists] == [500, 500, 1]
    assert MOST == 500


def test_one_after_the_other_is_asked_about_alone() -> None:
    asked = Asked()

    async def ask() -> list[int]:
        gathered = Gathered(asked)
        return [await gathered(1), await gathered(2)]

    assert asyncio.run(ask()) == [2, 4]
    assert asked.lists == [[1], [2]]


def test_who_asked_together_hears_of_the_error_together_and_the_next_ones_do_not() -> None:
    async def ask() -> list[int | BaseException]:
        gathered = Gathered(Asked())
        failed = await asyncio.gather(gathered(1), gathered(13), return_exceptions=True)
        return [*failed, await gathered(2)]

    first, second, third = asyncio.run(ask())
    assert (str(first), str(second), third) == ("thirteen", "thirteen", 4)


def test_who_gave_up_waiting_keeps_nobody_from_their_answer() -> None:
    async def ask(number: int) -> list[int | BaseException]:
        gathered = Gathered(Asked())
        impatient = asyncio.create_task(gathered(number))
        beside = asyncio.create_task(gathered(2))
        await asyncio.sleep(0)
        impatient.cancel()
        return [*await asyncio.gather(beside, gathered(3), return_exceptions=True)]

    assert asyncio.run(ask(1)) == [4, 6]
    failed, later = asyncio.run(ask(13))
    assert (str(failed), later) == ("thirteen", 6)
