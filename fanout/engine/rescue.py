"""What a crash left behind: targets in flight, lanes without a holder, drivers that hold locks but do not
beat, and lanes that kill their driver again and again."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import NamedTuple

import psycopg

from fanout.engine import closing, sql
from fanout.engine.batch import Result
from fanout.engine.connection import Row, may_work_later
from fanout.engine.ledger import Ledger
from fanout.rules.outcomes import AccountChange

log = logging.getLogger("crier.rescue")

SUSPECT_AFTER = 2  # crashes in a row without a delivery
SUSPEND_AFTER = 5


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
    await closing.change_account(ledger, account_id, AccountChange("suspended", reason), now)


async def lane_failed(ledger: Ledger, account_id: int, crashes: int, error: BaseException, now: datetime) -> None:
    """A lane raised instead of killing its driver: the same rule, but there is no doubt whose fault it was."""
    if crashes >= SUSPEND_AFTER:
        reason = f"Too many worker crashes (its lane failed {crashes} times in a row: {type(error).__name__}: {error})"
        await closing.change_account(ledger, account_id, AccountChange("suspended", reason), now)


class Rescued(NamedTuple):
    targets: int
    #: accounts that must wait with what they have in flight, because the database would not take its results
    unsettled: frozenset[int] = frozenset()


async def settle_in_flight(ledger: Ledger, taken: list[int], repeatable: list[int]) -> Rescued:
    """What was in flight when the last holder died is unconfirmed, unless a repeat is safe."""
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
    """All or none of them. Their results are written and taken back: while the database would not take those, every
    holder would leave more in doubt than the last one."""
    lanes = {"taken": taken, "repeatable": repeatable}
    async with ledger.together() as write:
        _, rows = await write([(sql.LOCK_IN_FLIGHT, lanes), (sql.RESCUE, lanes)])
        if rows:
            await ledger.rehearse([as_sent(row) for row in rows])
    if rows:
        log.warning("%d targets were in flight when their driver died", len(rows))
    return Rescued(len(rows))


def as_sent(row: Row) -> Result:
    """Return a result of this target, as good as any other to learn whether the database takes it."""
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
    """Those whose targets in flight belong to a run that somebody has locked: they must wait."""
    return {row["account_id"] for row in await ledger.write(sql.BEHIND_LOCKED_RUNS, {"taken": taken})}


async def free_stuck(ledger: Ledger, token: str, silent_after: timedelta) -> None:
    for row in await ledger.write(sql.FREE_STUCK, {"silent_after": silent_after, "mine": token}):
        log.warning("a driver has not beaten for %s: its locks were freed", silent_after, extra={"slot": row["slot"]})


def suspects_allowed(suspects: int) -> int:
    """How many of these suspect lanes a driver takes at a time: half of them. A lane that delivers is no suspect any
    more, so that after a few crashes only the lane that causes them is left."""
    return max(1, suspects // 2)
