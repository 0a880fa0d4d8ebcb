"""End or pause a run, stop an account, and settle what a crash left behind.

The transitions are those of `fanout.runs.transitions` and `fanout.lanes.status`, carried out on the connection that
claims. A crash leaves targets in flight, lanes without a holder, drivers that hold locks but do not beat, and lanes
that kill their driver again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import psycopg

from fanout.database import Returned, Steps, carry_out_with
from fanout.engine import sql
from fanout.engine.batch import Result, plain
from fanout.engine.connection import Row, may_work_later
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.loading import LaneAccount, LaneRun
from fanout.engine.outbox import Stop
from fanout.lanes import status
from fanout.models.run import PauseReason
from fanout.rules.gates import Close, Wait, reason_recorded
from fanout.rules.outcomes import AccountChange
from fanout.runs import transitions

log = logging.getLogger("crier.rescue")

SUSPECT_AFTER = 2  # crashes in a row without a delivery
SUSPEND_AFTER = 5


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


async def close(ledger: Ledger, run: LaneRun, gate: Close, lane: LaneAccount, now: datetime) -> None:
    """Stop the run, unless another lane still has something in flight for it: that lane does this then."""
    if gate.reason == PauseReason.WINDOW_CLOSED and not run.attempted:
        # In transactions of their own, so that the heartbeat and other lanes come in between.
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
    """Finish the run if nothing of it is left. If what is left belongs to accounts that cannot send, pause it."""
    await change(ledger, run_id, partial(_run_dry, run_id, lane, now))


def _run_dry(run_id: int, lane: LaneAccount, now: datetime) -> Steps[None]:
    if (yield from transitions.finish(run_id, now)):
        return
    for left in (yield sql.LEFT_BEHIND, {"run": run_id}):
        down = left["status"] != "active"
        reason = PauseReason.ACCOUNT_DOWN if down else reason_recorded(left["why"])
        yield from transitions.pause(run_id, Close(reason, left["why"]), lane.facts, now)


async def abandon(ledger: Ledger, account_id: int, why: str, now: datetime) -> None:
    """Take an unreadable account out of its runs: they go on without it, or pause and say so."""
    await carry_out(ledger, _abandon(account_id, Close(PauseReason.ACCOUNT_DOWN, plain(why)), now))


def _abandon(account_id: int, gate: Close, now: datetime) -> Steps[None]:
    runs = yield sql.RUNS, {"accounts": [account_id]}
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


async def hold(ledger: Ledger, run_id: int, account_id: int, gate: Wait, now: datetime, counts: bool) -> None:
    """Store that the run waits, and why."""
    await change(ledger, run_id, partial(transitions.wait, run_id, account_id, gate, now, counts))


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


# --- after a crash ----------------------------------------------------------------------------------------


async def settle_crashes(ledger: Ledger, accounts: list[int], token: str, now: datetime) -> list[int]:
    """Count the crashes of the lanes just locked and of their dead drivers' other lanes. Returns the accounts
    that were suspended for it."""
    suspended = []
    for row in await ledger.write(sql.LEFT_BY, (accounts, token)):
        for lane in await ledger.write(sql.COUNT_CRASH, {"holder": row["holder"], "suspect": SUSPECT_AFTER}):
            if lane["alone"] and lane["crashes"] >= SUSPEND_AFTER:
                await suspend(ledger, lane["account_id"], lane["crashes"], now)
                suspended.append(lane["account_id"])
    return suspended


async def suspend(ledger: Ledger, account_id: int, crashes: int, now: datetime) -> None:
    reason = f"Too many worker crashes ({crashes} in a row without a delivery)"
    log.error("an account is suspended: %s", reason, extra={"account": account_id})
    await change_account(ledger, account_id, AccountChange("suspended", reason), now)


async def lane_failed(ledger: Ledger, account_id: int, crashes: int, error: BaseException, now: datetime) -> None:
    """Suspend an account whose lane failed too often: it raised instead of killing its driver, and the limit is the
    same."""
    if crashes >= SUSPEND_AFTER:
        reason = f"Too many worker crashes (its lane failed {crashes} times in a row: {type(error).__name__}: {error})"
        await change_account(ledger, account_id, AccountChange("suspended", reason), now)


class Rescued(NamedTuple):
    targets: int
    #: accounts whose targets in flight stay as they are, because the database would not take their results
    unsettled: frozenset[int] = frozenset()


async def settle_in_flight(ledger: Ledger, taken: list[int], repeatable: list[int]) -> Rescued:
    """Mark targets that were in flight when the last holder died as unconfirmed, or pending where a repeat is safe."""
    try:
        return await _settle(ledger, taken, repeatable)
    except psycopg.errors.LockNotAvailable:
        raise
    except psycopg.Error as error:
        if not may_work_later(error):
            raise
        if len(taken) == 1:
            log.warning("results cannot be stored: %s", error, extra={"account": taken[0]})
            return Rescued(0, frozenset(taken))
    each = [await settle_in_flight(ledger, [account_id], repeatable) for account_id in taken]
    return Rescued(sum(one.targets for one in each), frozenset().union(*(one.unsettled for one in each)))


async def _settle(ledger: Ledger, taken: list[int], repeatable: list[int]) -> Rescued:
    """Settle all targets or none. First write results and roll them back, as a trial: if the database refuses results,
    the lane must not be taken, because each new holder would leave more targets unconfirmed."""
    lanes = {"taken": taken, "repeatable": repeatable}
    async with ledger.together() as write:
        _, rows = await write([(sql.LOCK_IN_FLIGHT, lanes), (sql.RESCUE, lanes)])
        if rows:
            await ledger.rehearse([as_sent(row) for row in rows])
    if rows:
        log.warning("%d targets were in flight when their driver died", len(rows))
    return Rescued(len(rows))


def as_sent(row: Row) -> Result:
    """Return a result of this target, only to learn whether the database takes it."""
    return Result(
        target_id=row["id"],
        run_id=row["run_id"],
        account_id=row["account_id"],
        epoch=row["claim_epoch"],
        claimed_at=row["claimed_at"],
        status="sent",
        parts_sent=row["parts_sent"] + 1,
        attempts=row["attempts"],
        at=row["claimed_at"],
        action="message",
        part=row["parts_sent"],
        activity="sent",
    )


async def behind_locked_runs(ledger: Ledger, taken: list[int]) -> set[int]:
    """Return the accounts whose targets in flight belong to a run that another session has locked: they must wait."""
    return {row["account_id"] for row in await ledger.write(sql.BEHIND_LOCKED_RUNS, {"taken": taken})}


async def free_stuck(ledger: Ledger, token: str, silent_after: timedelta) -> None:
    for row in await ledger.write(sql.FREE_STUCK, {"silent_after": silent_after, "mine": token}):
        log.warning("a driver has not beaten for %s: its locks were freed", silent_after, extra={"slot": row["slot"]})


def suspects_allowed(suspects: int) -> int:
    """Return how many of these suspect lanes a driver takes at a time: half of them. A lane that delivers is no longer
    a suspect, so that after a few crashes only the lane that causes them is left."""
    return max(1, suspects // 2)
