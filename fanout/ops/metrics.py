"""`/metrics` for Prometheus. Everything is read from the database when asked: any process gives the same answer,
and none has to live long. Sends are summed over runs, whose counters the database keeps; nothing here counts a
big table.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes import account_limits
from fanout.models import Run, Tally
from fanout.models.run import in_sql
from fanout.runs.transitions import UNFINISHED

OUTCOMES = ("sent", "failed", "skipped", "unconfirmed")
RECENT = timedelta(minutes=5)
CAPS_SHOWN = QUEUES_SHOWN = 500
SCAN_MS = 500

ACCOUNT = ("account", "label", "channel")


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    if not allowed(request):
        return HttpResponse("Forbidden: send METRICS_TOKEN as “Authorization: Bearer …”.\n", status=403)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def allowed(request: HttpRequest) -> bool:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    if settings.METRICS_TOKEN and hmac.compare_digest(token.encode(), settings.METRICS_TOKEN.encode()):
        return True
    # Behind a proxy all requests seem to come from its machine.
    return not settings.HTTPS and _from_here(request)


def _from_here(request: HttpRequest) -> bool:
    """Return whether the request comes from this machine; one that a proxy forwarded does not."""
    if any(name in request.headers for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP")):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


class Collector:
    def collect(self) -> Iterator[Metric]:
        now = timezone.now()
        for family in (_sends, _recent, _inbound, _queues, _runs, _lanes, _caps, _beats, _history, _tasks):
            yield from family(now)
        for family in (_follow_ups, _counted, _cooldowns):
            yield from family(now)


def _rows(statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def _gauge(name: str, meaning: str, labels: Iterable[str], samples: Iterable[tuple[Iterable[Any], float]]) -> Metric:
    family = GaugeMetricFamily(f"crier_{name}", meaning, labels=list(labels))
    for values, value in samples:
        family.add_metric([str(v) for v in values], value)
    return family


# --- messages -----------------------------------------------------------------------------------------------

SENDS = """
SELECT a.id, a.label, a.channel, sum(r.sent), sum(r.failed), sum(r.skipped), sum(r.unconfirmed)
  FROM fanout_run r JOIN accounts_account a ON a.id = r.account_id GROUP BY a.id ORDER BY a.id
"""


def _sends(now: datetime) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "crier_sends", "Targets settled, by the run's account and their outcome.", labels=[*ACCOUNT, "outcome"]
    )
    unconfirmed = []
    for *account, sent, failed, skipped, open_ in _rows(SENDS):
        for outcome, value in zip(OUTCOMES, (sent, failed, skipped, open_)):
            family.add_metric([*map(str, account), outcome], value)
        unconfirmed.append((account, open_))
    yield family
    yield _gauge("unconfirmed", "Targets that wait for an operator's word.", ACCOUNT, unconfirmed)


# Only lanes that claimed something lately, each by its own index range: (account, action, at).
RECENT_SENDS = """
SELECT a.id, a.label, a.channel, x.outcome, count(*)
  FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id
 CROSS JOIN unnest(ARRAY['email', 'message', 'connection_request', 'inmail']) AS act(action)
 CROSS JOIN LATERAL (SELECT outcome FROM fanout_activity t
                      WHERE t.account_id = l.account_id AND t.action = act.action AND t.at >= %(since)s) x
 WHERE l.last_claim_at >= %(since)s GROUP BY a.id, x.outcome ORDER BY a.id
"""


def _recent(now: datetime) -> Iterator[Metric]:
    rows = _rows(RECENT_SENDS, {"since": now - RECENT})
    samples = [(row[:4], row[4]) for row in rows]
    meaning = "Messages of the last five minutes, by what the provider said."
    yield _gauge("messages_recent", meaning, [*ACCOUNT, "outcome"], samples)


# By the indexes on when they came, on what is new and on what failed.
RECENT_INBOUND = "SELECT kind, state, count(*) FROM fanout_inboundevent WHERE came_at >= %(since)s GROUP BY 1, 2"
FAILED_INBOUND = "SELECT count(*) FROM fanout_inboundevent WHERE state = 'failed'"
OLDEST_NEW = """
SELECT extract(epoch FROM %(now)s - came_at) FROM fanout_inboundevent
 WHERE state = 'new' AND next_attempt_at IS NULL ORDER BY id LIMIT 1
