"""A driver's duties, one at a time: on the virtual clock, with a ledger that answers as the test says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from fanout.engine import closing, driver, holding, loading
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.commit import Locked, Result
from fanout.engine.connection import Row
from fanout.engine.driver import (
    BEAT_EVERY,
    FAILED_DRIVER_PAUSE,
    FAILED_LANE_PAUSE,
    GIVE_UP_AFTER,
    LAST_WRITES,
    LOCKED_LANES_FOR,
    LOCKED_RESULTS_FOR,
    RECONNECT_PAUSE,
    REFUSED_LANE_PAUSE,
    STORE_AGAIN_AFTER,
    TAKE_LANES_FOR,
    TICK,
    UNSTORED_LANE_PAUSE,
    WIND_DOWN,
    Driver,
    LockSpaces,
)
from fanout.engine.lane_loop import UNSTORED, Lane, Sleep
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.outbox import Stop
from fanout.lanes import lane_rows
from fanout.lanes.lane_rows import WAKE
from fanout.rules.outcomes import AccountChange
from tests.engine.ledgers import NOW

case = pytest.param

SECOND = timedelta(seconds=1)
SLICE = 40.0
SUSPENDED = AccountChange("suspended", "banned")


class Books:
    """Instead of a ledger: notes what was asked, and answers with rows, an error, or what a function says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {
            holding.BEAT: [{"slot": 0}],
            holding.LOCK_SLOT: [{"slot": 2}],
            holding.SHARE: [{"due": 0, "drivers": 1}],
        }
        self.lost = asyncio.Event()
        self.late: list[Result] = []
        self.late_tries = 0
        self.refuses_late: Exception | None = None
        self.judges_at_once = False  # only results can be written: something that a judgement needs is locked
        self.rows_locked = Locked()
        self.started = self.stopped = self.settles = 0
        self.journal: Any = None
        self.held = False

    async def write(self, statement: str, parameters: Any = None) -> list[Row]:
        self.asked.append((statement, parameters))
        answer = self.answers.get(statement, ANSWERS.get(statement, []))
        answer = answer(parameters) if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        return cast("list[Row]", answer)

    read = write

    async def count_appended(self) -> None:
        pass

    async def write_late(self, results: list[Result], judge: Any = None) -> bool:
        if judge is not None and not self.judges_at_once:
            raise psycopg.errors.LockNotAvailable("a lane is locked")
        self.late_tries += 1
        if self.refuses_late is not None:
            raise self.refuses_late
        self.late += results
        return judge is not None

    async def locked(self) -> Locked:
        return self.rows_locked

    def lane_waits(self, account_id: int) -> bool:
        return account_id in self.rows_locked.lanes

    async def flushed(self) -> None:
        self.settles += 1

    def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.stopped += 1

    def parameters(self, statement: str) -> list[Any]:
        return [parameters for asked, parameters in self.asked if asked == statement]


def left(parameters: Any) -> list[Row]:
    return [{"account_id": account_id, "crashes": 0, "locked": False} for account_id in parameters[0]]


#: where no row is locked
ANSWERS: dict[str, Callable[[Any], list[Row]]] = {
    lane_rows.TAKE_LANES: lambda parameters: [{"account_id": account_id} for account_id in parameters[0]],
    lane_rows.LEAVE_LANES: left,
    lane_rows.GIVE_BACK: lambda parameters: [{"account_id": account_id} for account_id in parameters["accounts"]],
}


class Stages:
    """A driver on a virtual clock, and its books."""

    def __init__(self, clock: VirtualClock, **fields: Any) -> None:
        self.books = Books()
        self.opened: list[float] = []
        self.away_until = 0.0  # the database
        self.clock = clock
        values: dict[str, Any] = {"capacity": 8, "slice_seconds": SLICE} | fields
        self.driver = Driver(clock, self._open, cast("Any", None), **values)
        self.driver.ledger = self.ledger
        self.driver.slice.ends_at = SLICE

    @property
    def ledger(self) -> Ledger:
        return cast("Ledger", self.books)

    async def _open(self, outbox: object) -> Ledger:
        self.opened.append(self.clock.monotonic())
        assert len(self.opened) < 500, "it spins"
        if self.clock.monotonic() < self.away_until:
            raise psycopg.OperationalError("the server is gone")
        return self.ledger


