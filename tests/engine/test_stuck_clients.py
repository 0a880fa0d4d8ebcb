"""A client that locks a row and then stands still stops only what needs that row, and costs no driver its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.channels.sandbox.script import Script
from fanout.database import conninfo
from fanout.engine.driver import Driver
from fanout.models import Driver as DriverRow
from fanout.models import LaneState, Run
from tests.engine.stage import Stage, fresh
from tests.engine.test_database_trouble import drive_while, driver, live

RATE = 600  # messages per minute of each account: ten per second
WATCHED = 6  # seconds
NAMES = ("stuck", "one", "two")

ACCOUNT = "(SELECT account_id FROM fanout_run WHERE id = %s)"
NEXT = "run_id = %s AND status IN ('pending', 'sending') ORDER BY position LIMIT 5"
#: what a stuck client may hold, as the statement that locks it; %s is the run of the first account
LOCKS = {
    "run": "SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE",
    "lane": f"SELECT 1 FROM fanout_lanestate WHERE account_id = {ACCOUNT} FOR UPDATE",
    "account": f"SELECT 1 FROM accounts_account WHERE id = {ACCOUNT} FOR UPDATE",
    "targets": f"SELECT 1 FROM fanout_runtarget WHERE {NEXT} FOR UPDATE",
    "people": f"""SELECT 1 FROM reminders_recipient WHERE id IN (SELECT recipient_id FROM fanout_runtarget WHERE {NEXT})
                     FOR UPDATE""",
    "another table": "LOCK TABLE fanout_tally IN SHARE ROW EXCLUSIVE MODE -- %s",
}


@asynccontextmanager
async def stuck_client(what: str, run: Run) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Lock rows in another session, which then stands still in its transaction."""
    async with await psycopg.AsyncConnection.connect(conninfo(connection.settings_dict)) as other:
        await other.execute(LOCKS[what], [run.pk] if what != "another table" else None)
        yield other
        await other.rollback()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
def runs(stage: Stage) -> dict[str, Run]:
    """Three accounts, each with a run of follow-ups. Only the first one's rows get locked."""
    stage.provider.set_script(Script({"*": {"latency_ms": [20, 60]}}))
    fired = {}
    for n, name in enumerate(NAMES):
        account = stage.account(address=name, max_send_per_minute=RATE)
        fired[name] = stage.fire(stage.reminder(account, groups=400, first=n * 1000, follow_up=name == "stuck"))
    live(*fired.values())
    return fired


def sent(stage: Stage, name: str) -> int:
    return len(stage.book.deliveries(name))


def nothing_is_uncertain(stage: Stage, runs: dict[str, Run]) -> None:
    for name, run in runs.items():
        assert fresh(run).sent == sent(stage, name)
        assert run.unconfirmed == run.sending == 0
    assert set(LaneState.objects.values_list("holder", "crashes")) == {("", 0)}


@pytest.mark.slow
@pytest.mark.parametrize("what", LOCKS)
def test_a_locked_row_stops_only_its_own_lane(stage: Stage, runs: dict[str, Run], what: str) -> None:
    beats: list[float] = []

    async def watch(driving: Driver) -> None:
        await until(lambda: all(sent(stage, name) for name in NAMES))
        session = driving.ledger
        async with stuck_client(what, runs["stuck"]) as other:
            before = {name: sent(stage, name) for name in NAMES}
            for _ in range(WATCHED):
                await asyncio.sleep(1)
                row = await (await other.execute("SELECT clock_timestamp() - beat_at FROM fanout_driver")).fetchone()
                assert row is not None
                beats.append(row[0].total_seconds())
            gone_out = {name: sent(stage, name) - before[name] for name in NAMES}
        assert driving.ledger is session
        assert not session.lost.is_set()
        assert min(gone_out["one"], gone_out["two"]) > RATE / 60 * WATCHED * 0.5, gone_out
        later = sent(stage, "stuck") + 20
        await until(lambda: sent(stage, "stuck") >= later)  # nothing of it is forgotten

    drive_while(stage, watch)
    assert max(beats) < 4  # others end the session of one that is silent for ten seconds
    nothing_is_uncertain(stage, runs)


@pytest.mark.slow
def test_a_slice_ends_and_the_next_one_begins_beside_a_locked_lane(stage: Stage, runs: dict[str, Run]) -> None:
    next_one = driver(stage)

    async def watch(driving: Driver) -> None:
        await until(lambda: all(sent(stage, name) for name in NAMES))
        async with stuck_client("lane", runs["stuck"]):
            driving.slice.ends_at = driving.clock.monotonic()
            async with asyncio.timeout(8):
                await driving.ledger.lost.wait()
            successor = asyncio.create_task(next_one.run())
            before = sent(stage, "one")
            await until(lambda: sent(stage, "one") >= before + 30)
        before = sent(stage, "stuck")
        await until(lambda: sent(stage, "stuck") >= before + 10)
        next_one.stopping = True
        await successor

    drive_while(stage, watch)
    nothing_is_uncertain(stage, runs)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["lane", "run", "targets"])
def test_lanes_are_taken_beside_one_whose_rows_are_locked(stage: Stage, runs: dict[str, Run], what: str) -> None:
    """A dead driver left something in flight there; its slot's next driver frees what it held."""
    first = runs["stuck"].targets.order_by("position")[0]
    runs["stuck"].targets.filter(pk=first.pk).update(
        status="sending", claim_epoch=1, claimed_at=datetime.now(UTC), attempts=1
    )
    ended = {"token": "dead", "pid": 1, "backend_pid": 1, "beat_at": datetime.now(UTC), "ended_at": datetime.now(UTC)}
    DriverRow.objects.create(host="elsewhere", slot=0, started_at=datetime.now(UTC), lanes=3, **ended)
    LaneState.objects.update(holder="dead")

    one, ready, free = driver(stage), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with stuck_client(what, runs["stuck"]):
            ready.set()
            await free.wait()

    async def play() -> None:
        client = asyncio.create_task(hold())
        await ready.wait()
        driving = asyncio.create_task(one.run())
        try:
            began = one.clock.monotonic()
            await until(lambda: sent(stage, "one") >= 30)
            assert one.clock.monotonic() - began < 12
            assert sent(stage, "stuck") == 0
            free.set()
            await until(lambda: sent(stage, "stuck") >= 10)
        finally:
            free.set()
            one.stopping = True
            await driving
            await client

    asyncio.run(play())
    assert fresh(runs["stuck"]).unconfirmed == 1
    assert runs["stuck"].sent == sent(stage, "stuck")
