"""Stop an account, and judge runs and addresses again, as transitions on the connection that claims.

The transitions are those of `fanout.runs.transitions` and `fanout.lanes.status`. How a lane ends a run is in
`lane_loop.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import psycopg

from fanout.database import LOCK_RUNS, Returned, Steps, WriteAll, carry_out_with
from fanout.engine.commit import Result, locked_rows, plain
from fanout.engine.connection import may_work_later
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.loading import RUNS
from fanout.engine.outbox import Stop
from fanout.lanes import status
from fanout.lanes.lane_rows import wake_statement
from fanout.models.run import PauseReason
from fanout.rules.gates import Close
from fanout.rules.outcomes import AccountChange
from fanout.runs import transitions

LOCKED_RUNS = locked_rows("run", "fanout_run", "id", "%(runs)s::bigint[]")


async def carry_out(ledger: Ledger, steps: Steps[Returned]) -> Returned:
    """Carry out all steps or none, in order with claims and results."""
    async with ledger.together() as write:
        (result,) = await carry_out_with(write, [steps])
        return result


class Change(NamedTuple):
    """A run's transition. Its steps are made anew for every try."""

    run_id: int
    steps: Callable[[], Steps[Any]]


#: seconds between tries at a run that another session has locked. They pass here, not on the connection that all lanes
#: of the driver share.
TRIES = (0.05, 0.2, 0.5, 1.0)


async def change(ledger: Ledger, run_id: int, steps: Callable[[], Steps[Any]]) -> None:
    """Carry out a transition of one run, in one commit with those of other lanes: a thousand runs may end in the same
    second. Raises LockNotAvailable if another session keeps the run locked."""
    for pause in TRIES:
        if await ledger.gathered(_change_all, Change(run_id, steps)):
            return
        await asyncio.sleep(pause)
    if run_id in (await ledger.locked()).runs:
        raise psycopg.errors.LockNotAvailable(f"run {run_id} is locked by another session")
    # Drivers that share a run lock it for moments, again and again: a session that waits has its turn.
    async with ledger.together() as write:
        await write([(LOCK_RUNS, {"runs": [run_id]})])
        await carry_out_with(write, [steps()])


async def _change_all(ledger: Ledger, changes: list[Change]) -> list[bool]:
    """Carry out the changes of runs that are not locked. Returns for each whether it was carried out."""
    async with ledger.together() as write:
        (rows,) = await write([(LOCKED_RUNS, {"runs": [one.run_id for one in changes]})])
        locked = {int(row["key"]) for row in rows}
        free = [one for one in changes if one.run_id not in locked]
        await write([(LOCK_RUNS, {"runs": [one.run_id for one in free]})])
        await carry_out_with(write, [one.steps() for one in free])
    return [one.run_id not in locked for one in changes]


# --- runs -------------------------------------------------------------------------------------------------


async def abandon(ledger: Ledger, account_id: int, why: str, now: datetime) -> None:
    """Take an unreadable account out of its runs: they go on without it, or pause and say so."""
    await carry_out(ledger, _abandon(account_id, Close(PauseReason.ACCOUNT_DOWN, plain(why)), now))


def _abandon(account_id: int, gate: Close, now: datetime) -> Steps[None]:
    runs = yield RUNS, {"accounts": [account_id]}
    yield LOCK_RUNS, {"runs": [run["id"] for run in runs]}
    for run in runs:
        if not (yield from transitions.step_aside(run["id"], account_id, f"account {account_id}", gate.why, now)):
            yield from transitions.pause(run["id"], gate, {}, now)


async def store_late(ledger: Ledger, results: list[Result], now: datetime) -> bool:
    """Store late results, judge their runs again and wake their lanes, in one transaction: a driver that dies in
    between would leave a part to send that no lane drives. If another session has locked something that only the
    judgement needs, only the results are stored. Returns whether the runs were judged."""
    try:
        return await ledger.write_late(results, partial(_judge_late, results, now))
    except psycopg.errors.LockNotAvailable:
        locked = await ledger.locked()
        if any(locked.holds_up(result) for result in results):
            raise
        return await ledger.write_late(results)


async def _judge_late(results: list[Result], now: datetime, write: WriteAll) -> None:
    runs = sorted({result.run_id for result in results})
    await write([(LOCK_RUNS, {"runs": runs})])
    await carry_out_with(write, [_rejudge(run_id, now) for run_id in runs])
    await write([wake_statement({result.account_id for result in results}, now)])


async def rejudge(ledger: Ledger, run_id: int, now: datetime) -> None:
    """Judge a run again after a late result, and name a lane again that has a part left to send."""
    await change(ledger, run_id, partial(_rejudge, run_id, now))


def _rejudge(run_id: int, now: datetime) -> Steps[None]:
    yield from transitions.rejudge(run_id, now)
    yield from transitions.name_lanes(run_id, now)
    yield from transitions.wake_again(run_id, now)


async def describe_again(ledger: Ledger, run_id: int, now: datetime) -> None:
    await change(ledger, run_id, partial(transitions.describe_again, run_id, now))


# --- accounts ---------------------------------------------------------------------------------------------


async def change_account(ledger: Ledger, account_id: int, change: AccountChange, now: datetime) -> None:
    """Stop an account. If that cannot be stored now, it goes to the outbox and is stored before any lane is taken
    again."""
    stop = Stop(account_id, replace(change, reason=plain(change.reason)), now)
    try:
        await stop_account(ledger, stop)
    except (LedgerLost, psycopg.Error) as error:
        if isinstance(error, LedgerLost) or may_work_later(error):
            ledger.outbox.put_stop(stop)
        raise


async def stop_account(ledger: Ledger, stop: Stop) -> None:
    await carry_out(ledger, status.stop(stop.account_id, stop.change, stop.at))


async def pause_account(ledger: Ledger, account_id: int, reason: str, now: datetime) -> None:
    await change_account(ledger, account_id, AccountChange("paused", reason), now)


async def end_suspension(ledger: Ledger, account_id: int, now: datetime) -> None:
    await carry_out(ledger, status.end_suspension(account_id, now))


# --- addresses --------------------------------------------------------------------------------------------


async def judge_address(ledger: Ledger, address: str, detail: str, now: datetime) -> None:
    await carry_out(ledger, status.judge_address(address, plain(detail), now))
