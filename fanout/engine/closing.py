"""Stop an account, and judge runs and addresses again, as transitions on the connection that claims.

The transitions are those of `fanout.runs.transitions` and `fanout.lanes.status`. How a lane ends a run is in
`lane_loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import psycopg

from fanout.database import Returned, Steps, carry_out_with
from fanout.engine.commit import plain
from fanout.engine.connection import may_work_later
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.loading import RUNS
from fanout.engine.outbox import Stop
from fanout.lanes import status
from fanout.models.run import PauseReason
from fanout.rules.gates import Close
from fanout.rules.outcomes import AccountChange
from fanout.runs import transitions


async def carry_out(ledger: Ledger, steps: Steps[Returned]) -> Returned:
    """Carry out all steps or none, in order with claims and results."""
    async with ledger.together() as write:
        (result,) = await carry_out_with(write, [steps])
        return result


class Change(NamedTuple):
    """A run's transition. Its steps are made anew for every try."""

    run_id: int
    steps: Callable[[], Steps[Any]]


async def change(ledger: Ledger, run_id: int, steps: Callable[[], Steps[Any]]) -> None:
    """Carry out a transition of one run, in one commit with those of other lanes: a thousand runs may end in the same
    second."""
    await ledger.gathered(_change_all, Change(run_id, steps))


async def _change_all(ledger: Ledger, changes: list[Change]) -> list[None]:
    async with ledger.together() as write:
        if len(changes) > 1:
            await write([(transitions.LOCK, {"runs": [one.run_id for one in changes]})])
        return await carry_out_with(write, [one.steps() for one in changes])


# --- runs -------------------------------------------------------------------------------------------------


async def abandon(ledger: Ledger, account_id: int, why: str, now: datetime) -> None:
    """Take an unreadable account out of its runs: they go on without it, or pause and say so."""
    await carry_out(ledger, _abandon(account_id, Close(PauseReason.ACCOUNT_DOWN, plain(why)), now))


def _abandon(account_id: int, gate: Close, now: datetime) -> Steps[None]:
    runs = yield RUNS, {"accounts": [account_id]}
    yield transitions.LOCK, {"runs": [run["id"] for run in runs]}
    for run in runs:
        if not (yield from transitions.step_aside(run["id"], account_id, f"account {account_id}", gate.why, now)):
            yield from transitions.pause(run["id"], gate, {}, now)


async def rejudge(ledger: Ledger, run_id: int, now: datetime) -> None:
    """Judge a run again after a late result, and name a lane again that has a part left to send."""
    await change(ledger, run_id, partial(_rejudge, run_id, now))


def _rejudge(run_id: int, now: datetime) -> Steps[None]:
    yield from transitions.rejudge(run_id, now)
    yield from transitions.name_lanes(run_id, now)


async def describe_again(ledger: Ledger, run_id: int) -> None:
    await change(ledger, run_id, partial(transitions.describe_again, run_id))


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