"""


def _inbound(now: datetime) -> Iterator[Metric]:
    rows = _rows(RECENT_INBOUND, {"since": now - RECENT})
    meaning = "What providers reported in the last five minutes, by kind and by what became of it."
    yield _gauge("inbound_recent", meaning, ("kind", "state"), [(row[:2], row[2]) for row in rows])
    yield _gauge("inbound_failed", "Reports that could not be worked on.", (), [((), _rows(FAILED_INBOUND)[0][0])])
    oldest = _rows(OLDEST_NEW, {"now": now})
    meaning = "Age of the oldest inbound event that has not been processed yet."
    yield _gauge("inbound_oldest_seconds", meaning, (), [((), float(oldest[0][0]) if oldest else 0.0)])


QUEUES = f"""
SELECT a.id, a.label, a.channel, sum(r.pending) FILTER (WHERE r.status <> 'paused'),
       sum(r.pending) FILTER (WHERE r.status = 'paused'), sum(r.sending)
  FROM fanout_run r JOIN accounts_account a ON a.id = r.account_id
 WHERE r.status IN {UNFINISHED} GROUP BY a.id ORDER BY a.id
"""


def _queues(now: datetime) -> Iterator[Metric]:
    depth = []
    for *account, live, paused, sending in _rows(QUEUES):
        for state, value in (("live", live), ("paused", paused), ("in_flight", sending)):
            depth.append(((*account, state), value or 0))
    yield _gauge("queue_targets", "Targets that are still to be sent.", [*ACCOUNT, "state"], depth)


def _runs(now: datetime) -> Iterator[Metric]:
    rows = _rows("SELECT status, pause_reason, count(*) FROM fanout_run WHERE NOT archived GROUP BY 1, 2 ORDER BY 1, 2")
    meaning = "Runs by status; pause_reason circuit_breaker: stopped by errors."
    yield _gauge("runs", meaning, ("status", "pause_reason"), [(row[:2], row[2]) for row in rows])
    held = _rows("SELECT account_id, count(*) FROM fanout_run WHERE pause_reason = 'circuit_breaker' GROUP BY 1")
    meaning = "Runs that the circuit breaker holds paused now; one that was resumed no longer counts."
    yield _gauge("breaker_open", meaning, ("account",), [(r[:1], r[1]) for r in held])


# --- lanes --------------------------------------------------------------------------------------------------

LANES = """
SELECT a.id, a.label, a.channel, l.slow_factor, l.crashes, a.status = 'active',
       CASE WHEN l.holder = '' AND l.due_at < %(now)s THEN extract(epoch FROM %(now)s - l.due_at) ELSE 0 END
  FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id ORDER BY a.id
"""


def _lanes(now: datetime) -> Iterator[Metric]:
    rows = _rows(LANES, {"now": now})
    columns = (
        ("pace_factor", "1 at the usual pace, more while a lane is slowed down."),
        ("lane_crashes", "Crashes in a row without a delivery."),
        ("account_active", "1 where the account may send."),
        ("lane_lag_seconds", "How long a lane that is due has been waiting for a driver."),
    )
    for n, (name, meaning) in enumerate(columns, start=len(ACCOUNT)):
        yield _gauge(name, meaning, ACCOUNT, [(row[: len(ACCOUNT)], float(row[n])) for row in rows])


def _caps(now: datetime) -> Iterator[Metric]:
    """Yield caps of accounts that have one and sent something today."""
    labels = [*ACCOUNT, "action"]
    used, cap = [], []
    for account, action, limit in _capped(now):
        values = (account.pk, account.label, account.channel, action)
        used.append((values, float(account_limits.used_today(account, action, now))))
        cap.append((values, float(limit)))
    yield _gauge("cap_used", "Messages that count against today's cap.", labels, used)
    yield _gauge("cap_limit", "Today's cap.", labels, cap)


def _capped(now: datetime) -> Iterator[tuple[Account, str, int]]:
    busy = Account.objects.filter(lane__last_claim_at__gte=now - timedelta(days=1)).order_by("pk")[:CAPS_SHOWN]
    for account in busy:
        for action in channel(account.channel).actions:
            limit = account_limits.cap_today(account, action, now).limit
            if limit is not None:
                yield account, action, limit


# --- the machinery ------------------------------------------------------------------------------------------


def _beats(now: datetime) -> Iterator[Metric]:
    drivers = _rows(
        "SELECT slot, host, extract(epoch FROM %s - beat_at), lanes FROM fanout_driver ORDER BY slot", [now]
    )
    labels = ("slot", "host")
    yield _gauge(
        "driver_beat_age_seconds", "Since a driver's last heartbeat.", labels, [(d[:2], float(d[2])) for d in drivers]
    )
    yield _gauge("driver_lanes", "Lanes that a driver holds.", labels, [(d[:2], d[3]) for d in drivers])
    clusters = _rows(
        "SELECT cluster, host, extract(epoch FROM %s - beat_at) FROM fanout_clusterbeat ORDER BY 1, 2", [now]
    )
    meaning = "Since a cluster's last heartbeat."
    yield _gauge("cluster_beat_age_seconds", meaning, ("cluster", "host"), [(c[:2], float(c[2])) for c in clusters])


def _history(now: datetime) -> Iterator[Metric]:
    held = _rows("SELECT held::int FROM fanout_knownserver")
    meaning = "1 while nothing is sent because the database may lack commits after a fail-over or a restore."
    yield _gauge("lost_commits", meaning, (), [((), held[0][0] if held else 0)])


def _tasks(now: datetime) -> Iterator[Metric]:
    rows = _rows("SELECT key, count(*) FROM django_q_ormq GROUP BY 1")
    yield _gauge("tasks_waiting", "Tasks in django-q2's queue.", ("cluster",), [(row[:1], row[1]) for row in rows])


# --- follow-ups -----------------------------------------------------------------------------------------------

FOLLOWING_UP = f"""
SELECT DISTINCT a.id, a.label, a.channel FROM fanout_run r JOIN accounts_account a ON a.id = ANY(r.lanes)
 WHERE r.follow_up AND r.status IN {in_sql(Run.UNFINISHED)} ORDER BY a.id LIMIT {QUEUES_SHOWN}
