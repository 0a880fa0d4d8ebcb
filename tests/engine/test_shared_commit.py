"""A delivery is written together with the next claim: what happens to its result until then."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.channels.base import Outcome, Part, Transport
from fanout.database import conninfo
from fanout.engine import commit, loading
from fanout.engine import ledger as ledgers
from fanout.engine.commit import Call, LaneWrite, Result, Written
from fanout.engine.connection import BlockingLink, Row, prepare
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.outbox import Outbox
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import LaneState, Run, RunTarget
from fanout.runs import controls
from tests.engine.ledgers import EPOCH, NOW
from tests.engine.stage import CountingLedger, Stage, fresh

HANGS = 20  # seconds of real time: on the virtual clock nothing takes that long


class OnItsLinks(Stage):
    """A stage whose ledgers have links of a test's own."""

    def __init__(
        self, locks: type[BlockingLink], reads: type[BlockingLink] = BlockingLink, latency: tuple[int, int] = (50, 60)
    ) -> None:
        super().__init__(script={"*": {"latency_ms": list(latency)}})
        self.links = (locks, reads)

    async def open_ledger(self, outbox: Outbox) -> Ledger:
        info = conninfo(connection.settings_dict)
        locks, reads = (link.open(info) for link in self.links)
        reads.stage = self  # type: ignore[attr-defined]
        ledger = self.ledger_on(await prepare(locks), reads, outbox)
        self.ledgers = [ledger for ledger in self.ledgers if not ledger.locks.closed] + [ledger]
        return ledger

    def ledger_on(self, locks: Any, reads: Any, outbox: Outbox) -> CountingLedger:
        return CountingLedger(locks, reads, self, outbox)


@pytest.fixture(autouse=True)
def on_the_virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@pytest.mark.django_db(transaction=True)
def test_a_lane_lands_although_look_ups_lose_their_connection_during_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(BlockingLink):
        async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
            await asyncio.sleep(0.02)
            return await super().call(calls)

    class Dying(BlockingLink):
        stage: Stage
        dies = False

        async def query(self, statement: str, parameters: Any = None) -> list[Row]:
            writing = [ledger._in_hand for ledger in self.stage.ledgers if ledger.reads is self]
            if Dying.dies and any(batch is not None and batch.results for batch in writing):
                Dying.dies = False
                self.connection.close()
            return await super().query(statement, parameters)

    hung: list[str] = []

    def hangs(signal_: int, frame: FrameType | None) -> None:
        hung.append(f"in {frame}")
        raise RuntimeError("the driver does nothing any more")

    stage = OnItsLinks(Slow, Dying, latency=(5, 10))  # a call is shorter than a commit
    stage.tick = 0.013
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=0, group_concurrency=3), groups=150))
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS)
    try:
        stage.play(30, [(stage.now + timedelta(seconds=0.3), lambda now: setattr(Dying, "dies", True))])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not hung
    assert not Dying.dies  # it happened
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 150


@pytest.mark.django_db(transaction=True)
def test_a_result_that_is_refused_while_the_lane_looks_around_fails_the_lane() -> None:
    refused: set[str] = set()

    class Refusing(BlockingLink):
        async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
            if any(name == "record" and refused & set(str(ids).strip("{}").split(",")) for name, (ids, *_) in calls):
                raise psycopg.errors.CheckViolation("refused")
            return await super().call(calls)

    class LooksLong(BlockingLink):
        async def query(self, statement: str, parameters: Any = None) -> list[Row]:
            if statement is loading.TARGETS:
                await asyncio.sleep(0.5)
            return await super().query(statement, parameters)

    stage = OnItsLinks(Refusing, LooksLong)
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=0, group_concurrency=3), groups=9))
    refused.add(str(run.targets.order_by("-position").values_list("pk", flat=True)[0]))
    stage.play(120)
    # It went out and could not be stored: the next holder asks the operator, and the run ends.
    assert sorted(run.targets.values_list("status", flat=True)) == ["sent"] * 8 + ["unconfirmed"]
    assert fresh(run).status == Run.Status.PARTIAL
    assert len(stage.book.deliveries()) == 9


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("resumed", [False, True], ids=["paused", "paused and resumed"])
def test_a_pause_while_the_result_of_a_part_waits_to_be_written(resumed: bool) -> None:
    class Slow(BlockingLink):
        async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
            await asyncio.sleep(0.4)
            return await super().call(calls)

    class Noticing(CountingLedger):
        def hand_in(self, result: Result, lane: LaneWrite | None, written: Written) -> None:
            super().hand_in(result, lane, written)
            ours = (result.run_id, result.status, lane) == (run.pk, "pending", None)
            if ours and self._in_hand is not None and not operators:
                operators.append(asyncio.create_task(operate()))

    class AStage(OnItsLinks):
        def ledger_on(self, locks: Any, reads: Any, outbox: Outbox) -> CountingLedger:
            return Noticing(locks, reads, self, outbox)

    async def operate() -> None:
        assert stage.clock is not None
        controls.pause(run, stage.user, stage.clock.now())
        wake_lanes([run.account_id], stage.clock.now())
        await asyncio.sleep(0.1)
        if resumed:
            controls.resume(fresh(run), stage.user, stage.clock.now())
        connection.close()

    operators: list[asyncio.Task[None]] = []
    stage = AStage(Slow)
    stage.tick = 0.02
    stage.fire(stage.reminder(stage.account(max_send_per_minute=0, group_concurrency=2), groups=60, first=100))
    two_parts = stage.reminder(
        stage.account(max_send_per_minute=0, group_concurrency=1), groups=2, parts=("text", "text")
    )
    run = stage.fire(two_parts)
    stage.play(60)
    assert len(operators) == 1
    run = fresh(run)
    if resumed:
        assert run.status == Run.Status.SUCCESS
    else:
        assert run.status == Run.Status.PAUSED
        assert f"{run.pending} still pending" in run.error_summary
        assert LaneState.objects.get(account=run.account_id).due_at is None


