"""The ledger's own decisions: what is kept, who is told, and when it lets go. Without a database: its links say what
the test wants."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fanout.database import Statement
from fanout.engine import commit
from fanout.engine import ledger as ledgers
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.commit import Call, Claim, Commit, Locked, Result
from fanout.engine.connection import Row
from fanout.engine.ledger import CAUSES, REFUSED_PAUSE, TIMES_EVERY, WRITER_PATIENCE, Ledger, LedgerLost
from tests.engine.ledgers import EPOCH, NOW, lane_write

case = pytest.param
GONE = psycopg.OperationalError("the server is gone")
LOCKED = psycopg.errors.LockNotAvailable("a row is locked")
DEADLOCK = psycopg.errors.DeadlockDetected("a circle")
REFUSED = psycopg.errors.CheckViolation("no such status")
FULL = psycopg.errors.DiskFull("No space left on device")
READ_ONLY = psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction")


class Wire:
    """A link. `errors` come one after the other, None for a call that succeeds; then everything does."""

    def __init__(self) -> None:
        self.closed = False
        self.errors: list[Exception | None] = []
        self.closes_with_error = False
        self.takes = 0.0
        self.commits: list[dict[str, Sequence[Any]]] = []
        self.asked: list[tuple[str, Any]] = []
        self.locked: dict[str, set[int]] = defaultdict(set)

    async def _answer(self) -> None:
        await asyncio.sleep(self.takes)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            self.closed = self.closes_with_error
            raise error

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        self.commits.append(dict(calls))
        await self._answer()
        granted = [{"id": int(one)} for name, values in calls if name == "claim" for one in values[0][1:-1].split(",")]
        return [granted if name == "claim" else [{"id": 0}] for name, _ in calls]

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        self.asked.append((statement, parameters))
        assert len(self.asked) < 200, "it spins"
        if statement == commit.LOCKED_ROWS:
            asked = {"run": parameters["runs"], "lane": parameters["lanes"], "target": parameters["targets"]}
            return [
                {"what": what, "key": str(key)} for what, keys in asked.items() for key in {*keys} & self.locked[what]
            ]
        await self._answer()
        return [{"account_id": 1, "epoch": EPOCH}]

    async def script(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [await self.query(*statement) for statement in statements]

    async def close(self) -> None:
        self.closed = True

    def names(self) -> list[list[str]]:
        return [[name for name in commit if name not in ("lock_runs", "hot_runs")] for commit in self.commits]


Work = Callable[[Ledger, Wire, VirtualClock], Awaitable[None]]


def play(work: Work, start: bool = True) -> Ledger:
    """The ledger, after it was stopped."""

    async def main(clock: VirtualClock) -> Ledger:
        wire = Wire()
        ledger = Ledger(wire, Wire())
        if start:
            ledger.start()
        await work(ledger, wire, clock)
        await ledger.stop()
        return ledger

    return run_virtual(main, NOW)


def claim(target: int, run: int = 1, account: int = 1) -> Claim:
    return Claim(target, run, account, EPOCH, NOW)


def result(target: int, run: int = 1, account: int = 1) -> Result:
    return Result(target, run, account, EPOCH, NOW, "sent", 1, 1, NOW)


class Told:
    """Answers to the lanes that handed in results."""

    def __init__(self) -> None:
        self.received: list[tuple[int, str]] = []

    def of(self, target: int) -> Callable[[BaseException | None], None]:
        return lambda error: self.received.append((target, type(error).__name__ if error else "written"))


def kept(ledger: Ledger) -> list[int]:
    return [one.target_id for one in ledger.outbox._results]


async def moment() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# --- handing in -----------------------------------------------------------------------------------------------


def test_without_a_connection_results_are_kept_and_nothing_is_claimed() -> None:
    told = Told()

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        ledger.lost.set()
        with pytest.raises(LedgerLost):
            await ledger.claim([claim(1)], lane_write(1))
        lane_after = lane_write(1)
        ledger.hand_in(result(2), lane_after, told.of(2))
        await ledger.record(result(3))
        assert kept(ledger) == [2, 3]
        assert ledger.outbox._results[0].lane_after is lane_after
        assert told.received == [(2, "written")]
        for asking in (ledger.write("SELECT 1"), ledger.read("SELECT 1"), ledger.write_late([])):
            with pytest.raises(LedgerLost):
                await asking
        with pytest.raises(LedgerLost):
            async with ledger.together():
                pass
        await ledger.flushed()
        assert (await ledger.still_mine(1, EPOCH), await ledger.locked()) == (False, Locked())
        assert (wire.asked, wire.commits) == ([], [])

    play(work, start=False)


@pytest.mark.parametrize("thing", ["claim", "result", "skip", "start", "lane"])
def test_every_entry_is_written_at_once(thing: str) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        await moment()
        if thing == "claim":
            assert await ledger.claim([claim(1), claim(2)], lane_write(1)) == {1, 2}
        elif thing == "result":
            ledger.hand_in(result(1), lane_write(1), lambda error: None)
        elif thing == "skip":
            ledger.skip(1, 1, "not\x00 today", NOW)
        elif thing == "start":
            ledger.start_run(1, 1, NOW)
        else:
            ledger.leave_lane(lane_write(1))
        await moment()
        names = {"claim": ["claim", "pace"], "result": ["record", "pace"], "lane": ["pace"]}.get(thing, [thing])
        assert (wire.names(), clock.monotonic()) == ([names], 0)
        if thing == "skip":
            assert wire.commits[0]["skip"][1] == '{"not today"}'

    play(work)


def test_seconds_are_written_only_now_and_then() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        for cause in CAUSES[:4]:
            ledger.spent(1, cause, (TIMES_EVERY - 0.01) / 4)
        assert ledger._commit.times == {}
        ledger.spent(1, "waiting", 0.01)
        quarter = pytest.approx((TIMES_EVERY - 0.01) / 4)
        assert ledger._commit.times == {1: [quarter, quarter, quarter, quarter, 0.01]}
        ledger.spent(1, "provider", 2.0)
        ledger.spent(2, "provider", 3.0)
        ledger.write_times(1)
        ledger.write_times(3)  # nothing is known of it
        assert ledger._commit.times[1][1] == pytest.approx((TIMES_EVERY - 0.01) / 4 + 2.0)
        assert (list(ledger._commit.times), list(ledger._times)) == ([1], [2])

    play(work, start=False)


def test_settled_waits_for_what_is_being_written_and_for_what_waits() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        await ledger.flushed()
        assert clock.monotonic() == 0
        wire.takes = 2.0
        ledger.start_run(1, 1, NOW)
        await moment()
        ledger.start_run(2, 2, NOW)
        await ledger.flushed()
        assert (clock.monotonic(), len(wire.commits)) == (4.0, 2)
        ledger.start_run(3, 3, NOW)
        await moment()
        await ledger.flushed()
        assert (clock.monotonic(), len(wire.commits)) == (6.0, 3)
        ledger.spent(4, "pacing", TIMES_EVERY)  # nothing was woken for it
        await ledger.flushed()
        assert wire.names()[-1] == ["times"]

    play(work)


@pytest.mark.parametrize(
    ("errors", "all_written"),
    [case([], True, id="written"), case([FULL], True, id="at-the-second-try"), case([FULL, FULL], False, id="refused")],
)
def test_settled_says_whether_all_was_written(errors: list[Exception | None], all_written: bool) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors = errors
        ledger.skip(1, 1, "suppressed", NOW)
        assert await ledger.flushed() is all_written
        ledger.skip(1, 1, "suppressed", NOW)
        assert await ledger.flushed() is True

    play(work)


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        case([1, 1, 1], [[0, 1], [2]], id="a-third-lane-begins-a-new-one"),
        case([5], [[0, 0, 0, 0], [0]], id="a-lane-goes-on-in-its-own-until-that-is-twice-as-full"),
        case([1, 1, 1, 1], [[0, 1], [2, 3]], id="two-and-two"),
    ],
)
def test_a_full_batch_is_closed_to_other_lanes(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], batches: list[list[int]]
) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        for account, size in enumerate(sizes):
            for target in range(size):
                ledger.hand_in(result(target, account=account), None, lambda error: None)
        assert [[one.account_id for one, _ in b.results] for b in (*ledger._full, ledger._commit)] == batches
        assert [b.accounts for b in (*ledger._full, ledger._commit)] == [
            list(dict.fromkeys(those)) for those in batches
        ]
        while ledger._full or ledger._commit:
            ledger._next_commit()
        assert ledger._commit_by_account == {}

    monkeypatch.setattr(ledgers, "FULL", 2)
    play(work, start=False)


def test_a_later_batch_keeps_its_entries_when_an_earlier_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        for _ in range(5):
            ledger.hand_in(result(1), None, lambda error: None)
        ledger._next_commit()
        assert ledger._commit_by_account == {1: ledger._commit}

    monkeypatch.setattr(ledgers, "FULL", 2)
    play(work, start=False)


# --- trouble --------------------------------------------------------------------------------------------------


def test_after_a_lost_connection_everything_is_kept_and_all_lanes_told() -> None:
    told = Told()

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors, wire.closes_with_error, wire.takes = [GONE], True, 1.0
        ledger.hand_in(result(1), lane_write(1), told.of(1))
        asking = asyncio.create_task(ledger.claim([claim(2, account=1)], lane_write(1)))
        await moment()
        ledger.hand_in(result(3), None, told.of(3))  # while that is being written
        await ledger.flushed()
        with pytest.raises(LedgerLost):
            await asking
        assert ledger.lost.is_set()
        assert sorted(kept(ledger)) == [1, 2, 3]
        assert told.received == [(1, "written"), (3, "written")]
        (never,) = [one for one in ledger.outbox._results if one.target_id == 2]
        assert (never.status, never.attempts) == ("pending", -1)
        assert all(one.lane_after is not None for one in ledger.outbox._results if one.target_id == 1)

    assert play(work).commits == 1


@pytest.mark.parametrize(
    ("error", "received", "outbox", "granted", "after"),
    [
        case(REFUSED, [(1, "CheckViolation"), (2, "written")], [], "CheckViolation", 0.0, id="refused"),
        case(DEADLOCK, [(1, "written"), (2, "written")], [1], "set()", REFUSED_PAUSE, id="busy"),
        case(READ_ONLY, [(1, "written"), (2, "written")], [1], "set()", REFUSED_PAUSE, id="read-only"),
    ],
)
def test_one_entry_that_is_not_taken_takes_no_other_with_it(
    error: Exception, received: list[tuple[int, str]], outbox: list[int], granted: str, after: float
) -> None:
    told = Told()

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors = [error, error, None, error]  # all together, the first, the second, and the claim
        ledger.hand_in(result(1), lane_write(1), told.of(1))
        ledger.hand_in(result(2), None, told.of(2))
        (answer,) = await asyncio.gather(ledger.claim([claim(3, account=2)], lane_write(2)), return_exceptions=True)
        assert granted in (str(answer), type(answer).__name__)
        assert clock.monotonic() == after  # a lane asks again at once: without a pause it would never rest
        await ledger.flushed()
        assert wire.names() == [["record", "claim", "pace"], ["record"], ["record"], ["claim", "pace"], *[["pace"]] * 2]
        assert (kept(ledger), told.received, ledger.lost.is_set()) == (outbox, received, False)
        assert [one.lane_after for one in ledger.outbox._results] == [None] * len(
            outbox
        )  # the lane is ours and writes it

    play(work)


@pytest.mark.parametrize("together", [True, False], ids=["in the same batch", "in the next one"])
def test_beside_a_result_that_is_not_stored_no_claim_of_its_account_is_written(together: bool) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors = [FULL, FULL]  # all together, and the result alone
        ledger.hand_in(result(1), None, lambda error: None)
        if not together:
            await ledger.flushed()
            wire.errors = []
        mine, theirs = await asyncio.gather(
            ledger.claim([claim(2)], lane_write(1)), ledger.claim([claim(3, account=2)], lane_write(2))
        )
        assert (mine, theirs, kept(ledger)) == (set(), {3}, [1])
        first, *others = [commit["claim"][0] for commit in wire.commits if "claim" in commit]
        assert [first, *others] == (["{2,3}", "{3}"] if together else ["{3}"])
        await ledger.outbox.write(ledger.write_late, Locked())
        assert await ledger.claim([claim(2)], lane_write(1)) == {2}  # it is stored, and its place is free

    play(work)


def test_a_connection_that_ends_while_entries_are_written_loses_none() -> None:
    told = Told()

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors = [REFUSED, None]
        really, written = wire.call, []

        async def call(calls: Sequence[Call]) -> list[list[Row]]:
            written.append(calls)
            if len(written) > 2:
                wire.closed = True
                raise GONE
            return await really(calls)

        wire.call = call  # type: ignore[method-assign]
        for target in (1, 2, 3):
            ledger.hand_in(result(target), None, told.of(target))
        await ledger.flushed()
        assert (ledger.lost.is_set(), kept(ledger)) == (True, [2, 3])

    play(work)
    assert told.received == [(1, "written"), (2, "written"), (3, "written")]


def test_a_claim_that_was_granted_before_the_ledger_gave_up_its_batch_is_not_called_never_sent() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        really, written = wire.call, []

        async def call(calls: Sequence[Call]) -> list[list[Row]]:
            written.append(calls)
            if len(written) == 1:
                raise DEADLOCK  # all together
            if len(written) == 3:
                await asyncio.sleep(3600)
            return await really(calls)

        wire.call = call  # type: ignore[method-assign]
        asking = [asyncio.create_task(ledger.claim([claim(n, account=n)], lane_write(n))) for n in (1, 2)]
        await moment()
        assert asking[0].result() == {1}  # its provider may be called by now
        await ledger.stop()
        assert [type(error).__name__ for error in await asyncio.gather(*asking[1:], return_exceptions=True)] == [
            "LedgerLost"
        ]
        assert kept(ledger) == [2]

    play(work)


def test_for_locked_runs_results_are_kept_starts_go_later_and_claims_are_refused() -> None:
    told = Told()

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors, wire.locked["run"] = [LOCKED], {7}
        ledger.hand_in(result(1, run=7), lane_write(1), told.of(1))
        ledger.hand_in(result(2, run=8), None, told.of(2))
        ledger.start_run(7, 1, NOW)
        answers = await asyncio.gather(
            ledger.claim([claim(3, run=7)], lane_write(1)),
            ledger.claim([claim(4, run=8, account=2)], lane_write(2)),
            ledger.claim([claim(5, run=8)], lane_write(1)),  # its result of the locked run has the place
        )
        assert (answers, clock.monotonic()) == ([set(), {4}, set()], REFUSED_PAUSE)
        assert (kept(ledger), told.received) == ([1], [(1, "written"), (2, "written")])
        assert ledger.outbox._results[0].lane_after is None
        assert wire.names() == [["record", "start", "claim", "pace"], ["record", "claim", "pace"]]
        assert (await ledger.locked()).runs == {7}
        wire.locked.clear()
        assert not await ledger.locked()
        asked = len(wire.asked)
        assert not await ledger.locked()
        assert len(wire.asked) == asked  # not asked while nothing was locked

    play(work)


def test_a_start_that_cannot_be_written_is_tried_again_after_a_pause_and_with_what_comes() -> None:
    """Without a pause the database would be asked all the time, until the run's lock is released."""

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors, wire.locked["run"] = [LOCKED], {7}
        ledger.start_run(7, 1, NOW)
        await asyncio.sleep(REFUSED_PAUSE * 5.5)
        assert len(wire.asked) < 20
        wire.locked.clear()
        await asyncio.sleep(REFUSED_PAUSE)
        assert wire.names() == [["start"], ["start"]]
        wire.errors, wire.locked["run"] = [LOCKED], {7}
        ledger.start_run(7, 1, NOW)
        await moment()
        ledger.leave_lane(lane_write(1))
        await moment()
        assert wire.names()[2:] == [["start"], ["pace"]]
        wire.locked.clear()
        ledger.leave_lane(lane_write(1, timeouts=1))
        await moment()
        assert wire.names()[4:] == [["start", "pace"]]

    play(work)


