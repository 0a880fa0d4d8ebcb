"""The rows of lanes: work makes a lane due and wakes it, drivers take it, park it and give it back.

Every change that adds work, pauses, resumes or retunes wakes the lanes concerned. What a crash leaves behind is in
`fanout.engine.holding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts.models import Account
from fanout.database import LOCK_RUNS, Statement, execute, lock_in_order
from fanout.models.run import Run, in_sql
from fanout.rules.pace import ELSEWHERE_MOST, SLOW

# No moment later than this is ever written: machines' clocks differ by less.
LATEST_PROGRESS = timedelta(seconds=65)

# `wake_count` makes a lane that is being driven reload; `due_at` makes a driver take one that is not.
WAKE = """
INSERT INTO fanout_lanestate (account_id, epoch, holder, due_at, wake_count, batch_sent, slow_factor, sample, probing,
                              crashes, why, progress_at)
SELECT id, 0, '', due_at, 1, 0, 1.0, '', %(probing)s::boolean, 0, '', %(now)s::timestamptz
  FROM unnest(%(accounts)s::bigint[], %(due)s::timestamptz[]) AS p(id, due_at) ORDER BY id
ON CONFLICT (account_id) DO UPDATE
   SET wake_count = fanout_lanestate.wake_count + 1, progress_at = excluded.progress_at,
       due_at = least(coalesce(fanout_lanestate.due_at, excluded.due_at), excluded.due_at)
"""

# Half-open: the next message is a single trial, judged by its own outcome, and old crashes are forgotten.
PROBE = f"{WAKE.rstrip()},\n       probing = true, sample = '', sample_run = NULL, crashes = 0\n"


def wake_lanes(accounts: Iterable[int], now: datetime) -> None:
    """Wake lanes in the caller's transaction, together with the change they must see."""
    execute(*wake_statement(accounts, now))


def wake_lanes_at(due: Mapping[int, datetime], now: datetime) -> None:
    """Wake each lane for its own moment. The rows stay locked until the caller's transaction ends, and drivers wait for
    them: a long transaction calls this once, at its end."""
    if due:
        execute(WAKE, _parameters(due, now, probing=False))


LOCK_LANE_ROWS = lock_in_order("fanout_lanestate", "account_id", "%(accounts)s")


def lock_lanes(accounts: Iterable[int]) -> None:
    """Lock lanes in the order of their accounts, before waking several of them in one transaction."""
    execute(LOCK_LANE_ROWS, {"accounts": list(accounts)})


def wake_statement(accounts: Iterable[int], now: datetime) -> Statement:
    return WAKE, _parameters(dict.fromkeys(accounts, now), now, probing=False)


def probe_statement(accounts: Iterable[int], now: datetime) -> Statement:
    """Return the statement that wakes lanes after trouble: the next message is a single trial."""
    return PROBE, _parameters(dict.fromkeys(accounts, now), now, probing=True)


def _parameters(due: Mapping[int, datetime], now: datetime, probing: bool) -> dict[str, Any]:
    """Return the parameters in the order in which lanes are locked."""
    accounts = sorted(due)
    return {"accounts": accounts, "due": [due[account] for account in accounts], "now": now, "probing": probing}


# A break that a provider asked for, where the lane has another holder than the one that was asked, which reads it when
# it is woken. It is never shortened.
HOLD_LANES = """
UPDATE fanout_lanestate l SET next_send_at = greatest(l.next_send_at, h.until), probing = true
  FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[]) AS h(account_id, epoch, until)
 WHERE l.account_id = h.account_id AND l.epoch <> h.epoch
"""
NO_EPOCH = -1


SLOW_LANE = """
UPDATE fanout_lanestate SET slow_factor = greatest(slow_factor, %(factor)s) WHERE account_id = %(account)s
"""


def hold_lane(account: int, until: datetime, slow: bool, now: datetime) -> None:
    """Hold a lane for a break that its provider asked for in a report, whichever driver has it, and slow it down
    afterwards as after a refusal at once."""
    execute(HOLD_LANES, [[account], [NO_EPOCH], [until]])
    if slow:
        execute(SLOW_LANE, {"account": account, "factor": SLOW})
    wake_lanes([account], now)


# The bucket after messages that take `spent` were written elsewhere, as fanout.rules.pace.spent_elsewhere counts.
ARRIVAL = f"""greatest(l.theoretical_arrival, least(greatest(l.theoretical_arrival, {{at}}) + {{spent}},
                       {{at}} + interval '{ELSEWHERE_MOST.total_seconds()} s'))"""

