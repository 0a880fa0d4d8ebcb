"""Hold lanes: the locks of drivers, how they share lanes and places, and what a crash leaves behind.

The statements by which a lane is woken, taken and given back are in `fanout.lanes.lane_rows`.

A crash leaves targets in flight, lanes without a holder, drivers that hold locks but do not beat, and lanes that kill
their driver again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import psycopg

from fanout.database import lock_in_order
from fanout.engine.closing import change_account, describe_again
from fanout.engine.commit import Result, locked_rows
from fanout.engine.connection import Row, may_work_later
from fanout.engine.ledger import Ledger
from fanout.rules.outcomes import AccountChange

log = logging.getLogger("crier.rescue")

SUSPECT_AFTER = 2  # crashes in a row without a delivery
SUSPEND_AFTER = 5

# Two-key advisory locks: the first key is the namespace, the second the account or the slot.
LANE_LOCKS = 0x43524C  # "CRL"
SLOT_LOCKS = 0x435253  # "CRS"

# --- places and drivers -----------------------------------------------------------------------------------

# Drivers that hold their locks: the session is there. One that has not beaten for long is about to lose it. Beats are
# written and judged by the database's clock alone: machines whose clocks differ would end each other's sessions.
LIVE_DRIVERS = """
SELECT d.* FROM fanout_driver d
  JOIN pg_stat_activity a ON a.pid = d.backend_pid AND a.datname = current_database()
 WHERE d.ended_at IS NULL AND d.beat_at > clock_timestamp() - %(silent_after)s
"""

# Once a second: lanes whose holder is dead. Our own are never among them: the same session would get the same lock a
# second time.
ORPHANED_LANES = f"""
SELECT account_id, crashes, due_at FROM fanout_lanestate
 WHERE due_at <= %(now)s AND holder <> '' AND holder <> %(token)s
   AND NOT holder IN (SELECT token FROM ({LIVE_DRIVERS}) AS live)
 ORDER BY due_at, account_id LIMIT %(limit)s
"""

# How many lanes are due, and how many drivers share them. A slot whose driver has just ended counts: its successor is
# on its way.
SHARE = f"""
SELECT (SELECT count(*) FROM fanout_lanestate WHERE due_at <= %(now)s) AS due,
       (SELECT count(*) FROM ({LIVE_DRIVERS}) AS live)
     + (SELECT count(*) FROM fanout_driver WHERE ended_at > clock_timestamp() - %(successor_within)s) AS drivers
"""

LOCKED_LANES = locked_rows("lane", "fanout_lanestate", "account_id", "%(lanes)s::bigint[]")


def places_to_free(
    held: Mapping[int, int], waiting: Mapping[int, int], capacity: int, ending: int = 0
) -> dict[int, int]:
    """Return how many lanes of each owner should end, so that owners who have less than their share of the places get
    theirs: equal shares for all that hold places or wait for one. `held`, `waiting`: lanes by owner; `ending`: lanes
    that free their places anyway."""
    share = max(1, capacity // max(1, len(held.keys() | waiting.keys())))
    wanted = sum(min(lanes, max(0, share - held.get(owner, 0))) for owner, lanes in waiting.items()) - ending
    freed: dict[int, int] = {}
    for owner in sorted(held, key=lambda owner: (-held[owner], owner)):
        if wanted > 0 and held[owner] > share:
            freed[owner] = min(wanted, held[owner] - share)
            wanted -= freed[owner]
    return freed


# --- drivers --------------------------------------------------------------------------------------------

# The first free slot of this machine. A machine's slots are its own, so that each takes its share of the lanes.
LOCK_SLOT = """
SELECT slot FROM generate_series(0, %(slots)s - 1) AS slot
 WHERE pg_try_advisory_lock(%(space)s, hashtext(%(host)s || ':' || slot)) LIMIT 1
