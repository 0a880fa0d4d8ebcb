"""What providers answered and nobody could write yet: nothing of it is lost, and nothing keeps the others waiting."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from fanout.engine.batch import Result
from fanout.engine.outbox import WRITTEN_AT_ONCE, Outbox, Stop
from fanout.rules.outcomes import AccountChange
from tests.engine.ledgers import NOW

CHANGE = AccountChange("suspended", "banned")


def result(target: int, run: int = 1) -> Result:
    return Result(target, run, 1, 1, NOW, "sent", 1, 1, NOW)


def outbox_of(*results: Result) -> Outbox:
    outbox = Outbox()
    outbox.put(list(results))
    return outbox


class Books:
    """Take what they are given, in the order of the calls; never a target of `refused`, and nothing while `busy`."""

    def __init__(self, refused: set[int] | None = None, busy: bool = False) -> None:
        self.refused = refused or set()
        self.busy = busy
        self.calls: list[list[int]] = []

    async def __call__(self, results: list[Result]) -> None:
        targets = [one.target_id for one in results]
        self.calls.append(targets)
        if self.busy:
            raise psycopg.errors.DeadlockDetected("a circle")
        if self.refused & set(targets):
            raise psycopg.errors.CheckViolation("no such status")


def write(outbox: Outbox, books: Books, locked: tuple[int, ...] = ()) -> list[int]:
    return [one.target_id for one in asyncio.run(outbox.write(books, locked))]


def test_an_outbox_counts_results_and_stops() -> None:
    outbox = outbox_of(result(1), result(2))
    outbox.put_stop(Stop(1, CHANGE, NOW))
    assert (len(outbox), len(Outbox()), bool(Outbox())) == (3, 0, False)


def test_a_bounded_number_is_written_at_once() -> None:
    outbox, books = outbox_of(*map(result, range(WRITTEN_AT_ONCE + 1))), Books()
    assert write(outbox, books) == [*range(WRITTEN_AT_ONCE)]
    assert len(outbox) == 1
    assert write(outbox, books) == [WRITTEN_AT_ONCE]
    assert write(outbox, books) == []
    assert [len(call) for call in books.calls] == [WRITTEN_AT_ONCE, 1]


def test_results_of_locked_runs_wait_and_the_others_do_not() -> None:
    outbox, books = outbox_of(result(1, run=7), result(2, run=8), result(3, run=7)), Books()
    assert write(outbox, books, locked=(7,)) == [2]
    assert (books.calls, len(outbox)) == ([[2]], 2)
    assert write(outbox, books) == [1, 3]


def test_what_is_put_in_while_others_are_written_stays() -> None:
    outbox = outbox_of(result(1))

    async def write_late(results: list[Result]) -> None:
        outbox.put([result(2)])

    asyncio.run(outbox.write(write_late))
    assert len(outbox) == 1
    assert write(outbox, Books()) == [2]


def test_what_may_work_later_is_kept() -> None:
    outbox = outbox_of(result(1), result(2))
    with pytest.raises(psycopg.errors.DeadlockDetected):
        write(outbox, Books(busy=True))
    assert len(outbox) == 2


@pytest.mark.parametrize(
    ("refused", "calls"),
    [({2}, [[1, 2, 3], [1], [2], [3]]), (set(), [[1, 2, 3]])],
    ids=["one of them", "none"],
)
def test_a_result_that_the_database_never_takes_keeps_no_other_waiting(
    refused: set[int], calls: list[list[int]]
) -> None:
    outbox, books = outbox_of(*map(result, (1, 2, 3))), Books(refused)
    assert write(outbox, books) == [1, 2, 3]
    assert (books.calls, len(outbox)) == (calls, 0)


def test_a_single_result_that_is_refused_is_tried_once() -> None:
    outbox, books = outbox_of(result(1)), Books({1})
    assert write(outbox, books) == [1]
    assert (books.calls, len(outbox)) == ([[1]], 0)


def test_stops_are_taken_out_when_they_are_durable() -> None:
    outbox, asked = Outbox(), []
    for account in (4, 5, 6):
        outbox.put_stop(Stop(account, CHANGE, NOW))

    async def stop(one: Stop) -> None:
        asked.append(one.account_id)
        if asked == [4, 5]:
            raise psycopg.OperationalError("the server is gone")

    with pytest.raises(psycopg.OperationalError):
        asyncio.run(outbox.write_stops(stop))
    assert len(outbox) == 2
    assert asyncio.run(outbox.write_stops(stop)) == [5, 6]
    assert (asked, len(outbox)) == ([4, 5, 5, 6], 0)
