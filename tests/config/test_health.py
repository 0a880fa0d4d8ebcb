"""Probes: is the process up, and could a reminder go out?"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from config import health
from tests.factories import ClusterBeatFactory, DriverFactory

pytestmark = pytest.mark.django_db


def test_the_process_is_up(client):
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_ready_with_both_clusters_and_a_driver_alive(client):
    for cluster in ("main", "drivers"):
        ClusterBeatFactory(cluster=cluster)
    DriverFactory()
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert set(answer.json()["checks"].values()) == {"ok"}


def test_not_ready_without_a_live_cluster(client):
    ClusterBeatFactory(cluster="main")
    ClusterBeatFactory(cluster="drivers", beat_at=timezone.now() - timedelta(minutes=1))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["clusters"] == "no live cluster: drivers"


def test_not_ready_while_no_driver_beats(client):
    for cluster in ("main", "drivers"):
        ClusterBeatFactory(cluster=cluster)
    DriverFactory(beat_at=timezone.now() - timedelta(minutes=1))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["drivers"] == "no driver is running: see manage.py doctor"


def test_not_ready_without_a_database_and_one_line_about_it(client, monkeypatch):
    def away() -> str:
        raise OperationalError("connection refused\nis the server running?")

    monkeypatch.setattr(health, "database", away)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "the database does not answer"}


def test_probes_need_no_https(client, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200
    assert client.get("/metrics").status_code == 200
