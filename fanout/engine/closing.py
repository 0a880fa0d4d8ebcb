"""How the engine ends or pauses a run, and stops an account: the shared transitions, on the connection that claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import psycopg

from fanout.engine import sql
from fanout.engine.batch import plain
from fanout.engine.connection import may_work_later
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.loading import LaneAccount, LaneRun
from fanout.engine.outbox import Stop
from fanout.lanes import bounces, status
from fanout.lanes.statements import Result, Steps, carry_out_with
from fanout.models.run import PauseReason
from fanout.rules.gates import Close, Wait
from fanout.rules.outcomes import AccountChange
from fanout.runs import transitions


async def carry_out(ledger: Ledger, steps: Steps[Result]) -> Result:
    """All of the steps or none, in order with claims and results."""
    async with ledger.together() as write:
        (result,) = await carry_out_with(write, [steps])
        return result


class Change(NamedTuple):
    """A run's transition. Its steps are made anew for every try."""

    run_id: int
    steps: Callable[[], Steps[Any]]


async def change(ledger: Ledger, run_id: int, steps: Callable[[], Steps[Any]]) -> None:
    """The same for a transition of a run alone, in one commit with those of other lanes: a thousand runs may end in the
    same second."""
    await ledger.gathered(_change_all, Change(run_id, steps))


async def _change_all(ledger: Ledger, changes: list[Change]) -> list[None]:
    async with ledger.together() as write:
        if len(changes) > 1:
            await write([(transitions.LOCK, {"runs": [one.run_id for one in changes]})])
        return await carry_out_with(write, [one.steps() for one in changes])


# --- runs -------------------------------------------------------------------------------------------------


async def close(ledger: Ledger, run: LaneRun, gate: Close, lane: LaneAccount, now: datetime) -> None:
    """The run stops here. Another lane that still has something in flight for it will do this instead."""
    if gate.reason == PauseReason.WINDOW_CLOSED and not run.attempted:
        # In transactions of their own, so that the beat and other lanes come in between.
        while await carry_out(ledger, transitions.skip_unstarted(run.id, now)):
            pass
    await change(ledger, run.id, partial(_close, run, replace(gate, why=plain(gate.why)), lane, now))


def _close(run: LaneRun, gate: Close, lane: LaneAccount, now: datetime) -> Steps[None]:
    if gate.reason == PauseReason.WINDOW_CLOSED and not run.attempted:
        yield from transitions.fail_unstarted(run.id, now)
    account = lane.config
    if gate.reason != PauseReason.WINDOW_CLOSED and (
        yield from transitions.step_aside(run.id, account.id, account.label, gate.why, now)
    ):
        return
    if not (yield from transitions.pause(run.id, gate, lane.facts, now)):
        yield from transitions.finish(run.id, now)


async def run_dry(ledger: Ledger, run_id: int, lane: LaneAccount, now: datetime) -> None:
    """This lane has nothing left to send for the run: it is finished, or others go on, or what is left belongs to
    accounts that cannot send."""
    await change(ledger, run_id, partial(_run_dry, run_id, lane, now))


def _run_dry(run_id: int, lane: LaneAccount, now: datetime) -> Steps[None]:
    if (yield from transitions.finish(run_id, now)):
        return
    for left in (yield sql.LEFT_BEHIND, {"run": run_id}):
        down = left["status"] != "active"
        reason = PauseReason.ACCOUNT_DOWN if down else PauseReason.ACCOUNT_CAPACITY
        yield from transitions.pause(run_id, Close(reason, left["why"]), lane.facts, now)


async def abandon(ledger: Ledger, account_id: int, why: str, now: datetime) -> None:
    """An account that nobody can read any more: its runs go on without it, or pause and say so."""
    await carry_out(ledger, _abandon(account_id, Close(PauseReason.ACCOUNT_DOWN, plain(why)), now))


def _abandon(account_id: int, gate: Close, now: datetime) -> Steps[None]:
    runs = yield sql.RUNS, {"accounts": [account_id]}
    yield transitions.LOCK, {"runs": [run["id"] for run in runs]}
    for run in runs:
        if not (yield from transitions.step_aside(run["id"], account_id, f"account {account_id}", gate.why, now)):
            yield from transitions.pause(run["id"], gate, {}, now)


async def rejudge(ledger: Ledger, run_id: int, now: datetime) -> None:
    """After a late result: the verdict may have changed, and a lane that the run no longer names may have a part to
    send."""
    await change(ledger, run_id, partial(_rejudge, run_id, now))


def _rejudge(run_id: int, now: datetime) -> Steps[None]:
    yield from transitions.rejudge(run_id, now)
    yield from transitions.name_lanes(run_id, now)


async def describe_again(ledger: Ledger, run_id: int) -> None:
    await change(ledger, run_id, partial(transitions.describe_again, run_id))


async def hold(ledger: Ledger, run_id: int, account_id: int, gate: Wait, now: datetime, counts: bool) -> None:
    """The run waits and says for what."""
    await change(ledger, run_id, partial(transitions.wait, run_id, account_id, gate, now, counts))


# --- accounts ---------------------------------------------------------------------------------------------


async def change_account(ledger: Ledger, account_id: int, change: AccountChange, now: datetime) -> None:
    """Where that cannot be written now, it is before any lane is taken again."""
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
    await carry_out(ledger, bounces.judge_address(address, plain(detail), now))