def test_a_start_that_comes_later_is_not_replaced_by_one_that_was_held_up() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        ledger._locked.runs = wire.locked["run"] = {7}
        later = NOW + timedelta(minutes=1)
        ledger.start_run(7, 1, later)
        await ledger._without_locked(Commit(starts={7: NOW, 8: NOW}))
        assert ledger._commit.starts == {7: later}
        ledger._full.append(Commit())
        await ledger._without_locked(Commit(starts={7: NOW}))
        assert (ledger._full[0].starts, ledger._commit.starts) == ({7: NOW}, {7: later})  # with the very next
        ledger._full.clear()
        ledger._commit = Commit()
        ledger._ending = True
        await ledger._without_locked(Commit(starts={7: NOW}))
        assert ledger._commit.starts == {}  # or a ledger that ends would never end

    play(work, start=False)


@pytest.mark.parametrize(
    ("second", "closes", "lost", "outbox"),
    [
        case(LOCKED, False, False, [], id="still-locked-and-then-one-by-one"),
        case(GONE, True, True, [1], id="and-then-the-connection-is-gone"),
    ],
)
def test_a_lock_that_is_not_found_does_not_keep_a_batch_from_being_written(
    second: Exception, closes: bool, lost: bool, outbox: list[int]
) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors = [LOCKED, second]
        really = wire.query

        async def query(statement: str, parameters: Any = None) -> list[Row]:
            wire.closes_with_error = closes
            return await really(statement, parameters)

        wire.query = query  # type: ignore[method-assign]
        await ledger.record(result(1))
        assert (ledger.lost.is_set(), kept(ledger), len(wire.commits)) == (lost, outbox, 2 if lost else 3)

    play(work)