"""

# Drivers that left lanes behind without a crash: PostgreSQL was restarted, or they ended in order and it took no lane
# back (a full disk).
NOT_CRASHED = "(d.beat_at < pg_postmaster_start_time() OR d.ended_at IS NOT NULL)"

# The row of the slot's last driver is replaced, and with it what COUNT_CRASH needs. So lanes of drivers that did not
# crash are freed here.
START_DRIVER = f"""
WITH left_behind AS (
  UPDATE fanout_lanestate SET holder = ''
   WHERE account_id IN (SELECT account_id FROM fanout_lanestate
                         WHERE holder IN (SELECT d.token FROM fanout_driver d WHERE {NOT_CRASHED})
                         ORDER BY account_id FOR NO KEY UPDATE SKIP LOCKED)
)
INSERT INTO fanout_driver (host, slot, token, pid, backend_pid, started_at, beat_at, lanes, synchronous)
VALUES (%(host)s, %(slot)s, %(token)s, %(pid)s, pg_backend_pid(), clock_timestamp(), clock_timestamp(), 0, false)
ON CONFLICT (host, slot) DO UPDATE SET token = excluded.token, pid = excluded.pid, backend_pid = excluded.backend_pid,
   started_at = excluded.started_at, beat_at = excluded.beat_at, ended_at = NULL, lanes = 0
"""

# Whether commits wait for a standby is needed when the machine does not come back after a fail-over.
BEAT = """
UPDATE fanout_driver
   SET beat_at = clock_timestamp(), lanes = %s,
       synchronous = current_setting('synchronous_standby_names') <> ''
                     AND current_setting('synchronous_commit') NOT IN ('off', 'local')
 WHERE token = %s
RETURNING slot, beat_at, (SELECT held FROM fanout_knownserver) AS held
"""

END_DRIVER = "UPDATE fanout_driver SET ended_at = clock_timestamp(), lanes = 0 WHERE token = %s"

# --- crashes --------------------------------------------------------------------------------------------

# Holders of lanes whose lock was free although they had not given them back: dead, or cut off from the database.
LEFT_BY = "SELECT DISTINCT holder FROM fanout_lanestate WHERE account_id = ANY(%s) AND holder NOT IN ('', %s)"

# A driver carries many lanes and one of them may be what kills it. After two crashes in a row without a delivery in
# between, a lane is a suspect. Where a dead driver held suspects, only they are counted again. A crash counts only
# against a lane that had something in flight, or workers killed from outside would suspend accounts that had no time to
# deliver.
COUNT_CRASH = f"""
WITH held AS (
  SELECT l.account_id, l.crashes >= %(suspect)s AS suspect,
         -- in flight under this holder: what an earlier one left is not its doing
         EXISTS (SELECT FROM fanout_runtarget t WHERE t.account_id = l.account_id AND t.status = 'sending'
                                                  AND t.claim_epoch = l.epoch) AS busy,
         NOT EXISTS (SELECT FROM fanout_driver d WHERE d.token = l.holder AND {NOT_CRASHED}) AS crashed
    FROM fanout_lanestate l WHERE l.holder = %(holder)s
   ORDER BY l.account_id FOR NO KEY UPDATE OF l SKIP LOCKED
), suspects AS (SELECT count(*) FILTER (WHERE suspect) AS n FROM held)
UPDATE fanout_lanestate l
   SET holder = '', crashes = l.crashes + CASE WHEN held.crashed AND held.busy AND (held.suspect OR suspects.n = 0)
                                               THEN 1 ELSE 0 END
  FROM held, suspects WHERE l.account_id = held.account_id
RETURNING l.account_id, l.crashes, suspects.n = 1 AND held.suspect AS alone
"""

# A driver that does not beat but still holds its connection (stopped, or stuck) keeps its locks: end the connection.
# The epoch keeps the driver from claiming.
FREE_STUCK = """
SELECT d.slot, d.token, pg_terminate_backend(a.pid) AS freed
  FROM fanout_driver d JOIN pg_stat_activity a ON a.pid = d.backend_pid AND a.datname = current_database()
 WHERE d.ended_at IS NULL AND d.beat_at < clock_timestamp() - %(silent_after)s AND d.token <> %(mine)s
   AND a.backend_start < d.beat_at AND a.usename = current_user