# A lane that is being driven keeps its pace in memory: it reads the count again, and what it has not read when it is
# left is taken then (LEAVE_LANES). The others have it in their row.
SPEND_ELSEWHERE = f"""
UPDATE fanout_lanestate l
   SET written_elsewhere = written_elsewhere + 1, wake_count = wake_count + 1,
       theoretical_arrival = CASE WHEN holder <> '' THEN theoretical_arrival
                                  ELSE {ARRIVAL.format(at="%(at)s", spent="%(interval)s")} END
 WHERE account_id = %(account)s
"""


def spend_elsewhere(account: int, interval: timedelta, at: datetime) -> None:
    """Take a message that a person wrote with the account's phone from the lane's pace."""
    execute(SPEND_ELSEWHERE, {"account": account, "interval": interval, "at": at})


WAKE_AFTER_CLOCK_CHANGE = """
UPDATE fanout_lanestate SET wake_count = wake_count + 1, due_at = %(now)s, progress_at = %(now)s
 WHERE account_id IN (SELECT account_id FROM fanout_lanestate WHERE due_at > %(now)s AND progress_at > %(latest)s
                       ORDER BY account_id FOR NO KEY UPDATE)
RETURNING account_id
"""


def wake_after_clock_change(now: datetime) -> int:
    """Wake lanes that made progress in the future: the clock was set back, and a lane parked for a minute would sleep
    for as long as that. It parks itself again for as long as it should."""
    return len(execute(WAKE_AFTER_CLOCK_CHANGE, {"now": now, "latest": now + LATEST_PROGRESS}))


# --- drivers take lanes, and give them back ----------------------------------------------------------------

# Four times a second: lanes that are due and free.
DUE_LANES = """
SELECT account_id, crashes, due_at FROM fanout_lanestate
 WHERE due_at <= %(now)s AND holder = '' ORDER BY due_at, account_id LIMIT %(limit)s
"""

# Once a second while more lanes are due than drivers have places: how many lanes of each owner wait for one.
WAITING_OWNERS = """
SELECT a.owner_id, count(*) AS lanes FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id
 WHERE l.due_at <= %(now)s AND l.holder = '' GROUP BY a.owner_id
"""

# DUE_LANES where several owners wait for too few places: first those whose owner has the fewest, counting the places
# that it holds already (`owners`, `held`).
DUE_LANES_IN_TURN = """
SELECT account_id, crashes, due_at
  FROM (SELECT l.account_id, l.crashes, l.due_at,
               row_number() OVER (PARTITION BY a.owner_id ORDER BY l.due_at, l.account_id)
               + coalesce((SELECT h.held FROM unnest(%(owners)s::bigint[], %(held)s::int[]) AS h(owner, held)
                            WHERE h.owner = a.owner_id), 0) AS place
          FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id
         WHERE l.due_at <= %(now)s AND l.holder = '') AS waiting
 ORDER BY place, due_at, account_id LIMIT %(limit)s
"""

TRY_LANE_LOCKS = "SELECT id FROM unnest(%s::int[]) AS id WHERE pg_try_advisory_lock(%s, id)"

GIVE_LANE_LOCKS_BACK = "SELECT pg_advisory_unlock(%s, id) FROM unnest(%s::int[]) AS id"

# Lanes that no other session has locked. A client that stands still in a transaction must not stop every lane of a
# driver, so drivers never wait for the row of a lane: they come back to it.
UNLOCKED = """
SELECT account_id FROM fanout_lanestate WHERE account_id = ANY(%s) ORDER BY account_id FOR NO KEY UPDATE SKIP LOCKED
"""

# Taking a lane fences all earlier holders. Returns the lanes taken.
TAKE_LANES = f"""
WITH free AS MATERIALIZED ({UNLOCKED})
UPDATE fanout_lanestate l SET epoch = l.epoch + 1, holder = %s FROM free WHERE l.account_id = free.account_id
RETURNING l.account_id
"""

# Park a lane with its wake-up time, unless it was woken since it last looked. A lane that hands over goes behind those
# that have waited longer: with more accounts than capacity, they take turns. Messages that were written on the phone
# since the lane last looked are taken from its pace, at `pace` each.
LEAVE_LANES = f"""
WITH p AS MATERIALIZED (
  SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[], %s::bool[],
                       %s::bigint[], %s::interval[], %s::timestamptz[])
    AS p(account_id, epoch, wake_count, due_at, why, failed, written, pace, at)
), free AS MATERIALIZED ({UNLOCKED.replace("%s", "ARRAY(SELECT account_id FROM p)")}), gone AS (
  UPDATE fanout_lanestate l
     SET holder = '', crashes = CASE WHEN p.failed THEN l.crashes + 1 ELSE 0 END,
         due_at = CASE WHEN l.wake_count = p.wake_count THEN p.due_at ELSE l.due_at END, why = p.why,
         theoretical_arrival = CASE WHEN l.written_elsewhere <= p.written THEN l.theoretical_arrival
             ELSE {ARRIVAL.format(at="p.at", spent="(l.written_elsewhere - p.written) * p.pace")} END
    FROM p JOIN free ON free.account_id = p.account_id
   WHERE l.account_id = p.account_id AND l.epoch = p.epoch
  RETURNING l.account_id, l.crashes
)
SELECT p.account_id, coalesce(gone.crashes, 0) AS crashes,
       p.account_id NOT IN (SELECT account_id FROM free)
       AND EXISTS (SELECT FROM fanout_lanestate l WHERE l.account_id = p.account_id) AS locked
  FROM p LEFT JOIN gone ON gone.account_id = p.account_id
"""