def play(work: Callable[[Stages], Awaitable[None]], **fields: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        await work(Stages(clock, **fields))

    run_virtual(main, NOW)


class FakeLane:
    """A lane as a driver sees it."""

    def __init__(
        self,
        account_id: int,
        *,
        busy: bool = False,
        only_uploads: bool = False,
        slow: bool = False,
        epoch: int = 1,
        wake_count: int = 1,
        owner: int = 1,
    ) -> None:
        self.account_id = account_id
        self.dispatcher = SimpleNamespace(busy=busy or only_uploads, only_uploads=only_uploads, slow=lambda: slow)
        self.account = SimpleNamespace(
            epoch=epoch, wake_count=wake_count, owner_id=owner, written_elsewhere=0, interval=3 * SECOND
        )
        self.stopping = False
        self.reloads = 0
        self.ends: Sleep | BaseException = Sleep(NOW)

    def stop(self) -> None:
        self.stopping = True

    def reload_soon(self) -> None:
        self.reloads += 1

    async def drive(self) -> Sleep:
        if isinstance(self.ends, BaseException):
            raise self.ends
        return self.ends


def lane(account_id: int, **fields: Any) -> Lane:
    return cast("Lane", FakeLane(account_id, **fields))


def held_by(driver: Driver, *lanes: Lane, tasks: bool = True) -> list[asyncio.Task[None]]:
    """The driver has these lanes, and each is under way without an end."""
    for one in lanes:
        driver.lanes[one.account_id] = one
        if tasks:
            driver.tasks[one.account_id] = asyncio.create_task(asyncio.sleep(10_000))
    return list(driver.tasks.values())


async def moment() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def result(target: int, run: int = 1, account: int = 1) -> Result:
    return Result(target, run, account, 1, NOW, "sent", 1, 1, NOW)


def due(*accounts: int, crashes: int = 0, seconds_ago: float = 0) -> list[Row]:
    return [{"account_id": a, "crashes": crashes, "due_at": NOW - seconds_ago * SECOND} for a in accounts]


def accounts(rows: list[Row]) -> list[int]:
    return [row["account_id"] for row in rows]


# --- the connection -----------------------------------------------------------------------------------------


def test_a_driver_that_has_no_slot_lets_go_of_its_connection() -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[holding.LOCK_SLOT] = []
        assert await stage.driver.run() is False
        assert (stage.books.started, stage.books.stopped) == (1, 1)
        assert stage.books.parameters(holding.START_DRIVER) == []

    play(work)


def test_a_driver_begins_in_the_slot_it_has_got() -> None:
    async def work(stage: Stages) -> None:
        stage.driver.slice.handing_over = True
        assert await stage.driver._connect()
        (slots,), (row,) = stage.books.parameters(holding.LOCK_SLOT), stage.books.parameters(holding.START_DRIVER)
        assert slots == {"slots": 3, "space": holding.SLOT_LOCKS, "host": stage.driver.identity.host}
        assert row == {
            "host": stage.driver.identity.host,
            "slot": 2,
            "token": stage.driver.identity.token,
            "pid": os.getpid(),
        }
        assert stage.driver.identity.token.startswith(f"{stage.driver.identity.host}:{os.getpid()}:")
        assert (stage.driver.identity.slot, stage.driver.slice.handing_over, stage.books.stopped) == (2, False, 0)

    play(work, slots=3)


def test_results_of_the_last_connection_are_written_before_the_slot_is_taken() -> None:
    """All of it, also where it is more than goes into one transaction."""

    async def work(stage: Stages) -> None:
        stage.driver.outbox.put([result(n) for n in range(501)])
        stage.books.answers[holding.LOCK_SLOT] = lambda _: [{"slot": 2}] if len(stage.books.late) == 501 else []
        assert await stage.driver._connect()

    play_with_rejudged(work)


def test_a_driver_begins_although_the_database_does_not_take_what_is_late() -> None:
    """Accounts with nothing late need not wait for the others."""

    async def work(stage: Stages) -> None:
        stage.driver.outbox.put([result(1)])
        stage.books.refuses_late = psycopg.errors.ReadOnlySqlTransaction("read-only")
        assert await stage.driver._connect()
        assert (len(stage.driver.outbox), stage.driver.identity.slot) == (1, 2)

    play(work)


def play_with_rejudged(work: Callable[[Stages], Awaitable[None]]) -> list[int]:
    """The runs that were judged again."""
    rejudged: list[int] = []

    async def rejudge(_: Ledger, run_id: int, __: object) -> None:
        rejudged.append(run_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closing, "rejudge", rejudge)
        play(work)
    return rejudged


@pytest.mark.parametrize(("away", "tries"), [(0.0, 1), (0.5, 4)], ids=["there", "away for a moment"])
def test_a_driver_waits_for_the_database(away: float, tries: int) -> None:
    async def work(stage: Stages) -> None:
        stage.away_until = away
        assert await stage.driver._connect()
        assert stage.opened == pytest.approx([n * RECONNECT_PAUSE for n in range(tries)])

    play(work)


def test_a_driver_whose_slice_is_over_waits_for_no_database() -> None:
    async def work(stage: Stages) -> None:
        stage.away_until = 1000.0
        assert not await stage.driver._connect()
        assert stage.clock.monotonic() == pytest.approx(SLICE, abs=RECONNECT_PAUSE)

    play(work)


def test_a_connection_that_ends_while_the_driver_begins_is_let_go() -> None:
    async def work(stage: Stages) -> None:
        errors = iter([psycopg.OperationalError("gone"), [{"slot": 1}]])
        stage.books.answers[holding.LOCK_SLOT] = lambda _: next(errors)
        assert await stage.driver._connect()
        assert (len(stage.opened), stage.books.stopped, stage.driver.identity.slot) == (2, 1, 1)

    play(work)


def test_the_slice_ends_when_its_time_is_over_or_a_stop_is_asked_for() -> None:
    async def work(stage: Stages) -> None:
        assert not stage.driver._over()
        await stage.clock.sleep(SLICE)
        assert stage.driver._over()
        stage.driver.slice.ends_at = 1000.0
        assert not stage.driver._over()
        stage.driver.stop_asked = lambda: True
        assert stage.driver._over()
        stage.driver.stop_asked = lambda: False
        assert stage.driver._over()  # who was asked once, stops

    play(work)


def test_a_slice_always_writes_everything_and_closes_its_transports() -> None:
    async def work(stage: Stages) -> None:
        closed: list[bool] = []

        async def close() -> None:
            closed.append(True)

        stage.driver.transports = cast("Any", SimpleNamespace(close=close))
        stage.driver.outbox.put([result(1)])
        stage.books.answers[holding.LOCK_SLOT] = ValueError("a bug")
        stage.books.rows_locked.runs = {1}
        asyncio.get_running_loop().call_later(2, stage.books.rows_locked.runs.clear)
        with pytest.raises(ValueError, match="a bug"):
            await stage.driver.run()
        assert ([one.target_id for one in stage.books.late], closed) == ([1], [True])

    play_with_rejudged(work)


def test_a_simulation_has_locks_of_its_own() -> None:
    async def work(stage: Stages) -> None:
        stage.driver.share = 1
        assert await stage.driver._connect()
        await stage.driver._take_due(due(1), NOW)
        assert stage.books.parameters(holding.LOCK_SLOT)[0]["space"] == 6
        assert stage.books.parameters(lane_rows.TRY_LANE_LOCKS) == [([1], 5)]

    play(work, spaces=LockSpaces(lanes=5, slots=6))


def test_a_slice_drives_until_its_end_and_hands_over() -> None:
    async def work(stage: Stages) -> None:
        assert await stage.driver.run() is True
        assert stage.clock.monotonic() == pytest.approx(SLICE, abs=1)
        assert stage.books.parameters(holding.END_DRIVER) == [(stage.driver.identity.token,)]
        assert (stage.books.started, stage.books.stopped) == (1, 1)
        beats = len(stage.books.parameters(holding.BEAT))
        assert beats == pytest.approx(SLICE / BEAT_EVERY, abs=2)
        assert stage.driver.ticks == pytest.approx(SLICE / driver.TICK, abs=2)

    play(work)


def test_a_driver_that_fails_rests_and_then_hands_over() -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[lane_rows.DUE_LANES] = ValueError("a bug")
        await stage.driver._drive()
        assert stage.clock.monotonic() == FAILED_DRIVER_PAUSE
        assert stage.books.parameters(holding.END_DRIVER) == [(stage.driver.identity.token,)]
        assert (stage.driver.slice.handing_over, stage.books.stopped) == (True, 1)

    play(work)


def test_calls_finish_despite_errors_in_handing_over() -> None:
    async def work(stage: Stages) -> None:
        for error in (LedgerLost(), ValueError("a bug")):
            (task,) = held_by(stage.driver, lane(1))
            stage.books.answers[holding.BEAT] = error
            stage.driver.timers.beaten = float("-inf")
            await stage.driver._hand_over()
            assert (task in stage.driver.unfinished, task.cancelling(), stage.driver.tasks) == (True, 0, {})
        assert stage.books.stopped == 2

    play(work)


def test_handing_over_stops_every_lane() -> None:
    async def work(stage: Stages) -> None:
        both = [lane(1), lane(2)]
        held_by(stage.driver, *both, tasks=False)
        await stage.driver._hand_over()
        assert [one.stopping for one in both] == [True, True]
        assert (stage.driver.lanes, stage.books.stopped) == ({}, 1)

    play(work)


def test_after_a_lost_connection_only_uploads_are_ended() -> None:
    async def work(stage: Stages) -> None:
        one, other = lane(1, busy=True), lane(2, only_uploads=True)
        sending, uploading = held_by(stage.driver, one, other)
        gone = stage.driver.tasks[3] = asyncio.create_task(asyncio.sleep(5))  # its lane was dropped already
        stage.driver.leaving.append((one, Sleep(NOW), None))
        stage.driver._leave_unfinished()
        assert [task.cancelling() for task in (sending, uploading, gone)] == [0, 1, 0]
        assert (stage.driver.tasks, stage.driver.lanes, stage.driver.leaving) == ({}, {}, [])
        assert stage.driver.unfinished == {sending: 1, uploading: 2, gone: 3}
        await moment()
        assert stage.driver.unfinished == {sending: 1, gone: 3}  # what has ended is waited for no more
        await stage.clock.sleep(6)
        assert stage.driver.unfinished == {sending: 1}

    play(work)


def test_a_slice_ends_when_what_has_to_land_has_landed() -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[holding.LOCK_SLOT] = []
        stage.driver.unfinished = {asyncio.create_task(asyncio.sleep(5)): 1, asyncio.create_task(asyncio.sleep(9)): 2}
        await stage.driver.run()
        assert stage.clock.monotonic() == 9
        stage.driver.unfinished = {asyncio.create_task(asyncio.sleep(10_000)): 1}
        await stage.driver.run()
        assert stage.clock.monotonic() == 9 + GIVE_UP_AFTER

    play(work)


# --- what could not be written --------------------------------------------------------------------------------


def test_an_empty_outbox_needs_no_connection() -> None:
    async def work(stage: Stages) -> None:
        await stage.driver._empty_outbox()
        assert stage.opened == []

    play(work)


def test_the_last_results_are_written_when_the_database_is_back() -> None:
    async def work(stage: Stages) -> None:
        stage.away_until = 3.0
        stage.driver.outbox.put([result(n) for n in range(501)])
        await stage.driver._empty_outbox()
        assert (len(stage.books.late), len(stage.driver.outbox)) == (501, 0)
        assert (stage.books.started, stage.books.stopped) == (1, 1)
        assert stage.clock.monotonic() == pytest.approx(3.0, abs=RECONNECT_PAUSE)
        assert len(stage.opened) == pytest.approx(3.0 / RECONNECT_PAUSE + 1, abs=1)

    assert play_with_rejudged(work) == [1, 1]


def test_a_write_that_succeeds_in_the_last_try_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def work(stage: Stages) -> None:
        stage.away_until = LAST_WRITES
        stage.driver.outbox.put([result(1)])
        await stage.driver._empty_outbox()
        assert len(stage.driver.outbox) == 0

    play_with_rejudged(work)
    assert "could not be stored" not in caplog.text


def test_a_database_that_stays_away_is_waited_for_only_so_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(stage: Stages) -> None:
        stage.away_until = 1000.0
        stage.driver.outbox.put([result(1)])
        await stage.driver._empty_outbox()
        assert len(stage.driver.outbox) == 1
        assert stage.opened == [float(second) for second in range(int(LAST_WRITES) + 1)]

    monkeypatch.setattr(driver, "RECONNECT_PAUSE", 1.0)
    play(work)
    assert "could not be stored" in caplog.text


@pytest.mark.parametrize(
    ("stopping", "takes"),
    [case(True, LAST_WRITES, id="a stop"), case(False, LOCKED_RESULTS_FOR, id="the end of a slice")],
)
def test_results_of_a_locked_run_are_tried_with_pauses(stopping: bool, takes: float) -> None:
    """At the end of a slice they are left to the next one of this process: its lanes must not wait for a lock."""

    async def work(stage: Stages) -> None:
        stage.books.rows_locked.runs = {1}
        stage.driver.stopping = stopping
        stage.driver.outbox.put([result(1)])
        await stage.driver._empty_outbox()
        assert (len(stage.driver.outbox), stage.books.late) == (1, [])
        assert stage.clock.monotonic() == pytest.approx(takes, abs=RECONNECT_PAUSE)
        assert stage.books.stopped == len(stage.opened)

    play(work)


def test_late_results_judge_their_runs_again_and_wake_their_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Stop] = []

    async def stop_account(_: Ledger, stop: Stop) -> None:
        stopped.append(stop)

    async def work(stage: Stages) -> None:
        stage.books.rows_locked.runs = {9}
        stage.driver.outbox.put([result(1, run=5, account=7), result(2, run=4, account=7), result(3, run=9)])
        stage.driver.outbox.put([result(4, run=5, account=8)])
        stage.driver.outbox.put_stop(Stop(3, SUSPENDED, NOW))
        written = await stage.driver._write_late()
        assert [one.target_id for one in written] == [1, 2, 4]
        (_, (_, woken)) = stage.books.asked  # after those that are locked
        assert sorted(next(value for value in woken.values() if isinstance(value, list))) == [3, 7, 8]
        assert [stop.account_id for stop in stopped] == [3]
        stage.books.asked.clear()
        assert await stage.driver._write_late() == []
        assert stage.books.asked == []

    monkeypatch.setattr(closing, "stop_account", stop_account)
    assert play_with_rejudged(work) == [4, 5]


