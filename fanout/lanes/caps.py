"""What is an account's cap for an action, and how much of it is used today? Read from the database.

The lane, the plan, the forecast, the `why` line and the admin all ask here, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

from django.conf import settings
from django.db import connection

from accounts.models import Account, DailyLimit
from fanout.rules.caps import Cap, WarmUp, daily_cap, local_date
from reminders.window import local_day_bounds

# Successes count; what is in flight or unconfirmed counts as if sent. Many accounts and actions at once, each
# with the bounds of its own day.
USED_TODAY = """
SELECT d.account_id, d.action,
       (SELECT count(*) FROM fanout_activity v
         WHERE v.account_id = d.account_id AND v.action = d.action AND v.outcome = 'sent'
           AND v.at >= d.starts AND v.at < d.ends)
     + (SELECT count(*) FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
         WHERE t.account_id = d.account_id AND t.status IN ('sending', 'unconfirmed') AND r.action = d.action
           AND t.claimed_at >= d.starts AND t.claimed_at < d.ends) AS used
  FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[], %s::timestamptz[]) AS d(account_id, action, starts, ends)
"""


def caps(account: Account, action: str) -> Callable[[date], Cap]:
    """The cap of any day, with one query."""
    own = DailyLimit.objects.filter(account=account, action=action).first()
    warmup = WarmUp(account.warmup_started_on, account.warmup_days, account.warmup_floor)

    def on(day: date) -> Cap:
        return daily_cap(account.channel, action, own, settings.BOT_DAILY_LIMITS, warmup, day)

    return on


def cap_on(account: Account, action: str, day: date) -> Cap:
    return caps(account, action)(day)


def cap_today(account: Account, action: str, now: datetime) -> Cap:
    """The cap of the account's own calendar day."""
    return cap_on(account, action, local_date(account.timezone, now))


def used_today(account: Account, action: str, now: datetime) -> int:
    """Sent today, in flight and unconfirmed: by the lane's own statement."""
    starts, ends = local_day_bounds(account.timezone, now)
    with connection.cursor() as cursor:
        cursor.execute(USED_TODAY, [[account.pk], [action], [starts], [ends]])
        ((_, _, used),) = cursor.fetchall()
    return int(used)
