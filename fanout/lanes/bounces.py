"""What bounces do to the account that sent and to the address that bounced: by what is stored, whether the provider
refused at once (the engine asks) or a report came later (`fanout.inbound`)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta

from django.conf import settings

from accounts.actions import Action
from fanout.lanes.statements import Statement, Steps
from fanout.rules import breaker
from reminders.models import Suppression
from reminders.suppressions import SUPPRESS, New

# Messages that went out, and those that bounced without being among them: refused at once, or sent on an earlier day. A
# soft bounce counts once it is final, because a retry may still succeed. What was sent before the account was last
# activated is settled: an operator has seen it.
OF_DAY = """
WITH activated AS (
  SELECT coalesce(max(a.status_changed_at), '-infinity') AS at FROM accounts_account a WHERE a.id = %(account)s
), today AS NOT MATERIALIZED (
  SELECT v.* FROM fanout_activity v
   WHERE v.account_id = %(account)s AND v.action = ANY(%(actions)s::text[])
     AND v.at >= greatest(%(starts)s, (SELECT activated.at FROM activated))
), bounce AS MATERIALIZED (
  SELECT DISTINCT t.id, t.parts_sent = 0 OR t.claimed_at < %(starts)s AS apart
    FROM (SELECT * FROM today WHERE kind IN ('hard_bounce', 'soft_bounce') OFFSET 0) AS v,
         LATERAL (SELECT * FROM fanout_runtarget t WHERE t.id = v.run_target_id OFFSET 0) AS t
   WHERE (v.kind = 'hard_bounce' OR t.status = 'failed')
     AND coalesce(t.claimed_at >= (SELECT activated.at FROM activated), true)
)
SELECT (SELECT count(*) FROM bounce) AS bounced,
       (SELECT count(*) FROM today WHERE outcome = 'sent') + (SELECT count(*) FROM bounce WHERE apart) AS sends
"""


def of_day(account: int, starts: datetime) -> Statement:
    """How many messages an account has sent since its day began, and how many came back: `sends`, `bounced`."""
    return OF_DAY, {"account": account, "starts": starts, "actions": list(Action.values)}


# The newest runs of each recipient with this address, each by one look into the index of recipient and run.
OF_ADDRESS = """
SELECT o.soft FROM reminders_recipient p CROSS JOIN LATERAL (
         SELECT t.status = 'failed' AND t.error_kind = 'soft_bounce' AS soft, t.settled_at, t.id
           FROM fanout_runtarget t
          WHERE t.recipient_id = p.id AND t.address = p.address AND t.status IN ('sent', 'failed')
          ORDER BY t.run_id DESC LIMIT %(last)s) AS o
 WHERE p.address = %(address)s
 ORDER BY o.settled_at DESC NULLS LAST, o.id DESC LIMIT %(last)s
"""


def judge_address(address: str, detail: str, now: datetime) -> Steps[bool]:
    """After a final soft bounce: an address that keeps bouncing is left alone for a while."""
    rows = yield OF_ADDRESS, {"address": address, "last": breaker.LAST_OUTCOMES}
    if not breaker.worn_out([row["soft"] for row in rows]):
        return False
    until = now + timedelta(days=settings.SOFT_BOUNCE_SUPPRESS_DAYS)
    new = New(address, Suppression.Reason.SOFT_BOUNCES, Suppression.Source.PROVIDER, detail, now, until)
    return bool((yield SUPPRESS, asdict(new)))
