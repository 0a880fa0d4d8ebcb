"""How much was delivered since yesterday, and how fast each account sends: counted without reading the big tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from django.core.cache import cache
from django.db import connection
from django.db.models import Q, QuerySet

from accounts.actions import Action
from accounts.models import Account
from fanout.admin import charts
from fanout.models import Run

DAY = timedelta(hours=24)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
COUNTED_EVERY = MINUTE
HIGH = 0.05
CURVES = 5
MOST_COUNTED = 20_000  # messages of one account


@dataclass(frozen=True, slots=True)
class Volume:
    sent: int
    failed: int

    @property
    def share(self) -> float:
        attempts = self.sent + self.failed
        return self.failed / attempts if attempts else 0.0

    @property
    def errors_high(self) -> bool:
        return self.share > HIGH


OF_RUNS = """
WITH begun AS ({begun}), older AS ({older})
SELECT (SELECT coalesce(sum(sent), 0) FROM begun), (SELECT coalesce(sum(failed), 0) FROM begun),
       ARRAY(SELECT id FROM older ORDER BY id)
"""
OF_TARGETS = """
SELECT count(*) FILTER (WHERE status = 'sent'), count(*) FILTER (WHERE status = 'failed')
  FROM fanout_runtarget WHERE run_id = ANY(%s) AND status IN ('sent', 'failed') AND settled_at >= %s
"""


def volume(runs: QuerySet[Run], now: datetime) -> Volume:
    """Settled in the last day. Runs that began in it are summed from their counters; only of those that had begun
    before it, and went on in it, are the targets counted."""
    since = now - DAY
    went_on = Q(status__in=Run.LIVE) | Q(finished_at__gte=since)
    begun = runs.order_by().filter(first_attempt_at__gte=since).values("sent", "failed")
    older = runs.order_by().filter(went_on, first_attempt_at__lt=since).values("id")
    (begun_sql, some), (older_sql, others) = (rows.query.sql_with_params() for rows in (begun, older))
    with connection.cursor() as cursor:
        cursor.execute(OF_RUNS.format(begun=begun_sql, older=older_sql), [*some, *others])
        sent, failed, older_ids = cursor.fetchone()
    more_sent, more_failed = _settled_since(since, older_ids) if older_ids else (0, 0)
    return Volume(sent + more_sent, failed + more_failed)


def _settled_since(since: datetime, runs: list[int]) -> tuple[int, int]:
    """How many of their targets were sent and failed. Reads everything that they have settled: once a minute will do,
    however many people look."""
    key = f"settled-since-{sha256(repr(runs).encode()).hexdigest()}"
    counts: tuple[int, int] | None = cache.get(key)
    if counts is None:
        with connection.cursor() as cursor:
            cursor.execute(OF_TARGETS, [runs, since])
            counts = cursor.fetchone()
        cache.set(key, counts, COUNTED_EVERY.total_seconds())
    return counts


PER_MINUTE = """
WITH latest AS ({latest})
SELECT a.label, date_trunc('minute', s.at), count(*)
  FROM latest a CROSS JOIN unnest(%s::varchar[]) AS k(action)
 CROSS JOIN LATERAL (SELECT v.at FROM fanout_activity v
                      WHERE v.account_id = a.id AND v.action = k.action AND v.outcome = 'sent'
                        AND v.at >= %s AND v.at < %s
                      ORDER BY v.at DESC LIMIT %s) AS s
 GROUP BY a.id, 1, 2
"""


def sends_per_minute(accounts: QuerySet[Account], now: datetime, zone: str) -> charts.Chart:
    """The last hour in whole minutes, a curve for each of the accounts that sent last."""
    until = now.replace(second=0, microsecond=0)
    since = until - HOUR
    latest = accounts.filter(lane__last_claim_at__gte=since).order_by("-lane__last_claim_at").values("id", "label")
    sql, some = latest[:CURVES].query.sql_with_params()
    counts: dict[str, dict[datetime, int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(PER_MINUTE.format(latest=sql), [*some, Action.values, since, until, MOST_COUNTED])
        for label, minute, n in cursor.fetchall():
            counts.setdefault(label, {})[minute] = n
    busiest = dict(sorted(counts.items(), key=lambda one: -sum(one[1].values())))
    return charts.curves("Sends per minute", busiest, since, until, MINUTE, zone)
