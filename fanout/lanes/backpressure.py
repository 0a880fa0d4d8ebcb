"""An account's queue of follow-ups: how many wait in it, whether it is above its threshold, and its lock."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.db import connection

from fanout.lanes.statements import execute
from fanout.models.run import Run, in_sql
from fanout.rules.follow_ups import QueueLimits

QUEUE_LOCKS = 0x435246  # "CRF": the first key of an advisory lock; the second is the account

# By account and run, each a bounded look into the index of pending targets. What is paused is queued too: resumed, all
# of it goes out.
QUEUED = f"""
SELECT a.id, least(sum(q.n), %(most)s)::int AS n
  FROM unnest(%(accounts)s::bigint[]) AS a(id)
  LEFT JOIN LATERAL (
    SELECT r.id FROM fanout_run r WHERE r.follow_up AND r.status IN {in_sql(Run.LIVE)} AND r.lanes && ARRAY[a.id]
    UNION ALL
    SELECT r.id FROM fanout_run r
     WHERE r.follow_up AND r.status IN ('preparing', 'paused') AND r.lanes && ARRAY[a.id]
  ) AS r ON true
  LEFT JOIN LATERAL (
    SELECT count(*) AS n FROM (SELECT FROM fanout_runtarget t
                                WHERE t.run_id = r.id AND t.account_id = a.id AND t.status = 'pending'
                                LIMIT %(most)s) AS t) AS q ON true
 GROUP BY a.id
"""


def queue_limits() -> QueueLimits:
    return QueueLimits(settings.BOT_BACKPRESSURE_THRESHOLD, settings.BOT_QUEUE_MAX)


def queued(accounts: Collection[int], most: int) -> dict[int, int]:
    """How many follow-ups wait in each account's queue, counted up to `most`."""
    with connection.cursor() as cursor:
        cursor.execute(QUEUED, {"accounts": list(accounts), "most": most})
        return dict(cursor.fetchall())


def up_to_threshold(accounts: Collection[int], limits: QueueLimits) -> dict[str, Any]:
    """Parameters of `QUEUED` for whoever only asks whether the queues are above the threshold."""
    return {"accounts": list(accounts), "most": limits.threshold + 1}


def under_pressure(account: int) -> bool:
    limits = queue_limits()
    return any(limits.pressed(row["n"]) for row in execute(QUEUED, up_to_threshold([account], limits)))


def lock_queues(accounts: Collection[int]) -> None:
    """Until the caller's transaction ends: two runs made at the same moment must not both fill what is left."""
    with connection.cursor() as cursor:
        for account in sorted(accounts):
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [QUEUE_LOCKS, account])
