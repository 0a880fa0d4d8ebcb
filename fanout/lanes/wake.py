"""Wake lanes: every change that adds work, pauses, resumes or retunes calls this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from fanout.database import Statement, execute, lock_in_order
from fanout.models.run import Run, in_sql

# No moment later than this is ever written: machines' clocks differ by less.
LATEST_PROGRESS = timedelta(seconds=65)

# `poke` makes a lane that is being driven reload; `due_at` makes a driver take one that is not.
WAKE = """
INSERT INTO fanout_lanestate (account_id, epoch, holder, due_at, poke, batch_sent, slow_factor, sample, probing,
                              crashes, why, progress_at)
SELECT id, 0, '', due_at, 1, 0, 1.0, '', %(probing)s::boolean, 0, '', %(now)s::timestamptz
  FROM unnest(%(accounts)s::bigint[], %(due)s::timestamptz[]) AS p(id, due_at) ORDER BY id
ON CONFLICT (account_id) DO UPDATE
   SET poke = fanout_lanestate.poke + 1, progress_at = excluded.progress_at,
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


def hold_lane(account: int, until: datetime, now: datetime) -> None:
    """Hold a lane for a break that its provider asked for in a report, whichever driver has it."""
    execute(HOLD_LANES, [[account], [NO_EPOCH], [until]])
    wake_lanes([account], now)


WAKE_AFTER_CLOCK_CHANGE = """
UPDATE fanout_lanestate SET poke = poke + 1, due_at = %(now)s, progress_at = %(now)s
 WHERE account_id IN (SELECT account_id FROM fanout_lanestate WHERE due_at > %(now)s AND progress_at > %(latest)s
                       ORDER BY account_id FOR NO KEY UPDATE)
RETURNING account_id
"""


def wake_after_clock_change(now: datetime) -> int:
    """Wake lanes that made progress in the future: the clock was set back, and a lane parked for a minute would sleep
    for as long as that. It parks itself again for as long as it should."""
    return len(execute(WAKE_AFTER_CLOCK_CHANGE, {"now": now, "latest": now + LATEST_PROGRESS}))


# --- after an outage --------------------------------------------------------------------------------------

#: How a lane that a provider's outage holds says why (fanout.engine.dispatcher).
HELD = "why LIKE 'unavailable: %%' AND holder = '' AND probing AND next_send_at > %(now)s"
HELD_LANES = f"SELECT account_id FROM fanout_lanestate WHERE account_id = ANY(%(accounts)s) AND {HELD}"
LIVE_RUNS = f"SELECT id FROM fanout_run WHERE status IN {in_sql(Run.LIVE)} AND lanes && %(accounts)s::bigint[]"
LOCK_RUNS = lock_in_order("fanout_run", "id", "%(runs)s")
TRY_NOW = """
UPDATE fanout_runtarget SET next_attempt_at = NULL
 WHERE run_id = ANY(%(runs)s) AND account_id = ANY(%(accounts)s) AND status = 'pending'
   AND error_kind = 'unavailable' AND next_attempt_at > %(now)s
"""
# The bucket stays as it is, and so does the pause after a batch, which has just ended where nothing of the next one was
# sent. The next message is still a single one.
END_HOLD = f"""
UPDATE fanout_lanestate
   SET next_send_at = CASE WHEN batch_sent = 0 THEN next_send_at END, poke = poke + 1, due_at = %(now)s,
       progress_at = %(now)s
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
    return [row["account_id"] for row in execute(END_HOLD, {"accounts": held, "now": now})]
