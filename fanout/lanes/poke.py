"""Telling a lane that something changed. Whoever adds work, pauses, resumes or retunes calls this."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import connection

# `poke` makes a lane that is being driven look again; `due_at` makes a driver take one that is not.
POKE = """
INSERT INTO fanout_lanestate (account_id, epoch, holder, due_at, poke, batch_sent, slow_factor, sample, probing,
                              crashes, why)
SELECT id, 0, '', %(at)s, 1, 0, 1.0, '', false, 0, '' FROM unnest(%(accounts)s::bigint[]) AS id ORDER BY id
ON CONFLICT (account_id) DO UPDATE
   SET poke = fanout_lanestate.poke + 1,
       due_at = least(coalesce(fanout_lanestate.due_at, excluded.due_at), excluded.due_at)
"""


def poke(accounts: Iterable[int], at: datetime) -> None:
    """In the caller's transaction: the lane sees the poke together with what it is about."""
    with connection.cursor() as cursor:
        cursor.execute(POKE, {"accounts": sorted(set(accounts)), "at": at})


def probe(accounts: Iterable[int], at: datetime) -> None:
    """Half-open: the next message is a single trial."""
    poke(accounts, at)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE fanout_lanestate SET probing = true, sample = '', crashes = 0 WHERE account_id = ANY(%s)",
            [list(accounts)],
        )