@pytest.mark.django_db(transaction=True)
def test_a_call_that_breaks_off_inside_its_transport_is_unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=0), groups=4))
    first = run.targets.order_by("position")[0].address
    make = stage.transport

    def breaking(account: Any) -> Transport:
        transport = make(account)
        really = transport.send

        async def send(address: str, part: Part, message_id: str) -> Outcome:
            if address == first:
                raise asyncio.CancelledError  # of something that it shares with others
            return await really(address, part, message_id)

        monkeypatch.setattr(transport, "send", send)
        return transport

    monkeypatch.setattr(stage, "transport", breaking)
    stage.play(60)
    assert sorted(run.targets.values_list("status", flat=True)) == ["sent"] * 3 + ["unconfirmed"]
    assert RunTarget.objects.get(status="unconfirmed").error == "the call was broken off"


# --- the ledger alone -------------------------------------------------------------------------------------


class FakeLink:
    """Answers as it is told to."""

    def __init__(self, *answers: Any) -> None:
        self.closed = False
        self.answers = list(answers)

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer == "never":
            await asyncio.sleep(99)
        return [[] for _ in calls]

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        if statement == "die":
            self.closed = True
            raise psycopg.OperationalError("gone")
        return [{"what": "run", "key": "1"}] if statement is commit.LOCKED_ROWS else []

    async def script(self, statements: Any) -> list[list[Row]]:
        return []

    async def close(self) -> None:
        self.closed = True


def result(target: int, run: int = 1) -> Result:
    return Result(target, run, 1, EPOCH, NOW, "sent", 1, 1, NOW, "message", 0, "sent")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "WRITER_PATIENCE", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_batch_under_way_is_kept_when_look_ups_are_lost() -> None:
    async def play() -> None:
        received: list[BaseException | None] = []
        ledger = Ledger(FakeLink("never"), FakeLink())
        ledger.start()
        ledger.hand_in(result(11), None, received.append)
        await asyncio.sleep(0.02)
        with pytest.raises(LedgerLost):
            await ledger.read("die")
        await ledger.stop()
        assert received == [None]
        assert [one.target_id for one in ledger.outbox._results] == [11]

    asyncio.run(play())


@pytest.mark.usefixtures("impatient")
def test_a_ledger_that_stops_in_the_middle_of_a_batch_keeps_the_rest() -> None:
    """The results of a locked run were told before the others hung."""

    async def play() -> None:
        received: set[int] = set()
        ledger = Ledger(FakeLink(psycopg.errors.LockNotAvailable("run 1"), "never"), FakeLink())
        ledger.start()

        def tell(target: int, error: BaseException | None) -> None:
            if target in received:
                raise KeyError(target)
            received.add(target)

        for target, run in ((11, 1), (21, 2)):
            ledger.hand_in(result(target, run), None, partial(tell, target))
        await asyncio.sleep(0.02)
        ledger.hand_in(result(12, 2), None, partial(tell, 12))  # waits for the next batch
        await ledger.stop()
        assert received == {11, 12, 21}
        assert {one.target_id for one in ledger.outbox._results} == {11, 12, 21}

    asyncio.run(play())


def test_a_lane_that_cannot_be_told_does_not_stop_the_others() -> None:
    async def play() -> None:
        ledger = Ledger(FakeLink(), FakeLink())
        ledger.start()
        ledger.hand_in(result(11), None, lambda error: [][0])
        await ledger.flushed()
        await asyncio.wait_for(ledger.record(result(12)), timeout=5)
        await ledger.stop()

    asyncio.run(play())
