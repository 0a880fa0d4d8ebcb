"""Stop and start accounts, by the engine or an operator, and judge accounts and addresses by their bounces."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from django.conf import settings

from accounts.actions import Action
from accounts.models import Account
from fanout.database import Row, Statement, Steps
from fanout.lanes.lane_rows import probe_statement, wake_statement
from fanout.lanes.telling import add_event, tell
from fanout.rules import breaker
from fanout.rules.outcomes import AccountChange
from reminders.models import Suppression
from reminders.suppressions import SUPPRESS, NewSuppression

Status = Account.Status

CHANGE = """
UPDATE accounts_account
   SET status = %(status)s::varchar, status_reason = %(reason)s, status_until = %(until)s::timestamptz,
       status_changed_at = %(now)s, updated_at = %(now)s
 WHERE id = %(account)s AND status = ANY(%(before)s::varchar[])
   AND (NOT %(ended)s::boolean OR status_until <= %(now)s)
   AND (NOT archived OR %(status)s::varchar <> 'active')
RETURNING id, owner_id, team_id, label
"""

REMEMBER_ERROR = "UPDATE accounts_account SET last_error = %(error)s, last_error_at = %(now)s WHERE id = %(account)s"


def stop(account: int, change: AccountChange, now: datetime) -> Steps[bool]:
    """Stop an active account because of trouble, and tell its owner and team."""
    rows = yield from _change(account, change, now, [Status.ACTIVE])
    for row in rows:
        yield REMEMBER_ERROR, {"account": account, "error": change.reason, "now": now}
        yield add_event(now, change.status, change.reason, account=account)
        yield from tell(row, f"Account {change.status}", change.reason, "error", now)
    return bool(rows)


def pause(account: int, reason: str, actor: int | None, now: datetime) -> Steps[bool]:
    """Pause an account, by an operator. An unpaired one stays unpaired: reactivated later, it would seem to work."""
    before: list[str] = [Status.ACTIVE, Status.SUSPENDED]
    rows = yield from _change(account, AccountChange(Status.PAUSED, reason), now, before)
    if rows:
        yield wake_statement([account], now)
        yield add_event(now, "paused", reason, account=account, actor=actor)
    return bool(rows)


def reactivate(account: int, actor: int | None, now: datetime) -> Steps[bool]:
    """Reactivate an account, by an operator: it begins with a single trial message."""
    rows = yield from _change(account, AccountChange(Status.ACTIVE, ""), now, _all_but(Status.ACTIVE))
    if rows:
        yield probe_statement([account], now)
        yield add_event(now, "reactivated", account=account, actor=actor)
    return bool(rows)


def end_suspension(account: int, now: datetime) -> Steps[bool]:
    """Reactivate an account whose temporary ban is over: it begins with a single trial message."""
    rows = yield from _change(account, AccountChange(Status.ACTIVE, ""), now, [Status.SUSPENDED], ended=True)
    if rows:
        yield probe_statement([account], now)
        yield add_event(now, "reactivated", "the suspension has ended; probing", account=account)
    return bool(rows)


def pair_again(account: int, now: datetime) -> Steps[bool]:
    """Reactivate an unpaired account that its provider reports as connected: it begins with a single trial message."""
    rows = yield from _change(account, AccountChange(Status.ACTIVE, ""), now, [Status.UNPAIRED])
    if rows:
        yield probe_statement([account], now)
        yield add_event(now, "reactivated", "the provider reports that it is connected again; probing", account=account)
    return bool(rows)


def _change(
    account: int, change: AccountChange, now: datetime, before: list[str], ended: bool = False
) -> Steps[list[Row]]:
    rows = yield (
        CHANGE,
        {
            "account": account,
            "status": change.status,
            "reason": change.reason,
            "until": change.until,
            "now": now,
            "before": before,
            "ended": ended,
        },
    )
    return rows


def _all_but(status: str) -> list[str]:
    return [other for other in Status.values if other != status]


# --- bounces ----------------------------------------------------------------------------------------------


# Messages that went out on a day, and which of them bounced, whenever that was reported: a late bounce is noted at the
# time of its send. Those that were refused at once are not among the messages that went out. A soft bounce counts once
# it is final, because a retry may still succeed. Messages sent before the account was last activated do not count: an
# operator has seen them.
FAR_AHEAD = datetime(9000, 1, 1, tzinfo=UTC)
BOUNCES_OF_DAY = """
WITH activated AS (
  SELECT coalesce(max(a.status_changed_at), '-infinity') AS at FROM accounts_account a WHERE a.id = %(account)s
), day AS NOT MATERIALIZED (
  SELECT v.* FROM fanout_activity v
   WHERE v.account_id = %(account)s AND v.action = ANY(%(actions)s::text[])
     AND v.at >= greatest(%(starts)s, (SELECT activated.at FROM activated)) AND v.at < %(ends)s
), bounce AS MATERIALIZED (
  SELECT DISTINCT t.id, t.parts_sent = 0 AS apart
    FROM (SELECT * FROM day WHERE kind IN ('hard_bounce', 'soft_bounce', 'sender_rejected') OFFSET 0) AS v,
         LATERAL (SELECT * FROM fanout_runtarget t WHERE t.id = v.run_target_id OFFSET 0) AS t
   WHERE (v.kind = 'hard_bounce' OR t.status = 'failed')
     AND coalesce(t.claimed_at >= (SELECT activated.at FROM activated), true)
     AND (t.parts_sent = 0 OR coalesce(t.claimed_at, v.at) >= %(starts)s)
)
SELECT (SELECT count(*) FROM bounce) AS bounced,
       (SELECT count(*) FROM day WHERE outcome = 'sent') + (SELECT count(*) FROM bounce WHERE apart) AS sends
"""


def bounces_of_day(account: int, starts: datetime, ends: datetime | None = None) -> Statement:
    """Return the statement for how many messages an account has sent on a day, by default since it began, and how many
    of them bounced: `sends`, `bounced`."""
    day = {"starts": starts, "ends": ends or FAR_AHEAD}
    return BOUNCES_OF_DAY, {"account": account, "actions": list(Action.values)} | day


# The newest outcomes of each recipient with this address, each by one look into the index of recipient and run.
OUTCOMES_OF_ADDRESS = """
SELECT o.soft FROM reminders_recipient p CROSS JOIN LATERAL (
         SELECT t.status = 'failed' AND t.error_kind = 'soft_bounce' AS soft, t.settled_at, t.id
           FROM fanout_runtarget t
          WHERE t.recipient_id = p.id AND t.address = p.address AND t.status IN ('sent', 'failed')
          ORDER BY t.run_id DESC LIMIT %(last)s) AS o
 WHERE p.address = %(address)s
 ORDER BY o.settled_at DESC NULLS LAST, o.id DESC LIMIT %(last)s
"""


def judge_address(address: str, detail: str, now: datetime) -> Steps[bool]:
    """Suppress an address for a while after too many final soft bounces."""
    rows = yield OUTCOMES_OF_ADDRESS, {"address": address, "last": breaker.LAST_OUTCOMES}
    if not breaker.worn_out([row["soft"] for row in rows]):
        return False
    until = now + timedelta(days=settings.SOFT_BOUNCE_SUPPRESS_DAYS)
    new = NewSuppression(address, Suppression.Reason.SOFT_BOUNCES, Suppression.Source.PROVIDER, detail, now, until)
    return bool((yield SUPPRESS, asdict(new)))
