"""Probes: is the process up, and could a reminder go out?"""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import OperationalError
from django.utils import timezone

from config import health
from tests.factories import ClusterBeatFactory, DriverFactory

pytestmark = pytest.mark.django_db


async def get(probes: health.Probes, path: str) -> tuple[int, Any]:
    asking = ApplicationCommunicator(probes, {"type": "http", "method": "GET", "path": path, "headers": []})
    start, body = await asking.receive_output(30), await asking.receive_output(30)
    return start["status"], json.loads(body["body"])


async def nothing_else(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no probe")


def ask(path: str) -> tuple[int, Any]:
    return asyncio.run(get(health.Probes(nothing_else), path))


def test_the_process_is_up():
    assert ask("/healthz") == (200, {"status": "ok"})


def test_ready_with_both_clusters_and_a_driver_alive(monkeypatch):
    for cluster in ("main", "drivers"):
        ClusterBeatFactory(cluster=cluster)
    DriverFactory()
    verdicts = health.readiness()
    assert list(verdicts) == ["database", "migrations", "clusters", "drivers"]
    assert set(verdicts.values()) == {"ok"}
    monkeypatch.setattr(health, "readiness", lambda: verdicts)
    assert ask("/readyz") == (200, {"status": "ok", "checks": verdicts})


def test_not_ready_without_a_live_cluster(monkeypatch):
    ClusterBeatFactory(cluster="main")
    ClusterBeatFactory(cluster="drivers", beat_at=timezone.now() - timedelta(minutes=1))
    verdicts = health.readiness()
    assert verdicts["clusters"] == "no live cluster: drivers"
    monkeypatch.setattr(health, "readiness", lambda: verdicts)
    assert ask("/readyz") == (503, {"status": "not ready", "checks": verdicts})


def test_not_ready_while_no_driver_beats():
    for cluster in ("main", "drivers"):
        ClusterBeatFactory(cluster=cluster)
    DriverFactory(beat_at=timezone.now() - timedelta(minutes=1))
    assert health.readiness()["drivers"] == "no driver is running: see manage.py doctor"


def test_not_ready_without_a_database_and_one_line_about_it(monkeypatch):
    def database() -> str:
        raise OperationalError("connection refused\nis the server running?")

    monkeypatch.setattr(health, "database", database)
    assert health.readiness() == {"database": "the database does not answer"}


def test_probes_of_the_same_second_share_a_check(monkeypatch):
    checks: list[int] = []
    gate = threading.Event()

    def readiness() -> dict[str, str]:
        checks.append(threading.get_ident())
        gate.wait(30)
        return {"database": "ok"}

    async def story() -> None:
        probes = health.Probes(nothing_else)
        asked = [asyncio.create_task(get(probes, "/readyz")) for _ in range(250)]
        while not checks:  # noqa: ASYNC110 - it is a thread that says so
            await asyncio.sleep(0.01)
        gate.set()
        assert {status for status, _ in await asyncio.gather(*asked)} == {200}
        assert (await get(probes, "/readyz"))[0] == 200
        assert len(checks) == 1
        probes.fresh_until = 0.0  # the second is over
        assert (await get(probes, "/readyz"))[0] == 200
        assert len(checks) == 2

    monkeypatch.setattr(health, "readiness", readiness)
    assert health.FRESH_SECONDS == 1
    monkeypatch.setattr(health, "FRESH_SECONDS", 600)  # on a busy machine 250 responses take longer than a second
    asyncio.run(story())


def test_a_slow_database_is_not_ready(monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(health, "readiness", lambda: {"database": "ok"} if gate.wait(30) else {})
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.05)

    async def story() -> None:
        probes = health.Probes(nothing_else)
        assert await get(probes, "/readyz") == (
            503,
            {"status": "not ready", "checks": {"database": "the database does not answer"}},
        )
        gate.set()
        assert probes.check is not None
        await probes.check
        assert (await get(probes, "/readyz"))[0] == 200

    asyncio.run(story())


def test_metrics_need_no_https(client, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/metrics").status_code == 200
