"""An account's limits as the database has them: daily caps and their use, and its queue of follow-ups.

The lane, the plan, the forecast, the `why` line and the admin all ask here, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from django.conf import settings
from django.db import connection

from accounts.actions import Action
from accounts.channels.registry import channel
from accounts.models import Account, DailyLimit
from fanout.database import execute
from fanout.lanes.account_state import AccountState, read_counts
from fanout.models.run import Run, in_sql
from fanout.rules.follow_up_limits import QueueLimits
from fanout.rules.gates import AccountFacts, Cap, HasLimit, WarmUp, cap_of_day, local_date
from reminders.window import local_day_bounds

# Sent counts; in flight and unconfirmed count as sent. For many accounts and actions at once, each with the bounds of
# its own day and the actions that its channel counts as this one (`day_of`).
USED_TODAY = """
SELECT d.account_id, d.action,
       (SELECT count(*) FROM fanout_activity v
         WHERE v.account_id = d.account_id AND v.action = d.action AND v.outcome = 'sent'
           AND v.at >= d.starts AND v.at < d.ends)
     + (SELECT count(*) FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
         WHERE t.account_id = d.account_id AND t.status IN ('sending', 'unconfirmed')
           AND r.action = ANY(string_to_array(d.counted, ','))
           AND t.claimed_at >= d.starts AND t.claimed_at < d.ends) AS used
  FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])
    AS d(account_id, action, counted, starts, ends)
"""
Day = tuple[int, str, str, datetime, datetime]
CapsByDay = Callable[[date], Cap]


def day_of(account_id: int, channel_key: str, action: str, bounds: tuple[datetime, datetime]) -> Day:
    """Return the row that USED_TODAY takes for one account and action."""
    described = channel(channel_key)
    counted = ",".join(other for other in Action.values if described.counts(other) == action)
    return account_id, action, counted, *bounds


def as_arrays(days: Sequence[Day]) -> list[list[Any]]:
    """Return the days as the arrays that USED_TODAY takes."""
    return [list(column) for column in zip(*days)]


def caps(account: Account, action: str) -> CapsByDay:
    """Return a function for the cap of any day, with one query."""
    return caps_by_day(account, action, DailyLimit.objects.filter(account=account, action=action).first())


def caps_by_day(account: Account, action: str, own: HasLimit | None) -> CapsByDay:
    """Return a function for the cap of any day, where the account's own limit has been read."""
    return lambda day: cap_of_row(account.__dict__, action, own, day)


def cap_of_row(account: Mapping[str, Any], action: str, own: HasLimit | None, day: date) -> Cap:
    """Return the cap of a day for the columns of an account."""
    warmup = WarmUp(account["warmup_started_on"], account["warmup_days"], account["warmup_floor"])
    return cap_of_day(account["channel"], action, own, settings.BOT_DAILY_LIMITS, warmup, day)


def cap_on(account: Account, action: str, day: date) -> Cap:
    return caps(account, action)(day)


def cap_today(account: Account, action: str, now: datetime) -> Cap:
    """Return the cap of the account's calendar day."""
    return cap_on(account, action, local_date(account.timezone, now))


def facts_now(account: Account, action: str, now: datetime) -> AccountFacts:
    """Return the account as the gates see it, with all that its limits count."""
    state = AccountState.of(account, getattr(account, "lane", None), now)
    read_counts([state])
    return with_cap(state.base_facts, account, action, now)


def with_cap(facts: AccountFacts, account: Account, action: str, now: datetime) -> AccountFacts:
    """Return the facts with the account's cap for the action and what is used of it today."""
    cap = cap_today(account, action, now).limit
    return replace(
        facts,
        cap=cap,
        used=used_today(account, action, now) if cap is not None else 0,
        day_ends_at=local_day_bounds(account.timezone, now)[1],
    )


def used_today(account: Account, action: str, now: datetime) -> int:
    """Return how many were sent today, with in flight and unconfirmed, by the lane's own statement."""
    day = day_of(account.pk, account.channel, action, local_day_bounds(account.timezone, now))
    return used_on([day])[account.pk, action]


def used_on(days: Sequence[Day]) -> dict[tuple[int, str], int]:
    """Return the use of many accounts and actions."""
    if not days:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(USED_TODAY, as_arrays(days))
        return {(account_id, action): int(used) for account_id, action, used in cursor.fetchall()}


# --- the queue of follow-ups ------------------------------------------------------------------------------


QUEUE_LOCKS = 0x435246  # "CRF": the first key of an advisory lock; the second is the account

# By account and run, each a bounded look into the index of pending targets. Paused runs count too: when they are
# resumed, all of it goes out.
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
    """Return how many follow-ups wait in each account's queue, counted up to `most`."""
    with connection.cursor() as cursor:
        cursor.execute(QUEUED, {"accounts": list(accounts), "most": most})
        return dict(cursor.fetchall())


def up_to_threshold(accounts: Collection[int], limits: QueueLimits) -> dict[str, Any]:
    """Return the parameters of `QUEUED` that count only as far as the threshold."""
    return {"accounts": list(accounts), "most": limits.threshold + 1}


def under_backpressure(account: int) -> bool:
    limits = queue_limits()
    return any(limits.above_threshold(row["n"]) for row in execute(QUEUED, up_to_threshold([account], limits)))


def lock_queues(accounts: Collection[int]) -> None:
    """Lock the queues until the caller's transaction ends: two runs made at the same moment must not both fill what is
    left."""
    with connection.cursor() as cursor:
        for account in sorted(accounts):
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [QUEUE_LOCKS, account])
