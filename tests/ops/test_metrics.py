"""/metrics: who may read it, and what it says."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from fanout.models import Run, Tally
from fanout.ops import metrics
from tests.factories import (
    ActivityFactory,
    ClusterBeatFactory,
    DailyLimitFactory,
    DriverFactory,
    InboundEventFactory,
    LaneStateFactory,
    RecipientFactory,
    RunFactory,
)

pytestmark = pytest.mark.django_db

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana.json"


def read(client) -> dict[str, list]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return {family.name: family.samples for family in text_string_to_metric_families(answer.content.decode())}


def value(families, name, **labels) -> float:
    (found,) = [s.value for s in families[name] if labels.items() <= s.labels.items()]
    return found


@pytest.mark.parametrize(
    ("given", "status"),
    [
        pytest.param({}, 200, id="this machine"),
        pytest.param({"REMOTE_ADDR": "::1"}, 200, id="this machine, IPv6"),
        pytest.param({"REMOTE_ADDR": "203.0.113.9"}, 403, id="another machine"),
        pytest.param({"headers": {"X-Forwarded-For": "203.0.113.9"}}, 403, id="through a proxy here"),
        pytest.param({"REMOTE_ADDR": "203.0.113.9", "headers": {"Authorization": "Bearer open"}}, 200, id="token"),
        pytest.param(
            {"REMOTE_ADDR": "203.0.113.9", "headers": {"Authorization": "Bearer shut"}}, 403, id="wrong token"
        ),
    ],
)
def test_only_this_machine_or_the_token(client, settings, given, status):
    settings.METRICS_TOKEN = "open"
    assert client.get("/metrics", **given).status_code == status


def test_without_a_token_none_opens(client, settings):
    settings.METRICS_TOKEN = ""
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.9", headers={"Authorization": "Bearer "}).status_code == 403


def test_sends_queues_and_runs(client):
    run = RunFactory.create(targets={"sent": 3, "failed": 1, "unconfirmed": 2, "pending": 4}, status="running")
    RunFactory(targets={"pending": 1}, status="paused", pause_reason="circuit_breaker")
    families = read(client)
    account = {"account": str(run.account_id), "channel": "sandbox", "label": run.account.label}
    assert value(families, "crier_sends", outcome="sent", **account) == 3
    assert value(families, "crier_sends", outcome="failed", **account) == 1
    assert value(families, "crier_unconfirmed", **account) == 2
    assert value(families, "crier_queue_targets", state="live", **account) == 4
    assert value(families, "crier_runs", status="paused", pause_reason="circuit_breaker") == 1
    assert len(families["crier_breaker_open"]) == 1


def test_follow_ups(client, settings):
    settings.BOT_BACKPRESSURE_THRESHOLD, settings.BOT_QUEUE_MAX = 1, 8
    run = RunFactory.create(targets={"sent": 3, "pending": 2, "sending": 1}, status="running", follow_up=True)
    RunFactory.create(account=run.account, targets={"pending": 4}, status="running")
    RunFactory.create(account=run.account, targets={"pending": 4}, status="paused", pause_reason="operator")
    for what, why, n in (
        ("attempts", "", 3),
        ("cooldowns", "", 5),
        ("backpressure", "", 2),
        ("removed", "opted_out", 7),
    ):
        Tally.objects.create(account=run.account, what=what, why=why, n=n)
    families = read(client)
    account = {"account": str(run.account_id), "channel": "sandbox", "label": run.account.label}
    assert value(families, "crier_follow_up_queue", **account) == 2
    assert value(families, "crier_follow_up_queue_share", **account) == 0.25
    assert value(families, "crier_backpressure", **account) == 1
    assert value(families, "crier_follow_up_attempts", **account, reason="") == 3
    assert value(families, "crier_follow_up_cooldowns", **account, reason="") == 5
    assert value(families, "crier_backpressure_activations", **account, reason="") == 2
    assert value(families, "crier_follow_ups_removed", **account, reason="opted_out") == 7
    assert not families["crier_follow_ups_refused"]


def test_lanes_caps_and_heartbeats(client):
    now = timezone.now()
    lane = LaneStateFactory.create(slow_factor=1.5, due_at=now - timedelta(seconds=30), last_claim_at=now)
    DailyLimitFactory(account=lane.account, limit=10)
    ActivityFactory(account=lane.account, outcome="rate_limited")
    ActivityFactory(account=lane.account)
    DriverFactory(slot=0, lanes=3, beat_at=now - timedelta(seconds=5))
    ClusterBeatFactory(beat_at=now - timedelta(seconds=5))
    RecipientFactory(cooldown_until=now + timedelta(hours=1))
    families = read(client)
    assert value(families, "crier_pace_factor") == 1.5
    assert 29 < value(families, "crier_lane_lag_seconds") < 60
    assert (value(families, "crier_cap_used"), value(families, "crier_cap_limit")) == (1, 10)
    assert value(families, "crier_messages_recent", outcome="rate_limited") == 1
    assert value(families, "crier_driver_lanes", slot="0") == 3
    assert 4 < value(families, "crier_cluster_beat_age_seconds", cluster="main") < 60
    assert value(families, "crier_recipients_in_cooldown") == 1


def test_inbound_events_are_counted(client):
    now = timezone.now()
    InboundEventFactory.create_batch(2, state="done")
    InboundEventFactory(state="failed", kind="reply")
    InboundEventFactory(came_at=now - timedelta(seconds=30))
    families = read(client)
    assert value(families, "crier_inbound_recent", kind="delivered", state="done") == 2
    assert value(families, "crier_inbound_failed") == 1
    assert 29 < value(families, "crier_inbound_oldest_seconds") < 120


def test_the_number_of_queries_does_not_grow_with_runs(client):
    def queries() -> int:
        Run.objects.update(status="success")
        with CaptureQueriesContext(connection) as captured:
            assert client.get("/metrics").status_code == 200
        return len(captured)

    RunFactory(targets={"sent": 1})
    few = queries()
    for _ in range(10):
        RunFactory(targets={"sent": 1})
    assert queries() == few <= 25


def test_the_dashboard_shows_only_what_there_is(client):
    known = set(read(client)) | {f"{name}_total" for name in read(client)}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    used = {word for panel in panels for target in panel["targets"] for word in names(target["expr"])}
    assert len(panels) >= 8
    assert used <= known


def names(expression: str) -> list[str]:
    return re.findall(r"crier_\w+", expression)


def test_nothing_slow_holds_up_the_rest(client, monkeypatch):
    monkeypatch.setattr(metrics, "SCAN_MS", 1)
    assert "crier_runs" in read(client)