def test_runs_that_were_judged_with_their_late_results_are_not_judged_twice() -> None:
    async def work(stage: Stages) -> None:
        stage.books.judges_at_once = True
        stage.driver.outbox.put([result(1, run=5, account=7)])
        assert [one.target_id for one in await stage.driver._write_late()] == [1]
        assert (stage.books.asked, bool(stage.driver.outbox)) == ([], False)

    assert play_with_rejudged(work) == []


# --- the end of a slice ---------------------------------------------------------------------------------------


def test_only_lanes_whose_provider_is_slow_stop_first() -> None:
    async def work(stage: Stages) -> None:
        slow, quick = lane(1, slow=True), lane(2)
        held_by(stage.driver, slow, quick)
        asyncio.get_running_loop().call_later(3, stage.driver.lanes.pop, 1)
        await stage.driver._wind_down()
        assert (slow.stopping, quick.stopping) == (True, False)
        assert stage.clock.monotonic() == pytest.approx(3, abs=0.5)
        assert stage.driver.ticks > 5  # the others go on meanwhile

    play(work)


@pytest.mark.parametrize(("asked", "until"), [(False, WIND_DOWN), (True, 0.0)], ids=["too long", "asked to stop"])
def test_winding_down_has_an_end(asked: bool, until: float) -> None:
    async def work(stage: Stages) -> None:
        held_by(stage.driver, lane(1, slow=True))
        stage.driver.stopping = asked
        await stage.driver._wind_down()
        assert stage.clock.monotonic() == pytest.approx(until, abs=0.5)

    play(work)


def test_without_slow_lanes_there_is_nothing_to_wind_down() -> None:
    async def work(stage: Stages) -> None:
        held_by(stage.driver, lane(1))
        await stage.driver._wind_down()
        assert (stage.clock.monotonic(), stage.driver.ticks) == (0, 0)

    play(work)