# --- results of an earlier connection --------------------------------------------------------------------------


def test_late_results_are_written_with_what_their_lanes_learnt() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        taught = result(1, account=5)
        taught.lane_after = lane_write(5)
        await ledger.write_late([taught, result(2, account=6)])
        assert wire.names() == [["record", "pace"]]
        assert (wire.commits[0]["record"][0], wire.commits[0]["pace"][0]) == ("{1,2}", "{5}")

    play(work)


@pytest.mark.parametrize(
    ("error", "closes", "raised"),
    [
        case(DEADLOCK, False, psycopg.errors.DeadlockDetected, id="busy"),
        case(REFUSED, False, psycopg.errors.CheckViolation, id="refused"),
        case(GONE, True, LedgerLost, id="gone"),
    ],
)
def test_refused_late_results_stay_in_the_outbox(error: Exception, closes: bool, raised: type[Exception]) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors, wire.closes_with_error = [error], closes
        with pytest.raises(raised):
            await ledger.write_late([result(1)])
        assert (ledger.lost.is_set(), kept(ledger), ledger._locked) == (closes, [], Locked())

    play(work)


def test_late_results_learn_which_runs_are_locked() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.errors, wire.locked["run"], ledger._locked.runs = [LOCKED], {7, 8}, {8}
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await ledger.write_late([result(1, run=7), result(2, run=9)])
        assert ledger._locked.runs == {7, 8}

    play(work)


