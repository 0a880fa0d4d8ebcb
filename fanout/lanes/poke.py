"""Telling a lane that something changed. Whoever adds work, pauses, resumes or retunes calls this."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fanout.lanes.statements import Statement, execute

# `poke` makes a lane that is being driven look again; `due_at` makes a driver take one that is not.
POKE = """
INSERT INTO fanout_lanestate (account_id, epoch, holder, due_at, poke, batch_sent, slow_factor, sample, probing,
                              crashes, why)
SELECT id, 0, '', %(at)s::timestamptz, 1, 0, 1.0, '', %(probing)s::boolean, 0, ''
  FROM unnest(%(accounts)s::bigint[]) AS id ORDER BY id
ON CONFLICT (account_id) DO UPDATE
   SET poke = fanout_lanestate.poke + 1,
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