@pytest.mark.parametrize(
    ("fields", "stopping", "given_up_after", "failed"),
    [
        case({}, False, GIVE_UP_AFTER, True, id="nothing-of-it-is-under-way"),
        case({"busy": True}, False, SLICE + WIND_DOWN + GIVE_UP_AFTER, True, id="a-call-is-under-way"),
        case({"busy": True}, True, GIVE_UP_AFTER, True, id="a-call-is-under-way-and-somebody-waits"),
        case({"only_uploads": True}, False, SLICE + WIND_DOWN + GIVE_UP_AFTER, True, id="an-upload"),
        case({"only_uploads": True}, True, 0.0, False, id="an-upload-and-somebody-waits"),
    ],
)
def test_a_lane_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, bool], stopping: bool, given_up_after: float, failed: bool
) -> None:
    failures: list[int] = []

    async def lane_failed(_: Ledger, account_id: int, *__: object) -> None:
        failures.append(account_id)

    async def work(stage: Stages) -> None:
        stage.driver.stopping = stopping
        (task,) = held_by(stage.driver, lane(5, **fields))
        await stage.driver._until_lanes_ended()
        assert stage.clock.monotonic() == pytest.approx(given_up_after, abs=0.6)
        await moment()
        assert task.cancelled()
        ((_, _, _, (until,), _, (counts,), *_),) = stage.books.parameters(lane_rows.LEAVE_LANES)
        pause = until - stage.clock.now()
        assert (counts, pause) == (failed, pytest.approx((FAILED_LANE_PAUSE if failed else 0 * SECOND), abs=SECOND))
        assert (stage.driver.tasks, stage.driver.lanes) == ({}, {})

    monkeypatch.setattr(holding, "lane_failed", lane_failed)
    play(work)
    assert failures == [5] * failed


def test_lanes_that_the_database_does_not_take_back_are_left_with_the_connection() -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[lane_rows.LEAVE_LANES] = psycopg.errors.LockNotAvailable("locked")
        stage.driver.leaving.append((lane(1), Sleep(NOW), None))
        await stage.driver._until_lanes_ended()
        assert stage.clock.monotonic() == pytest.approx(GIVE_UP_AFTER, abs=0.6)

    play(work)


def test_a_slice_does_not_wait_long_for_lanes_that_another_session_has_locked() -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[lane_rows.LEAVE_LANES] = [{"account_id": 1, "crashes": 0, "locked": True}]
        stage.driver.leaving.append((lane(1), Sleep(NOW), None))
        await stage.driver._until_lanes_ended()
        assert stage.clock.monotonic() == pytest.approx(LOCKED_LANES_FOR, abs=0.6)

    play(work)


def test_lanes_of_a_lost_connection_are_not_waited_for() -> None:
    async def work(stage: Stages) -> None:
        held_by(stage.driver, lane(1, busy=True))
        asyncio.get_running_loop().call_later(2, stage.books.lost.set)
        await stage.driver._until_lanes_ended()
        assert stage.clock.monotonic() == pytest.approx(2, abs=0.5)
        assert list(stage.driver.tasks) == [1]

    play(work)


def test_a_lane_that_ends_is_given_back_before_the_others_have() -> None:
    async def work(stage: Stages) -> None:
        other = stage.driver.lanes[2] = lane(2)
        held_by(stage.driver, lane(1, busy=True))
        stage.driver.leaving.append((other, Sleep(NOW), None))
        asyncio.get_running_loop().call_later(4, stage.driver.tasks.pop, 1)
        await stage.driver._until_lanes_ended()
        (left,) = stage.books.parameters(lane_rows.LEAVE_LANES)
        assert left[0] == [2]
        assert stage.clock.monotonic() == pytest.approx(4, abs=0.5)

    play(work)


# --- one tick -------------------------------------------------------------------------------------------------


def test_a_duty_refused_for_the_moment_holds_up_no_other() -> None:
    async def work(stage: Stages) -> None:
        stage.driver.lanes[1] = lane(1)
        for statement in (holding.BEAT, holding.FREE_STUCK, lane_rows.LEAVE_LANES, lane_rows.CHANGED_LANES):
            stage.books.answers[statement] = psycopg.errors.DeadlockDetected("a circle")
        stage.driver.leaving.append((lane(2), Sleep(NOW), None))
        await stage.driver.tick()
        assert {
            holding.BEAT,
            holding.FREE_STUCK,
            lane_rows.LEAVE_LANES,
            lane_rows.CHANGED_LANES,
            lane_rows.DUE_LANES,
        } <= {s for s, _ in stage.books.asked}
        assert (stage.driver.ticks, len(stage.driver.leaving)) == (1, 1)

    play(work)


@pytest.mark.parametrize("error", [psycopg.errors.DiskFull("full"), psycopg.errors.ReadOnlySqlTransaction("no")])
def test_refused_results_are_tried_once_a_second(error: psycopg.Error) -> None:
    async def work(stage: Stages) -> None:
        stage.driver.outbox.put([result(1, run=5)])
        stage.books.refuses_late = error
        for _ in range(12):
            await stage.driver.tick()
            await stage.clock.sleep(TICK)
        assert 3 <= stage.books.late_tries <= 4
        stage.books.refuses_late = None
        await stage.clock.sleep(STORE_AGAIN_AFTER)
        for _ in range(2):
            await stage.driver.tick()
        assert ([one.target_id for one in stage.books.late], bool(stage.driver.outbox)) == ([1], False)
        stage.driver.outbox.put([result(2, run=6)])
        await stage.driver.tick()  # without a pause: the last try went well
        assert [one.target_id for one in stage.books.late] == [1, 2]

    assert play_with_rejudged(work) == [5, 6]


def test_a_run_that_could_not_be_judged_is_judged_at_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    async def rejudge(_: Ledger, run_id: int, __: object) -> None:
        judged.append(run_id)
        if judged == [5, 6]:
            raise psycopg.errors.DiskFull("full")

    async def work(stage: Stages) -> None:
        stage.driver.outbox.put([result(1, run=5, account=1), result(2, run=6, account=2)])
        with pytest.raises(psycopg.errors.DiskFull):
            await stage.driver._write_late()
        assert (len(stage.driver.outbox), bool(stage.driver.outbox)) == (0, True)
        await stage.driver._write_late()
        assert judged == [5, 6, 6]
        (woken,) = stage.books.parameters(WAKE)
        assert (woken["accounts"], bool(stage.driver.outbox)) == ([1, 2], False)

    monkeypatch.setattr(closing, "rejudge", rejudge)
    play(work)


def test_a_tick_ends_at_once_when_the_connection_is_lost() -> None:
    async def work(stage: Stages) -> None:
        await stage.driver._tick_pause()
        assert stage.clock.monotonic() == driver.TICK
        stage.books.lost.set()
        await stage.driver._tick_pause()
        assert stage.clock.monotonic() == driver.TICK

    play(work)


@pytest.mark.parametrize(("rows", "stopping"), [([{"slot": 0}], False), ([], True)], ids=["ours", "another's by now"])
def test_a_driver_without_its_slot_stops(rows: list[Row], stopping: bool) -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[holding.BEAT] = rows
        held_by(stage.driver, lane(1), lane(2))
        await stage.driver._beat()
        assert stage.driver.stopping is stopping
        assert stage.books.parameters(holding.BEAT) == [(2, stage.driver.identity.token)]

    play(work)


def test_a_driver_beats_once_a_second_and_while_it_waits_for_an_answer() -> None:
    async def work(stage: Stages) -> None:
        for _ in range(8):
            await stage.driver._tend()
            await stage.clock.sleep(0.25)
        assert len(stage.books.parameters(holding.BEAT)) == len(stage.books.parameters(holding.FREE_STUCK)) == 2

        async def answer() -> str:
            await asyncio.sleep(3.5)
            return "the answer"

        assert await stage.driver._beating(answer()) == "the answer"
        assert len(stage.books.parameters(holding.BEAT)) == 2 + 3

    play(work)