# --- single statements ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", [False, True], ids=["write", "read"])
@pytest.mark.parametrize(
    ("error", "closes", "raised", "lost"),
    [
        case(DEADLOCK, False, psycopg.errors.DeadlockDetected, False, id="busy"),
        case(GONE, True, LedgerLost, True, id="gone"),
        case(REFUSED, True, psycopg.errors.CheckViolation, False, id="refused"),
    ],
)
def test_a_statement_on_a_connection_that_is_gone_loses_the_ledger(
    reading: bool, error: Exception, closes: bool, raised: type[Exception], lost: bool
) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        link: Any = ledger.reads if reading else wire
        link.errors, link.closes_with_error = [error], closes
        with pytest.raises(raised):
            await (ledger.read if reading else ledger.write)("SELECT 1")
        assert ledger.lost.is_set() is lost

    play(work)


def test_a_look_up_never_stands_in_the_middle_of_a_commit() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        async with ledger.exclusive:
            assert await ledger.read("SELECT 1") == [{"account_id": 1, "epoch": EPOCH}]
            writing = asyncio.create_task(ledger.write("SELECT 2"))
            await moment()
            assert wire.asked == []
        assert await writing == [{"account_id": 1, "epoch": EPOCH}]
        assert wire.asked == [("SELECT 2", None)]

    play(work)


