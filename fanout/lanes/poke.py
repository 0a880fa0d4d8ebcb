"""Telling a lane that something changed. Whoever adds work, pauses, resumes or retunes calls this."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from fanout.lanes.statements import Statement, execute

# Nothing is written with a later moment than this: a run's lanes are poked a minute before it starts, and machines'
# clocks differ by less than the rest.
LATEST_PROGRESS = timedelta(seconds=65)

# `poke` makes a lane that is being driven look again; `due_at` makes a driver take one that is not.
POKE = """
INSERT INTO fanout_lanestate (account_id, epoch, holder, due_at, poke, batch_sent, slow_factor, sample, probing,
                              crashes, why, progress_at)
SELECT id, 0, '', %(at)s::timestamptz, 1, 0, 1.0, '', %(probing)s::boolean, 0, '', %(at)s::timestamptz
  FROM unnest(%(accounts)s::bigint[]) AS id ORDER BY id
ON CONFLICT (account_id) DO UPDATE
   SET poke = fanout_lanestate.poke + 1, progress_at = excluded.progress_at,
       due_at = least(coalesce(fanout_lanestate.due_at, excluded.due_at), excluded.due_at)
"""

# Half-open: the next message is a single trial, judged by its own outcome, and old crashes are forgotten.
PROBE = f"{POKE.rstrip()},\n       probing = true, sample = '', crashes = 0\n"


def poke(accounts: Iterable[int], at: datetime) -> None:
    """In the caller's transaction: the lane sees the poke together with what it is about."""
    execute(*poking(accounts, at))


def poking(accounts: Iterable[int], at: datetime) -> Statement:
    return POKE, {"accounts": sorted(set(accounts)), "at": at, "probing": False}


def probing(accounts: Iterable[int], at: datetime) -> Statement:
    """After trouble: a poke, and the next message is a single trial."""
    return PROBE, {"accounts": sorted(set(accounts)), "at": at, "probing": True}


WAKE = """
UPDATE fanout_lanestate SET poke = poke + 1, due_at = %(now)s, progress_at = %(now)s
 WHERE due_at > %(now)s AND progress_at > %(latest)s
RETURNING account_id
"""


def wake_after_clock_change(now: datetime) -> int:
    """A lane has made progress in the future: the clock was set back, and what was parked for a minute would sleep for
    as long as the clock was set back. The lane looks again, and parks itself for as long as it should."""
    return len(execute(WAKE, {"now": now, "latest": now + LATEST_PROGRESS}))