@pytest.mark.parametrize(
    ("due", "drivers", "share"), [(10, 2, 5), (11, 2, 6), (3, 0, 3), (0, 1, 0)], ids=["even", "odd", "alone", "none"]
)
def test_lanes_are_shared_among_the_drivers(due: int, drivers: int, share: int) -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[holding.SHARE] = [{"due": due, "drivers": drivers}]
        await stage.driver._look_around()
        assert stage.driver.share == share
        (asked,) = stage.books.parameters(holding.SHARE)
        assert asked == {
            "now": NOW + driver.AHEAD,
            "silent_after": stage.driver.options.silent_after,
            "successor_within": driver.SUCCESSOR_WITHIN,
        }
        assert stage.books.parameters(holding.FREE_STUCK) == [
            {"silent_after": stage.driver.options.silent_after, "mine": stage.driver.identity.token}
        ]

    play(work)


@pytest.mark.parametrize("handing_over", [False, True])
def test_orphans_are_taken_as_far_as_there_is_room(handing_over: bool) -> None:
    async def work(stage: Stages) -> None:
        stage.books.answers[holding.SHARE] = [{"due": 9, "drivers": 1}]
        stage.books.answers[holding.ORPHANED_LANES] = due(4)
        stage.driver.slice.handing_over = handing_over
        held_by(stage.driver, lane(1), lane(2))
        await stage.driver._look_around()
        asked = stage.books.parameters(holding.ORPHANED_LANES)
        assert [(one["limit"], one["now"], one["token"]) for one in asked] == (
            [] if handing_over else [(6, NOW, stage.driver.identity.token)]
        )
        assert stage.books.parameters(lane_rows.TRY_LANE_LOCKS) == ([] if handing_over else [([4], holding.LANE_LOCKS)])

    play(work)


def test_lanes_are_told_what_changed() -> None:
    async def work(stage: Stages) -> None:
        await stage.driver._notice()
        assert stage.books.asked == []  # there is no lane to be told
        same, woken, taken = lane(1), lane(2), lane(3)
        held_by(stage.driver, same, woken, taken, tasks=False)
        stage.books.answers[lane_rows.CHANGED_LANES] = [
            {"account_id": 1, "epoch": 1, "wake_count": 1},
            {"account_id": 2, "epoch": 1, "wake_count": 2},
            {"account_id": 3, "epoch": 2, "wake_count": 2},
            {"account_id": 9, "epoch": 2, "wake_count": 2},  # left meanwhile
        ]
        await stage.driver._notice()
        told = [(one.stopping, cast("Any", one).reloads) for one in (same, woken, taken)]
        assert told == [(False, 0), (False, 1), (True, 0)]
        assert stage.books.parameters(lane_rows.CHANGED_LANES) == [["{1,2,3}", "{1,1,1}", "{1,1,1}"]]

    play(work)


@pytest.mark.parametrize(("have", "room"), [(0, 8), (7, 1), (8, 0), (9, 0)])
def test_a_driver_has_room_for_so_many_lanes(have: int, room: int) -> None:
    async def work(stage: Stages) -> None:
        held_by(stage.driver, *map(lane, range(have)), tasks=False)
        assert stage.driver._room() == room
        await stage.driver._take()
        assert [one["limit"] for one in stage.books.parameters(lane_rows.DUE_LANES)] == ([room] if room else [])

    play(work)


@pytest.mark.parametrize(
    ("at", "fields", "takes"),
    [
        case(0.0, {}, True, id="in-its-slice"),
        case(SLICE + TAKE_LANES_FOR - 0.1, {}, True, id="while-it-winds-down"),
        case(SLICE + TAKE_LANES_FOR, {}, False, id="what-is-taken-could-not-end"),
        case(0.0, {"handing_over": True}, False, id="it-hands-over"),
        case(0.0, {"stopping": True}, False, id="it-must-stop"),
    ],
)
def test_until_when_a_driver_takes_lanes(at: float, fields: dict[str, bool], takes: bool) -> None:
    async def work(stage: Stages) -> None:
        await stage.clock.sleep(at)
        stage.driver.slice.handing_over = fields.get("handing_over", False)
        stage.driver.stopping = fields.get("stopping", False)
        assert stage.driver._takes_lanes() is takes
        await stage.driver._take()
        assert [one["now"] - stage.clock.now() for one in stage.books.parameters(lane_rows.DUE_LANES)] == [
            driver.AHEAD
        ] * takes

    play(work)


@pytest.mark.parametrize(
    ("now_due", "soon_due", "have", "places"),
    [
        case(0, 8, 0, 4, id="half-of-the-places-stay-free"),
        case(3, 5, 0, 4, id="what-is-due-has-taken-of-the-other-half"),
        case(6, 2, 0, 6, id="what-is-due-has-them-all"),
        case(0, 8, 5, 0, id="no-place-for-what-is-not-due"),
        case(2, 1, 5, 2, id="only-what-is-due"),
    ],
)
def test_lanes_ahead_of_their_time_keep_no_place_from_those_that_are_due(
    now_due: int, soon_due: int, have: int, places: int
) -> None:
    async def work(stage: Stages) -> None:
        held_by(stage.driver, *map(lane, range(100, 100 + have)), tasks=False)
        rows = due(*range(now_due)) + due(*range(now_due, now_due + soon_due), seconds_ago=-1)
        assert accounts(stage.driver._within_room(rows, NOW)) == [*range(places)]

    play(work)


@pytest.mark.parametrize(
    ("share", "have", "seconds_ago", "taken"),
    [
        case(2, 0, 0, [1, 2], id="our-share"),
        case(2, 1, 0, [1], id="what-we-have-counts"),
        case(2, 2, 0, [], id="we-have-it"),
        case(2, 2, 3, [], id="the-others-have-a-moment"),
        case(2, 2, 3.1, [1, 2, 3], id="left-over"),
    ],
)
def test_beyond_its_share_a_driver_takes_only_lanes_left_over(
    share: int, have: int, seconds_ago: float, taken: list[int]
) -> None:
    async def work(stage: Stages) -> None:
        stage.driver.share = share
        held_by(stage.driver, *map(lane, range(100, 100 + have)), tasks=False)
        assert accounts(stage.driver._fair_share(due(1, 2, 3, seconds_ago=seconds_ago), NOW)) == taken

    play(work)


@pytest.mark.parametrize(
    ("suspects", "taken"),
    [(0, [9]), (1, [1, 9]), (2, [1, 9]), (3, [1, 9]), (4, [1, 2, 9]), (5, [1, 2, 9])],
)
def test_half_of_the_suspects_are_taken(suspects: int, taken: list[int]) -> None:
    async def work(stage: Stages) -> None:
        rows = due(*range(1, suspects + 1), crashes=2) + due(9, crashes=1)
        assert stage.driver._without_most_suspects(rows) == taken

    play(work)


def test_lanes_that_are_ours_or_were_just_given_back_are_not_taken() -> None:
    async def work(stage: Stages) -> None:
        stage.driver.share = 8
        stage.driver.slice.wound_down = {2}
        held_by(stage.driver, lane(3), tasks=False)
        await stage.driver._take_due(due(1, 2, 3, 4), NOW)
        assert stage.books.parameters(lane_rows.TRY_LANE_LOCKS) == [([1, 4], holding.LANE_LOCKS)]

    play(work)