def test_statements_happen_together_or_not_at_all() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        async with ledger.together() as write:
            await write([("SELECT 1", {})])
        assert [statement for statement, _ in wire.asked] == ["BEGIN", "SELECT 1", "COMMIT"]
        with pytest.raises(ValueError, match="a bug"):
            async with ledger.together():
                raise ValueError("a bug")
        assert [statement for statement, _ in wire.asked[3:]] == ["BEGIN", "ROLLBACK"]
        assert not ledger.exclusive.locked()
        wire.errors, wire.closes_with_error = [None, GONE], True
        with pytest.raises(LedgerLost):
            async with ledger.together() as write:
                await write([("SELECT 2", {})])
        assert ledger.lost.is_set()
        assert [statement for statement, _ in wire.asked[5:]] == ["BEGIN", "SELECT 2"]  # no lane waits for it

    play(work)


@pytest.mark.parametrize(("account", "epoch", "mine"), [(1, EPOCH, True), (1, EPOCH - 1, False), (2, EPOCH, False)])
def test_a_lane_is_mine_with_its_account_and_epoch(account: int, epoch: int, mine: bool) -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        assert await ledger.still_mine(account, epoch) is mine
        assert wire.asked == [(ledgers.STILL_MINE, [f"{{{account}}}", f"{{{epoch}}}"])]

    play(work)