"""


def _follow_ups(now: datetime) -> Iterator[Metric]:
    """Left out rather than slow: hundreds of full queues take a moment to count."""
    limits = account_limits.queue_limits()
    try:
        with transaction.atomic():
            _limit_time(SCAN_MS)
            accounts = {row[0]: row for row in _rows(FOLLOWING_UP)}
            queued = account_limits.queued(accounts, limits.full) if accounts else {}
    except DatabaseError:
        return
    sizes = [(accounts[pk], n) for pk, n in sorted(queued.items())]
    yield _gauge("follow_up_queue", "Follow-ups that wait in an account's queue.", ACCOUNT, sizes)
    shares = [(account, n / limits.full) for account, n in sizes]
    yield _gauge("follow_up_queue_share", "The same as a share of BOT_QUEUE_MAX.", ACCOUNT, shares)
    above = [(account, float(limits.above_threshold(n))) for account, n in sizes]
    yield _gauge("backpressure", "1 where more follow-ups wait than BOT_BACKPRESSURE_THRESHOLD.", ACCOUNT, above)


TALLIES = """
SELECT t.what, a.id, a.label, a.channel, t.why, t.n FROM fanout_tally t JOIN accounts_account a ON a.id = t.account_id
 ORDER BY a.id, t.why
"""
TALLIED = {
    "follow_up_attempts": (Tally.What.ATTEMPTS, "Follow-ups that went out."),
    "follow_up_cooldowns": (Tally.What.COOLDOWNS, "Cooldowns that a follow-up of this account began."),
    "backpressure_activations": (Tally.What.BACKPRESSURE, "Runs of which a long queue kept follow-ups out."),
    "follow_ups_refused": (Tally.What.REFUSED, "Follow-ups skipped when their run was made, by reason."),
    "follow_ups_removed": (Tally.What.REMOVED, "Queued follow-ups skipped by hygiene, by reason."),
}


def _counted(now: datetime) -> Iterator[Metric]:
    tallies = _rows(TALLIES)
    for name, (what, meaning) in TALLIED.items():
        yield _counter(name, meaning, [row[1:] for row in tallies if row[0] == what])


def _counter(name: str, meaning: str, rows: Iterable[tuple[Any, ...]]) -> Metric:
    family = CounterMetricFamily(f"crier_{name}", meaning, labels=[*ACCOUNT, "reason"])
    for *labels, value in rows:
        family.add_metric([str(label) for label in labels], value)
    return family


def _cooldowns(now: datetime) -> Iterator[Metric]:
    """Left out rather than slow: on a very long list of recipients this is a scan."""
    try:
        with transaction.atomic():
            _limit_time(SCAN_MS)
            ((waiting,),) = _rows("SELECT count(*) FROM reminders_recipient WHERE cooldown_until > %s", [now])
    except DatabaseError:
        return
    yield _gauge("recipients_in_cooldown", "Recipients that are not written to for a while.", (), [((), waiting)])


def _limit_time(milliseconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
