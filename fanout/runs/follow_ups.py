"""Apply the rules of follow-ups in the database: who may get one at the claim, and what one that went out changes.

A change about a person is made for all recipients with that address, after the runs it touches were locked and the
people in the order of their ids (`lock_people`), as the ledger does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from django.conf import settings
from django.db import connection

from fanout.models import RunTarget
from fanout.rules.follow_up_limits import Limits


def limits() -> Limits:
    return Limits(
        settings.BOT_FOLLOW_UP_MAX_ATTEMPTS,
        timedelta(hours=settings.BOT_FOLLOW_UP_COOLDOWN_HOURS),
        timedelta(hours=settings.BOT_ACTIVE_CHAT_HOURS),
    )


def limits_in_sql() -> list[str]:
    """Return the parameters of `COUNTED`: most attempts, and the cooldown as an interval."""
    return [str(limits().attempts), f"{limits().cooldown.total_seconds():.0f} seconds"]


# --- people ---------------------------------------------------------------------------------------------

LOCK_PEOPLE = "SELECT 1 FROM reminders_recipient WHERE address = ANY(%s::text[]) ORDER BY id FOR NO KEY UPDATE"

# `rules.follow_up_limits.after_attempt` for each row of `went_out` (account_id, address, at); two of them may have gone
# to one person. How many there were, and how many cooldowns began, is added to the account's tallies.
COUNTED = """limits AS (SELECT %s::int AS attempts, %s::interval AS cooldown), people AS (
  SELECT q.id, w.account_id, w.address, w.at, w.n, coalesce(q.cooldown_until <= w.at, false) AS expired
    FROM (SELECT address, max(account_id) AS account_id, max(at) AS at, count(*) AS n FROM went_out GROUP BY address) w
    JOIN reminders_recipient q ON q.address = w.address
   WHERE q.attempts_reset_at IS NULL OR w.at >= q.attempts_reset_at
), counted AS (
  UPDATE reminders_recipient p
     SET follow_up_attempts = a.attempts,
         attempts_reset_at = CASE WHEN a.expired THEN p.cooldown_until ELSE p.attempts_reset_at END,
         cooldown_until = CASE WHEN a.cools THEN greatest(a.at + a.cooldown, a.cooling) ELSE a.cooling END,
         status = CASE WHEN a.active AND a.cools THEN 'not_interested' WHEN a.active THEN 'active' ELSE p.status END,
         limited = (a.active AND a.cools) OR (p.limited AND NOT a.expired)
    FROM (SELECT people.*, n.attempts, n.attempts >= limits.attempts AS cools, limits.cooldown,
                 CASE WHEN NOT expired THEN q.cooldown_until END AS cooling,
                 q.status = 'active' OR (expired AND q.limited AND q.status = 'not_interested') AS active
            FROM people JOIN reminders_recipient q ON q.id = people.id CROSS JOIN limits
           CROSS JOIN LATERAL (SELECT people.n + CASE WHEN expired THEN 0 ELSE q.follow_up_attempts END AS attempts) n
         ) AS a
   WHERE p.id = a.id
  RETURNING a.account_id, a.address, a.cools AND a.cooling IS NULL AS began
), tallied AS (
  INSERT INTO fanout_tally (account_id, what, why, n)
  SELECT account_id, 'cooldowns', '', count(DISTINCT address) FROM counted WHERE began GROUP BY account_id
   UNION ALL
  SELECT account_id, 'attempts', '', count(*) FROM went_out GROUP BY account_id
   ORDER BY 1, 2
  ON CONFLICT (account_id, what, why) DO UPDATE SET n = fanout_tally.n + excluded.n
)"""

SETTLED = f"""
WITH went_out AS (
  SELECT t.account_id, t.address, t.claimed_at AS at FROM fanout_runtarget t
   WHERE t.id = ANY(%s) AND t.status = 'sent' AND t.claimed_at IS NOT NULL
     AND (SELECT r.follow_up FROM fanout_run r WHERE r.id = t.run_id)
), {COUNTED}
SELECT count(*) FROM counted
"""


def lock_people(addresses: Collection[str]) -> None:
    """Lock recipients before they are changed, and after the runs whose targets are."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK_PEOPLE, [sorted(addresses)])


def settled_as_sent(targets: Collection[int], addresses: Collection[str]) -> None:
    """Count follow-ups among these targets as attempts. They have just been settled as sent in the caller's
    transaction, which holds their run."""
    lock_people(addresses)
    with connection.cursor() as cursor:
        cursor.execute(SETTLED, [list(targets), *limits_in_sql()])


# An attempt that was counted and did not arrive. The cooldown goes with it if it began with that attempt; what a reply
# or the end of a cooldown has reset since stays.
TAKE_BACK = """
UPDATE reminders_recipient p
   SET follow_up_attempts = greatest(p.follow_up_attempts - 1, 0),
       cooldown_until = CASE WHEN p.follow_up_attempts > %s THEN p.cooldown_until END,
       status = CASE WHEN p.limited AND p.status = 'not_interested' THEN 'active' ELSE p.status END, limited = false
 WHERE p.address = %s AND (p.attempts_reset_at IS NULL OR p.attempts_reset_at <= %s)
"""


def taken_back(target: RunTarget) -> None:
    """Take back the attempt of a follow-up that was sent and did not arrive. The caller's transaction holds its run."""
    if target.run.follow_up and target.claimed_at is not None:
        lock_people([target.address])
        with connection.cursor() as cursor:
            cursor.execute(TAKE_BACK, [limits().attempts, target.address, target.claimed_at])


# --- what the metrics count -----------------------------------------------------------------------------

WHY_LENGTH = 40  # of a tally: a reason longer than that is still counted

ADD_TALLY = """
INSERT INTO fanout_tally (account_id, what, why, n)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[]) AS t(account_id, what, why, n)
 ORDER BY account_id, what, why
ON CONFLICT (account_id, what, why) DO UPDATE SET n = fanout_tally.n + excluded.n
"""


def tally(counted: Mapping[tuple[int, str, str], int]) -> None:
    """Add to the counters of the metrics, by account, what and why."""
    rows = [(account, str(what), why[:WHY_LENGTH], n) for (account, what, why), n in counted.items()]
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(ADD_TALLY, [list(column) for column in zip(*rows)])