def test_many_lanes_are_taken_in_parts_with_a_beat_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []

    async def take_over(self: Driver, locked: list[int], now: object) -> None:
        taken.append(locked)
        self.stopping = len(taken) == 2

    async def work(stage: Stages) -> None:
        stage.driver.share = 100
        stage.books.answers[lane_rows.TRY_LANE_LOCKS] = lambda asked: [
            {"id": account} for account in asked[0] if account != 1
        ]
        await stage.driver._take_due(due(*range(7)), NOW)
        assert taken == [[0, 2], [3, 4, 5]]  # another driver has 1, and the last would be taken by one that stops
        assert len(stage.books.parameters(holding.BEAT)) == 2

    monkeypatch.setattr(driver, "TAKEN_AT_ONCE", 3)
    monkeypatch.setattr(Driver, "_take_over", take_over)
    play(work)


def test_no_lane_is_taken_of_which_something_is_not_stored_or_under_way() -> None:
    async def work(stage: Stages) -> None:
        stage.driver.share = 100
        stage.driver.outbox.put([result(1, account=1)])
        stage.driver.outbox.put_stop(Stop(2, AccountChange("suspended", "banned"), NOW))
        calling = asyncio.create_task(asyncio.sleep(5))
        stage.driver.unfinished[calling] = 3
        stage.driver.lanes[4] = lane(4)
        stage.driver.slice.wound_down.add(5)
        await stage.driver._take_due(due(1, 2, 3, 4, 5, 6), NOW)
        assert stage.books.parameters(lane_rows.TRY_LANE_LOCKS) == [([6], holding.LANE_LOCKS)]
        calling.cancel()

    play(work)


def test_where_every_lane_is_locked_nothing_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take_over(self: Driver, locked: list[int], now: object) -> None:
        raise AssertionError(locked)

    async def work(stage: Stages) -> None:
        stage.driver.share = 100
        await stage.driver._take_due(due(1), NOW)
        assert stage.books.parameters(lane_rows.TRY_LANE_LOCKS) == [([1], holding.LANE_LOCKS)]

    monkeypatch.setattr(Driver, "_take_over", take_over)
    play(work)


@pytest.mark.parametrize(
    ("behind", "given_back", "tries"),
    [
        case([2], [[2]], [[1, 2, 3], [1, 3]], id="those-behind-a-lock"),
        case([1, 2, 3], [[1, 2, 3]], [[1, 2, 3]], id="all-of-them"),
        case([], [[1, 2, 3]], [[1, 2, 3]], id="unknown-which"),
    ],
)
def test_lanes_that_cannot_be_taken_over_are_given_back(
    monkeypatch: pytest.MonkeyPatch, behind: list[int], given_back: list[list[int]], tries: list[list[int]]
) -> None:
    tried: list[list[int]] = []

    async def take_over(self: Driver, locked: list[int], now: object) -> None:
        tried.append(locked)
        if len(tried) == 1:
            raise psycopg.errors.LockNotAvailable("a row is locked")

    async def work(stage: Stages) -> None:
        stage.books.answers[holding.BEHIND_LOCKED_ROWS] = [{"account_id": account} for account in behind]
        await stage.driver._take_over_or_give_back([1, 2, 3], NOW)
        token = stage.driver.identity.token
        why = "the database refused: a row is locked"
        asked = [given(NOW + REFUSED_LANE_PAUSE, why, accounts, token) for accounts in given_back]
        assert stage.books.parameters(lane_rows.GIVE_BACK) == asked
        assert stage.books.parameters(lane_rows.GIVE_LANE_LOCKS_BACK) == [(holding.LANE_LOCKS, a) for a in given_back]

    monkeypatch.setattr(Driver, "_take_over", take_over)
    play(work)
    assert tried == tries


def given(until: datetime, why: str, ids: list[int], token: str) -> dict[str, Any]:
    return {"accounts": ids, "until": [until] * len(ids), "why": [why] * len(ids), "token": token}


@pytest.mark.parametrize("refusal", [psycopg.errors.DiskFull("full"), []], ids=["a full disk", "a locked lane"])
def test_a_lane_that_the_database_does_not_take_back_is_kept_until_it_does(
    monkeypatch: pytest.MonkeyPatch, refusal: Any
) -> None:
    """Its row names this driver, so that no other one would take it."""

    async def take_over(self: Driver, locked: list[int], now: object) -> None:
        raise psycopg.errors.DiskFull("full")

    async def work(stage: Stages) -> None:
        stage.books.answers[lane_rows.GIVE_BACK] = refusal
        with suppress(psycopg.errors.DiskFull):
            await stage.driver._take_over_or_give_back([1], NOW)
        assert [1] not in [ids for _, ids in stage.books.parameters(lane_rows.GIVE_LANE_LOCKS_BACK)]
        assert not stage.driver._may_take(1)  # the same session would get its lock a second time
        del stage.books.answers[lane_rows.GIVE_BACK]
        await stage.driver.tick()
        assert (holding.LANE_LOCKS, [1]) in stage.books.parameters(lane_rows.GIVE_LANE_LOCKS_BACK)
        assert stage.driver._may_take(1)

    monkeypatch.setattr(Driver, "_take_over", take_over)
    play(work)


# --- taking over ----------------------------------------------------------------------------------------------


class Loads:
    """Instead of reading accounts. `unreadable`: accounts that cannot be read."""

    def __init__(self, unreadable: set[int] | None = None, error: Exception | None = None) -> None:
        self.unreadable = unreadable or set()
        self.error = error or ValueError("garbage")
        self.asked: list[list[int]] = []

    async def __call__(self, _: Ledger, wanted: list[int], now: object) -> dict[int, Any]:
        self.asked.append(wanted)
        if self.unreadable & set(wanted):
            raise self.error
        return {one: load_of(one) for one in wanted}


def load_of(account_id: int, epoch: int = 1) -> Any:
    account = SimpleNamespace(config=SimpleNamespace(id=account_id), epoch=epoch, sample="", outage="")
    return SimpleNamespace(account=account, runs=[], handles={})