"""


async def settle_crashes(ledger: Ledger, accounts: list[int], token: str, now: datetime) -> list[int]:
    """Count the crashes of the lanes just locked and of their dead drivers' other lanes. Returns the accounts
    that were suspended for it."""
    suspended = []
    for row in await ledger.write(LEFT_BY, (accounts, token)):
        for lane in await ledger.write(COUNT_CRASH, {"holder": row["holder"], "suspect": SUSPECT_AFTER}):
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


# --- targets in flight ------------------------------------------------------------------------------------

# Before RESCUE: runs are locked before their targets. In flight is at most the lanes' concurrency, however large the
# runs are.
LOCK_IN_FLIGHT = lock_in_order(
    "fanout_run",
    "id",
    "ARRAY(SELECT run_id FROM fanout_runtarget WHERE account_id = ANY(%(taken)s) AND status = 'sending')",
)

# Lanes that cannot be rescued now, because another session has locked a run or a target of theirs.
BEHIND_LOCKED_ROWS = """
WITH in_flight AS MATERIALIZED (
  SELECT id, account_id, run_id FROM fanout_runtarget WHERE account_id = ANY(%(taken)s) AND status = 'sending'
), free_runs AS MATERIALIZED (
  SELECT id FROM fanout_run WHERE id = ANY(ARRAY(SELECT run_id FROM in_flight)) FOR NO KEY UPDATE SKIP LOCKED
), free_targets AS MATERIALIZED (
  SELECT id FROM fanout_runtarget WHERE id = ANY(ARRAY(SELECT id FROM in_flight)) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT DISTINCT account_id FROM in_flight
 WHERE run_id NOT IN (SELECT id FROM free_runs) OR id NOT IN (SELECT id FROM free_targets)
"""

# Targets that a dead holder left in flight may have gone out, unless the provider drops repeats.
RESCUE = """
UPDATE fanout_runtarget t
   SET status = CASE WHEN t.account_id = ANY(%(repeatable)s) THEN 'pending' ELSE 'unconfirmed' END,
       next_attempt_at = NULL, settled_at = NULL, error_kind = 'unknown', in_doubt = true,
       error = CASE WHEN t.account_id = ANY(%(repeatable)s) THEN 'worker died while sending; repeated under the same id'
                    ELSE 'worker died while sending: it may have been delivered' END
 WHERE t.account_id = ANY(%(taken)s) AND t.status = 'sending'
RETURNING t.id, t.run_id, t.account_id, t.claim_epoch, t.claimed_at, t.parts_sent, t.attempts
"""


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
        _, rows = await write([(LOCK_IN_FLIGHT, lanes), (RESCUE, lanes)])
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


# Runs that were paused while their last message was in flight, and whose lane ended, or died, before it learnt of the
# pause. Account by account: see RUNS in `loading.py`.
PAUSED_WITH_NOTHING_LEFT = """
SELECT DISTINCT paused.id FROM unnest(%(taken)s::bigint[]) AS a(id)
 CROSS JOIN LATERAL (SELECT r.id FROM fanout_run r WHERE r.status = 'paused' AND r.lanes && ARRAY[a.id]
                                                     AND r.pending = 0 AND r.sending = 0) AS paused
 ORDER BY 1
"""


async def end_paused_runs(ledger: Ledger, taken: list[int], now: datetime) -> None:
    """Finish runs of these lanes that are paused with nothing left to send. One that is locked is left to the minute's
    task."""
    for run in await ledger.read(PAUSED_WITH_NOTHING_LEFT, {"taken": taken}):
        try:
            await describe_again(ledger, run["id"], now)
        except psycopg.errors.LockNotAvailable as error:
            log.warning("a run cannot be finished now: %s", error, extra={"run": run["id"]})


async def behind_locked_rows(ledger: Ledger, taken: list[int]) -> set[int]:
    """Return the accounts with targets in flight that another session has locked, or whose run it has: they must
    wait."""
    return {row["account_id"] for row in await ledger.write(BEHIND_LOCKED_ROWS, {"taken": taken})}


async def free_stuck(ledger: Ledger, token: str, silent_after: timedelta) -> None:
    for row in await ledger.write(FREE_STUCK, {"silent_after": silent_after, "mine": token}):
        log.warning("a driver has not beaten for %s: its locks were freed", silent_after, extra={"slot": row["slot"]})


def suspects_allowed(suspects: int) -> int:
    """Return how many of these suspect lanes a driver takes at a time: half of them. A lane that delivers is no longer
    a suspect, so that after a few crashes only the lane that causes them is left."""
    return max(1, suspects // 2)
