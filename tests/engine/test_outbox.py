"""Answers that could not be stored yet: none is lost, and none holds up the others."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from fanout.engine.commit import Locked, Result
from fanout.engine.outbox import WRITTEN_AT_ONCE, Outbox, Stop
from fanout.rules.outcomes import AccountChange
from tests.engine.ledgers import NOW

CHANGE = AccountChange("suspended", "banned")


def result(target: int, run: int = 1, account: int = 1) -> Result:
    return Result(target, run, account, 1, NOW, "sent", 1, 1, NOW)


def outbox_of(*results: Result) -> Outbox:
    outbox = Outbox()
    outbox.put(list(results))
    return outbox


class Books:
    """Take what they are given, in the order of the calls; never a target of `refused`, none of `broken` now, and
    nothing while `busy`."""

    def __init__(self, refused: set[int] | None = None, busy: bool = False, broken: set[int] | None = None) -> None:
        self.refused = refused or set()
        self.busy = busy
        self.broken = broken or set()
        self.calls: list[list[int]] = []
        self.judges = False

    async def __call__(self, results: list[Result]) -> bool:
        targets = [one.target_id for one in results]
        self.calls.append(targets)
        if self.busy:
            raise psycopg.errors.DeadlockDetected("a circle")
        if self.refused & set(targets):
            raise psycopg.errors.CheckViolation("no such status")
        if self.broken & set(targets):
            raise psycopg.errors.DataCorrupted("invalid page")
        return self.judges


def write(outbox: Outbox, books: Books, locked: Locked | None = None) -> list[int]:
    return [one.target_id for one in asyncio.run(outbox.write(books, locked or Locked()))]


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
    assert write(outbox, books, Locked(runs={7})) == [2]
    assert (books.calls, len(outbox)) == ([[2]], 2)
    assert write(outbox, books) == [1, 3]


def test_results_added_during_a_write_stay() -> None:
    outbox = outbox_of(result(1))

    async def write_late(results: list[Result]) -> bool:
        outbox.put([result(2)])
        return False

    asyncio.run(outbox.write(write_late, Locked()))
    assert len(outbox) == 1
    assert write(outbox, Books()) == [2]


def test_results_that_may_be_stored_later_are_kept() -> None:
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


@pytest.mark.parametrize("broken", [{2}, {1, 3}], ids=["one of them", "two of them"])
def test_a_result_that_the_database_may_take_later_is_kept_and_keeps_no_other_waiting(broken: set[int]) -> None:
    outbox, books = outbox_of(*map(result, (1, 2, 3))), Books(broken=broken)
    assert write(outbox, books) == sorted({1, 2, 3} - broken)
    assert {one.target_id for one in outbox._results} == broken
    books.broken = set()
    assert write(outbox, books) == sorted(broken)


def test_where_none_can_be_written_the_reason_is_told() -> None:
    outbox = outbox_of(*map(result, (1, 2)))
    with pytest.raises(psycopg.errors.DataCorrupted):
        write(outbox, Books(broken={1, 2}))
    assert len(outbox) == 2


def test_an_account_is_held_until_all_of_it_is_durable() -> None:
    outbox = outbox_of(result(1, account=7), result(2, account=7, run=8), result(3, account=8))
    outbox.put_stop(Stop(8, CHANGE, NOW))
    assert [outbox.holds(account) for account in (6, 7, 8)] == [False, True, True]
    write(outbox, Books(), Locked(runs={8}))
    assert [outbox.holds(account) for account in (7, 8)] == [True, True]
    write(outbox, Books())
    assert [outbox.holds(account) for account in (7, 8)] == [False, True]

    async def stop(one: Stop) -> None:
        pass

    asyncio.run(outbox.write_stops(stop))
    assert not outbox.holds(8)


def test_late_results_have_their_runs_judged_and_lanes_woken() -> None:
    outbox = outbox_of(result(1, run=5, account=7), result(2, run=6, account=7))
    assert (outbox.changed_runs, outbox.changed_accounts) == (set(), set())
    write(outbox, Books())
    assert (outbox.changed_runs, outbox.changed_accounts) == ({5, 6}, {7})
    assert (len(outbox), bool(outbox)) == (0, True)
    outbox.changed_runs.clear()
    assert outbox
    outbox.changed_accounts.clear()
    assert not outbox


def test_what_was_judged_with_its_results_is_not_judged_again() -> None:
    outbox, books = outbox_of(result(1, run=5, account=7)), Books()
    books.judges = True
    assert write(outbox, books) == [1]
    assert not outbox


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
    assert (len(outbox), outbox.changed_accounts) == (2, {4})
    asyncio.run(outbox.write_stops(stop))
    assert (asked, len(outbox), outbox.changed_accounts) == ([4, 5, 5, 6], 0, {4, 5, 6})