class Ready:
    """Instead of transports: those of even accounts recognise repeats."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def __getitem__(self, account_id: int) -> Any:
        return SimpleNamespace(recognises_repeats=account_id % 2 == 0)

    async def make_ready(self, account_id: int, config: Any) -> None:
        self.made.append((account_id, config.id))


def test_one_unreadable_account_stops_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stage: Stages) -> None:
        loads, ready = Loads({2}), Ready()
        monkeypatch.setattr(loading, "load", loads)
        stage.driver.transports = cast("Any", ready)
        stage.books.answers[lane_rows.LEAVE_UNREAD] = [{"crashes": 1}]
        assert list(await stage.driver._load([1, 2, 3], NOW)) == [1, 3]
        assert loads.asked == [[1, 2, 3], [1], [2], [3]]
        assert ready.made == [(1, 1), (3, 3)]
        assert stage.books.parameters(lane_rows.LEAVE_UNREAD) == [{"account": 2, "until": NOW + FAILED_LANE_PAUSE}]
        assert stage.books.parameters(lane_rows.GIVE_LANE_LOCKS_BACK) == [(holding.LANE_LOCKS, [2])]

    play(work)


@pytest.mark.parametrize("error", [LedgerLost(), psycopg.OperationalError("busy")], ids=["lost", "busy"])
@pytest.mark.parametrize("first", [True, False], ids=["at once", "one by one"])
def test_trouble_of_the_database_is_no_fault_of_an_account(
    monkeypatch: pytest.MonkeyPatch, error: Exception, first: bool
) -> None:
    async def work(stage: Stages) -> None:
        loads = Loads({2}, error if first else None)

        async def load(ledger: Ledger, wanted: list[int], now: object) -> dict[int, Any]:
            if len(loads.asked) == 1:
                loads.error = error
            return await loads(ledger, wanted, now)

        monkeypatch.setattr(loading, "load", load)
        stage.driver.transports = cast("Any", Ready())
        with pytest.raises(type(error)):
            await stage.driver._load([2], NOW)
        assert stage.books.parameters(lane_rows.LEAVE_UNREAD) == []

    play(work)


@pytest.mark.parametrize(("crashes", "abandoned"), [(4, []), (5, [6])], ids=["the fourth time", "the fifth time"])
def test_an_account_that_stays_unreadable_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, crashes: int, abandoned: list[int]
) -> None:
    received: list[tuple[str, int]] = []

    async def lane_failed(_: Ledger, account_id: int, count: int, *__: object) -> None:
        received.append(("failed", count))

    async def abandon(_: Ledger, account_id: int, why: str, now: object) -> None:
        received.append((why, account_id))

    async def work(stage: Stages) -> None:
        stage.books.answers[lane_rows.LEAVE_UNREAD] = [{"crashes": crashes}]
        await stage.driver._leave_unread(6, ValueError("garbage"), NOW)
        assert stage.books.parameters(lane_rows.NOTHING_DUE) == [(account,) for account in abandoned]
        assert stage.books.parameters(lane_rows.GIVE_LANE_LOCKS_BACK) == [(holding.LANE_LOCKS, [6])]

    monkeypatch.setattr(holding, "lane_failed", lane_failed)
    monkeypatch.setattr(closing, "abandon", abandon)
    play(work)
    assert received == [("failed", crashes), *(("garbage", account) for account in abandoned)]


@pytest.mark.parametrize("left", [0, 2], ids=["nothing in flight", "something in flight"])
def test_lanes_are_taken_over_in_order(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    order: list[Any] = []
    loads = Loads()

    async def settle_crashes(_: Ledger, taken: list[int], token: str, now: object) -> list[int]:
        order.append(("crashes", taken, token))
        return []

    async def settle_in_flight(_: Ledger, taken: list[int], repeatable: list[int]) -> holding.Rescued:
        order.append(("in flight", taken, repeatable))
        return holding.Rescued(left)

    async def drive_lane(self: Driver, one: Lane) -> None:
        order.append(("drives", one.account_id))

    async def work(stage: Stages) -> None:
        stage.driver.transports = cast("Any", Ready())
        await stage.driver._take_over([1, 2], NOW)
        assert stage.books.parameters(lane_rows.TAKE_LANES) == [([1, 2], stage.driver.identity.token)]
        assert list(stage.driver.lanes) == list(stage.driver.tasks) == [1, 2]
        await moment()
        assert order == [
            ("crashes", [1, 2], stage.driver.identity.token),
            ("in flight", [1, 2], [2]),
            ("drives", 1),
            ("drives", 2),
        ]
        assert loads.asked == [[1, 2]] * (2 if left else 1)  # caps count what was in flight

    monkeypatch.setattr(loading, "load", loads)
    monkeypatch.setattr(holding, "settle_crashes", settle_crashes)
    monkeypatch.setattr(holding, "settle_in_flight", settle_in_flight)
    monkeypatch.setattr(Driver, "_drive_lane", drive_lane)
    play(work)


@pytest.mark.parametrize("targets", [0, 2], ids=["nothing settled", "something settled"])
def test_lanes_whose_results_could_not_be_stored_wait_after_a_takeover(
    monkeypatch: pytest.MonkeyPatch, targets: int
) -> None:
    async def settle_in_flight(_: Ledger, taken: list[int], repeatable: list[int]) -> holding.Rescued:
        return holding.Rescued(targets, frozenset({2}))

    async def drive_lane(self: Driver, one: Lane) -> None:
        pass

    async def work(stage: Stages) -> None:
        stage.driver.transports = cast("Any", Ready())
        await stage.driver._take_over([1, 2], NOW)
        assert list(stage.driver.lanes) == [1]
        token = stage.driver.identity.token
        given_back = given(NOW + UNSTORED_LANE_PAUSE, "the database does not take results", [2], token)
        assert stage.books.parameters(lane_rows.GIVE_BACK) == [given_back]
        assert stage.books.parameters(lane_rows.GIVE_LANE_LOCKS_BACK) == [(holding.LANE_LOCKS, [2])]

    monkeypatch.setattr(loading, "load", Loads())
    monkeypatch.setattr(holding, "settle_in_flight", settle_in_flight)
    monkeypatch.setattr(Driver, "_drive_lane", drive_lane)
    play(work)


def test_the_same_seed_draws_the_same_gaps_and_no_two_lanes_do() -> None:
    async def work(stage: Stages) -> None:
        stage.driver.transports = cast("Any", Ready())

        def drawn(seed: int | None, account_id: int, epoch: int) -> float:
            stage.driver.options = replace(stage.driver.options, seed=seed)
            made = stage.driver._lane(account_id, load_of(account_id, epoch))
            assert made.dispatcher.uploads.slice_ends_at == SLICE
            return made.dispatcher.rng.random()

        assert drawn(1, 5, 3) == drawn(1, 5, 3)
        assert len({drawn(1, 5, 3), drawn(2, 5, 3), drawn(1, 6, 3), drawn(1, 5, 4), drawn(0, 5, 3)}) == 5
        assert drawn(None, 5, 3) != drawn(None, 5, 3)

    play(work)


# --- one lane -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "why", "pause", "failed"),
    [
        case(Sleep(NOW + 60 * SECOND, "pace"), "pace", 60 * SECOND, False, id="it-parks"),
        case(psycopg.OperationalError("busy\nHINT"), "the database refused: busy", FAILED_LANE_PAUSE, False, id="busy"),
        case(
            psycopg.InternalError("read-only"), "the database refused: read-only", FAILED_LANE_PAUSE, False, id="never"
        ),
        case(ValueError("a bug"), "failed: a bug", FAILED_LANE_PAUSE, True, id="it-failed"),
    ],
)
def test_a_lane_that_ended_is_left_with_the_reason(
    ends: Sleep | BaseException, why: str, pause: timedelta, failed: bool
) -> None:
    async def work(stage: Stages) -> None:
        one = lane(1)
        cast("Any", one).ends = ends
        stage.driver.lanes[1] = one
        task = stage.driver.tasks[1] = asyncio.create_task(stage.driver._drive_lane(one))
        await task
        ((left, sleep, failure),) = stage.driver.leaving
        assert (left, sleep.why, sleep.until) == (one, why, NOW + pause)
        assert (failure is not None) is failed
        assert (stage.driver.tasks, stage.driver.lanes) == ({}, {1: one})

    play(work)


@pytest.mark.parametrize(
    ("until", "due", "why"),
    [
        case(None, UNSTORED_LANE_PAUSE, UNSTORED, id="nothing-to-do"),
        case(60 * SECOND, UNSTORED_LANE_PAUSE, UNSTORED, id="parked"),
        case(SECOND, SECOND, "pace", id="due-sooner"),
    ],
)
@pytest.mark.parametrize("stored", [False, True], ids=["its results wait here", "all is stored"])
def test_a_lane_with_results_that_are_not_stored_stays_due(
    until: timedelta | None, due: timedelta, why: str, stored: bool
) -> None:
    """Should this process die, another driver must settle its targets in flight."""

    async def work(stage: Stages) -> None:
        if not stored:
            stage.driver.outbox.put([result(1, account=1)])
        asleep = Sleep(NOW + until if until is not None else None, "pace")
        stage.driver.leaving.append((lane(1), asleep, None))
        await stage.driver._leave()
        (left,) = stage.books.parameters(lane_rows.LEAVE_LANES)
        assert (left[3], left[4]) == (([NOW + due], [why]) if not stored else ([asleep.until], ["pace"]))

    play(work)


def test_a_lane_that_lost_its_ledger_is_dropped() -> None:
    async def work(stage: Stages) -> None:
        one = lane(1)
        cast("Any", one).ends = LedgerLost()
        stage.driver.lanes[1] = one
        task = stage.driver.tasks[1] = asyncio.create_task(stage.driver._drive_lane(one))
        await task
        assert (stage.driver.tasks, stage.driver.lanes, stage.driver.leaving) == ({}, {}, [])

    play(work)


def test_a_lane_that_outlived_its_connection_leaves_its_successor_alone() -> None:
    async def work(stage: Stages) -> None:
        old, new = lane(1), lane(1)
        (successor,) = held_by(stage.driver, new)
        for ends in (Sleep(NOW), LedgerLost()):
            cast("Any", old).ends = ends
            await asyncio.create_task(stage.driver._drive_lane(old))
            assert (stage.driver.tasks, stage.driver.lanes, stage.driver.leaving) == ({1: successor}, {1: new}, [])

    play(work)


@pytest.mark.parametrize("over", [False, True], ids=["in its slice", "after it"])
def test_lanes_are_given_back_together(monkeypatch: pytest.MonkeyPatch, over: bool) -> None:
    failures: list[tuple[int, int]] = []

    async def lane_failed(_: Ledger, account_id: int, count: int, *__: object) -> None:
        failures.append((account_id, count))

    async def work(stage: Stages) -> None:
        await stage.driver._leave()
        assert stage.books.asked == []
        if over:
            await stage.clock.sleep(SLICE)
        lanes = [lane(2, epoch=7, wake_count=8), lane(1), lane(3), lane(4), lane(5)]
        held_by(stage.driver, *lanes, tasks=False)
        lanes[0].stop()
        error = ValueError("a bug")
        stage.driver.leaving += [
            (lanes[0], Sleep(NOW, "x" * 301), None),
            (lanes[1], Sleep(None, "idle"), error),
            (lanes[2], Sleep(NOW), error),  # another driver has it: it does not come back
            (lanes[4], Sleep(NOW), None),  # another session has locked its row: it stays
        ]
        late = (lanes[3], Sleep(NOW), None)

        def left(_: object) -> list[Row]:
            stage.driver.leaving.append(late)  # meanwhile
            rows = [(1, 5, False), (2, 0, False), (3, 0, False), (5, 0, True)]
            return [{"account_id": account, "crashes": crashes, "locked": locked} for account, crashes, locked in rows]

        stage.books.answers[lane_rows.LEAVE_LANES] = left
        await stage.driver._leave()
        assert stage.books.asked == [
            (
                lane_rows.LEAVE_LANES,
                [
                    [1, 2, 3, 5],
                    [1, 7, 1, 1],
                    [1, 8, 1, 1],
                    [None, NOW, NOW, NOW],
                    ["idle", "x" * 300, "", ""],
                    [True, False, True, False],
                    [0] * 4,
                    [3 * SECOND] * 4,
                    [stage.clock.now()] * 4,
                ],
            ),
            (lane_rows.GIVE_LANE_LOCKS_BACK, (holding.LANE_LOCKS, [1, 2, 3])),
        ]
        assert [one[0].account_id for one in stage.driver.leaving] == [5, 4]
        assert (list(stage.driver.lanes), stage.books.settles) == ([4, 5], 1)
        assert stage.driver._only_locked() is False  # the late one is not
        assert stage.driver.slice.wound_down == ({2} if over else set())

    monkeypatch.setattr(holding, "lane_failed", lane_failed)
    play(work)
    assert failures == [(1, 5), (3, 0)]


# --- places among owners ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "capacity", "waiting", "stopped"),
    [
        case(8, 8, {2: 1}, None, id="places for all: who waits is not asked"),
        case(10, 9, {2: 1}, [], id="scarce, and there is room"),
        case(9, 8, {2: 1}, [3], id="the slow one makes room first"),
        case(13, 8, {1: 5}, [], id="more of the same owner"),
        case(26, 8, {2: 9, 3: 9}, [1, 2, 3, 4], id="two others, a share each"),
    ],
)
def test_a_full_driver_makes_room_for_other_owners(
    share: int, capacity: int, waiting: dict[int, int], stopped: list[int] | None
) -> None:
    async def work(stage: Stages) -> None:
        held_by(stage.driver, *(lane(n, slow=n == 3) for n in range(1, 9)), tasks=False)
        stage.driver.share = share
        rows = [{"owner_id": owner, "lanes": lanes} for owner, lanes in waiting.items()]
        stage.books.answers[lane_rows.WAITING_OWNERS] = rows
        await stage.driver._share_places(NOW)
        asked = stage.books.parameters(lane_rows.WAITING_OWNERS)
        assert asked == ([] if stopped is None else [{"now": NOW}])
        assert stage.driver.waiting == ({} if stopped is None else waiting)
        ending = [account_id for account_id, one in stage.driver.lanes.items() if one.stopping]
        assert ending == (stopped or [])
        await stage.driver._share_places(NOW)  # those that end are enough
        assert sum(one.stopping for one in stage.driver.lanes.values()) == len(ending)

    play(work, capacity=capacity)


@pytest.mark.parametrize(
    ("waiting", "in_turn"), [case({1: 9}, False, id="one owner"), case({1: 9, 2: 1}, True, id="several")]
)
def test_scarce_places_are_given_in_turn(waiting: dict[int, int], in_turn: bool) -> None:
    async def work(stage: Stages) -> None:
        stage.driver.lanes[7] = lane(7, owner=5)
        stage.driver.waiting = waiting
        stage.books.answers[lane_rows.DUE_LANES] = due(1, 2, 3)
        stage.books.answers[lane_rows.DUE_LANES_IN_TURN] = due(3, 1, 2)
        stage.driver.share = 9
        await stage.driver._take()
        asked = [{"now": NOW, "limit": 3, "owners": [5], "held": [1]}] if in_turn else []
        assert stage.books.parameters(lane_rows.DUE_LANES_IN_TURN) == asked
        assert stage.books.parameters(lane_rows.TRY_LANE_LOCKS)[0][0] == ([3, 1, 2] if in_turn else [1, 2, 3])

    play(work, capacity=4)