def test_questions_of_one_kind_are_gathered() -> None:
    asked: list[list[int]] = []

    async def double(_: Ledger, numbers: list[int]) -> list[int]:
        asked.append(numbers)
        return [2 * number for number in numbers]

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        assert await asyncio.gather(*(ledger.gathered(double, number) for number in (1, 2))) == [2, 4]
        assert await ledger.gathered(double, 3) == 6
        assert (asked, len(ledger._gatherings)) == ([[1, 2], [3]], 1)

    play(work)


# --- the end --------------------------------------------------------------------------------------------------


def test_a_ledger_that_stops_writes_what_is_left() -> None:
    told, wires = Told(), []

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.takes = 1.0
        ledger.hand_in(result(1), None, told.of(1))
        ledger.spent(1, "pacing", TIMES_EVERY)
        wires.append(wire)

    ledger = play(work)
    (wire,) = wires
    assert (wire.names(), told.received, kept(ledger)) == ([["record", "times"]], [(1, "written")], [])
    assert (ledger.locks.closed, ledger.reads.closed, ledger.lost.is_set()) == (True, True, True)


def test_a_writer_that_hangs_is_not_waited_for_and_what_it_has_is_kept() -> None:
    told = Told()

    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        wire.takes = 10_000.0
        ledger.hand_in(result(1), None, told.of(1))
        asking = asyncio.create_task(ledger.claim([claim(2, account=2)], lane_write(2)))
        await moment()
        ledger.hand_in(result(3), None, told.of(3))
        began = clock.monotonic()
        await ledger.stop()
        assert WRITER_PATIENCE <= clock.monotonic() - began <= 2 * WRITER_PATIENCE
        assert sorted(kept(ledger)) == [1, 2, 3]
        with pytest.raises(LedgerLost):
            await asking

    play(work)
    assert told.received == [(1, "written"), (3, "written")]


def test_results_after_the_end_are_kept() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        await ledger.stop()
        await ledger.record(result(1))
        assert kept(ledger) == [1]
        assert wire.commits == []

    play(work)


def test_a_ledger_that_never_started_ends_at_once() -> None:
    async def work(ledger: Ledger, wire: Wire, clock: VirtualClock) -> None:
        await ledger.stop()
        assert (clock.monotonic(), wire.closed, ledger.reads.closed) == (0, True, True)

    play(work, start=False)
