"""How accounts stand now, for their list: rate against limit, sent today, what waits, errors, last delivery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from accounts.actions import Action
from accounts.models import Account
from fanout.admin.paginator import shown
from fanout.plans.queue import MOST_PENDING, pending_by_account
from fanout.runs import progress
from reminders.window import local_day_bounds

MOST_COUNTED = 1_000  # messages of one account's day

# Each by the index that ends with the time, and of the day no more than a thousand.
TODAY = """
SELECT a.id, coalesce(sum(d.sent), 0), coalesce(sum(d.failed), 0), max(d.read), max(l.at)
  FROM unnest(%(accounts)s::bigint[], %(starts)s::timestamptz[]) AS a(id, starts)
 CROSS JOIN unnest(%(actions)s::varchar[]) AS k(action)
 CROSS JOIN LATERAL (
   SELECT count(*) FILTER (WHERE s.outcome = 'sent') AS sent, count(*) FILTER (WHERE s.outcome = 'failed') AS failed,
          count(*) AS read
     FROM (SELECT v.outcome FROM fanout_activity v
            WHERE v.account_id = a.id AND v.action = k.action AND v.at >= a.starts
            ORDER BY v.at DESC LIMIT %(most)s) AS s) AS d
  LEFT JOIN LATERAL (SELECT v.at FROM fanout_activity v
                      WHERE v.account_id = a.id AND v.action = k.action AND v.outcome = 'sent'
                      ORDER BY v.at DESC LIMIT 1) AS l ON true
 GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Standing:
    sent: int = 0
    failed: int = 0
    read: int = 0  # activities of one action that were counted: beyond the cap there may be more
    last_at: datetime | None = None
    owed: int = 0
    per_minute: float | None = None

    @property
    def today(self) -> str:
        return f"{self.sent:,}" if self.read <= MOST_COUNTED else f"{min(self.sent, MOST_COUNTED):,}+"

    @property
    def queue(self) -> str:
        return shown(self.owed, MOST_PENDING) if self.owed else "–"

    @property
    def error_share(self) -> float:
        tried = self.sent + self.failed
        return self.failed / tried if tried else 0.0

    def rate(self, limit: float) -> str:
        """The messages of the last minutes against the limit."""
        now = progress.rate_in_words(self.per_minute).removesuffix(" / min")
        most = f"{limit:g} / min" if limit else "no limit"
        return f"{now} of {most}" if self.per_minute else most


def standings(accounts: Sequence[Account], now: datetime) -> dict[int, Standing]:
    """Three queries, however many accounts."""
    ids = [account.pk for account in accounts]
    if not ids:
        return {}
    owed, rates = pending_by_account(ids), progress.rates_of_accounts(ids, now)
    return {
        pk: Standing(sent, failed, read, last_at, owed.get(pk, 0), rates.get(pk))
        for pk, sent, failed, read, last_at in _today(accounts, now)
    }


def _today(accounts: Sequence[Account], now: datetime) -> list[tuple[int, int, int, int, datetime | None]]:
    parameters: dict[str, Any] = {
        "accounts": [account.pk for account in accounts],
        "starts": [local_day_bounds(account.timezone, now)[0] for account in accounts],
        "actions": Action.values,
        "most": MOST_COUNTED + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(TODAY, parameters)
        return [(pk, int(sent), int(failed), read, last_at) for pk, sent, failed, read, last_at in cursor.fetchall()]