# Give back lanes that were locked and cannot be driven. The next holder settles their targets in flight. Returns those
# whose row was free, whether they were still ours or not.
GIVE_BACK = f"""
WITH p AS MATERIALIZED (
  SELECT * FROM unnest(%(accounts)s::bigint[], %(until)s::timestamptz[], %(why)s::text[]) AS p(account_id, until, why)
), free AS MATERIALIZED ({UNLOCKED.replace("%s", "%(accounts)s::bigint[]")}), given AS (
  UPDATE fanout_lanestate l SET holder = '', due_at = greatest(l.due_at, p.until), why = p.why
    FROM p JOIN free ON free.account_id = p.account_id
   WHERE l.account_id = p.account_id AND l.holder = %(token)s
)
SELECT account_id FROM p
 WHERE account_id IN (SELECT account_id FROM free)
    OR NOT EXISTS (SELECT FROM fanout_lanestate l WHERE l.account_id = p.account_id)
"""

LEAVE_UNREAD = """
UPDATE fanout_lanestate SET holder = '', crashes = crashes + 1, due_at = %(until)s, why = 'the account cannot be read'
 WHERE account_id = %(account)s RETURNING crashes
"""

NOTHING_DUE = "UPDATE fanout_lanestate SET due_at = NULL, crashes = 0 WHERE account_id = %s"

# Four times a second for all lanes held: returns only those that changed.
CHANGED_LANES = """
SELECT l.account_id, l.wake_count, l.epoch
  FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS mine(account_id, wake_count, epoch)
  JOIN fanout_lanestate l ON l.account_id = mine.account_id
 WHERE l.wake_count <> mine.wake_count OR l.epoch <> mine.epoch
"""


# --- after an outage --------------------------------------------------------------------------------------

#: A lane that a provider's outage holds says why (fanout.engine.dispatcher), or counts the calls without an answer.
OUTAGE = "unavailable: "
HELD = f"""
(why LIKE '{OUTAGE}%%' OR timeouts > 0) AND holder = '' AND probing AND next_send_at > %(now)s
"""
HELD_LANES = f"SELECT account_id FROM fanout_lanestate WHERE account_id = ANY(%(accounts)s) AND {HELD}"
LIVE_RUNS = f"SELECT id FROM fanout_run WHERE status IN {in_sql(Run.LIVE)} AND lanes && %(accounts)s::bigint[]"
TRY_NOW = """
UPDATE fanout_runtarget SET next_attempt_at = NULL
 WHERE run_id = ANY(%(runs)s) AND account_id = ANY(%(accounts)s) AND status = 'pending'
   AND error_kind = 'unavailable' AND next_attempt_at > %(now)s
"""
# The bucket stays as it is, and so does the pause after a batch (of accounts that have batches), which has just ended
# where nothing of the next one was sent. The next message is still a single one.
END_HOLD = f"""
UPDATE fanout_lanestate
   SET next_send_at = CASE WHEN batch_sent = 0 AND account_id = ANY(%(in_batches)s) THEN next_send_at END,
       wake_count = wake_count + 1, due_at = %(now)s, progress_at = %(now)s, timeouts = 0
 WHERE account_id IN (SELECT account_id FROM fanout_lanestate WHERE account_id = ANY(%(accounts)s)
                       ORDER BY account_id FOR NO KEY UPDATE) AND {HELD}
RETURNING account_id
"""


@transaction.atomic
def wake_after_outage(accounts: Sequence[int], now: datetime) -> list[int]:
    """Wake lanes that wait because their provider was away, and is back. Returns their accounts."""
    held = [row["account_id"] for row in execute(HELD_LANES, {"accounts": list(accounts), "now": now})]
    if not held:
        return []
    runs = [row["id"] for row in execute(LIVE_RUNS, {"accounts": held})]
    execute(LOCK_RUNS, {"runs": runs})
    execute(TRY_NOW, {"runs": runs, "accounts": held, "now": now})
    in_batches = [
        account.pk for account in Account.objects.filter(pk__in=held) if account.settings()["batch_size"].value
    ]
    lanes = {"accounts": held, "in_batches": in_batches, "now": now}
    return [row["account_id"] for row in execute(END_HOLD, lanes)]
