"""End or pause a run, and stop an account.

The transitions are those of `fanout.runs.transitions` and `fanout.lanes.status`, carried out on the connection that
claims.
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
from fanout.engine.loading import RUNS, LaneAccount, LaneRun
from fanout.engine.outbox import Stop
from fanout.lanes import status
from fanout.models.run import PauseReason
from fanout.rules.gates import Close, Wait, reason_recorded
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


# Targets that a lane left when it stepped aside, once no other lane has anything to send. Account by account: each is
# one look into the index, however many targets there are.
LEFT_BEHIND = """
SELECT a.status, coalesce(r.slips -> a.id::text ->> 'why', '') AS why
  FROM fanout_run r, LATERAL jsonb_object_keys(r.slips) AS slipped(id), accounts_account a
 WHERE r.id = %(run)s AND r.sending = 0 AND a.id = slipped.id::bigint AND NOT a.id = ANY(r.lanes)
   AND EXISTS (SELECT FROM fanout_runtarget t WHERE t.run_id = r.id AND t.account_id = a.id AND t.status = 'pending')
   AND NOT EXISTS (SELECT FROM unnest(r.lanes) AS l(id), LATERAL (
                     SELECT FROM fanout_runtarget o
                      WHERE o.run_id = r.id AND o.account_id = l.id AND o.status = 'pending' LIMIT 1) AS owed)
 LIMIT 1
"""


async def run_dry(ledger: Ledger, run_id: int, lane: LaneAccount, now: datetime) -> None:
    """Finish the run if nothing of it is left. If what is left belongs to accounts that cannot send, pause it."""
    await change(ledger, run_id, partial(_run_dry, run_id, lane, now))


def _run_dry(run_id: int, lane: LaneAccount, now: datetime) -> Steps[None]:
    if (yield from transitions.finish(run_id, now)):
        return
    for left in (yield LEFT_BEHIND, {"run": run_id}):
        down = left["status"] != "active"
        reason = PauseReason.ACCOUNT_DOWN if down else reason_recorded(left["why"])
        yield from transitions.pause(run_id, Close(reason, left["why"]), lane.facts, now)


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
