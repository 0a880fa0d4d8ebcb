"""A cluster's heart beats only while guard and workers prove that they work."""

import os
import socket
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from fanout.models import ClusterBeat
from fanout.ops import heartbeat, tasks
from fanout.ops.heartbeat import Heart, Pulse

# In figures, not by the names of fanout.rules.liveness: moving a limit is a decision, and this table notices it.
GUARD_PATIENCE, PING_PATIENCE, QUIET_SECONDS = 20, 160, 15


@pytest.fixture
def heart():
    return Heart("main", Pulse(), sentinel_pid=os.getpid())


@pytest.fixture
def pings(monkeypatch):
    sent: list[str] = []
    monkeypatch.setattr(heartbeat, "async_task", lambda name, **_options: sent.append(name))
    return sent


@pytest.mark.parametrize(
    ("guard_age", "ping_age", "task_age", "problem"),
    [
        pytest.param(0, None, 0, "", id="busy"),
        pytest.param(GUARD_PATIENCE + 1, None, 0, "its guard stands still", id="guard"),
        pytest.param(0, PING_PATIENCE - 1, 500, "", id="waiting-for-a-ping"),
        pytest.param(0, PING_PATIENCE + 1, 500, "its workers take no tasks", id="workers"),
        pytest.param(0, PING_PATIENCE + 1, 3, "", id="another-task-was-taken"),
    ],
)
def test_problems_that_stop_the_heartbeat(heart, guard_age, ping_age, task_age, problem):
    now = time.monotonic() + 1000
    heart.pulse.guard_at.value = now - guard_age
    heart.pulse.task_at.value = now - task_age
    heart.pinged_at = None if ping_age is None else now - ping_age
    assert heart.problem(now) == problem


def test_a_dead_sentinel_stops_the_heart_without_an_alarm(caplog):
    """It ends at every clean stop, too; `cluster` reports it when it was not asked for."""
    assert not Heart("main", Pulse(), None).step(time.monotonic())
    assert not caplog.records


@pytest.mark.django_db
def test_a_quiet_cluster_is_pinged_once(heart, pings):
    now = time.monotonic()
    assert heart.step(now)
    assert pings == []
    heart.pulse.task_at.value, heart.pulse.guard_at.value = now, now + QUIET_SECONDS
    assert heart.step(now + QUIET_SECONDS)
    assert pings == []
    for later in (0.5, 1, 2):
        assert heart.step(now + QUIET_SECONDS + later)
        assert len(pings) == 1


@pytest.mark.django_db
def test_every_beat_goes_into_the_same_row(heart, pings):
    heart.step(time.monotonic())
    first = ClusterBeat.objects.get()
    heart.step(time.monotonic())
    again = ClusterBeat.objects.get()
    assert (again.pk, again.cluster, again.pid) == (first.pk, "main", os.getpid())
    assert again.beat_at >= first.beat_at


@pytest.mark.django_db
def test_machines_that_are_gone_for_a_week_are_forgotten():
    now = timezone.now()
    for host, days in ("here", 0), ("away", 6), ("gone", 8):
        ClusterBeat.objects.create(cluster="main", host=host, pid=1, beat_at=now - timedelta(days=days))
    tasks.hygiene()
    assert set(ClusterBeat.objects.values_list("host", flat=True)) == {"here", "away"}


@pytest.mark.django_db
@pytest.mark.parametrize("abstract", [False, True], ids=["file", "abstract"])
def test_every_beat_feeds_the_watchdog_of_systemd(heart, pings, tmp_path, monkeypatch, abstract):
    address = f"@crier-{os.getpid()}" if abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address.replace("@", "\0"))
        systemd.settimeout(1)
        heart.step(time.monotonic())
        assert systemd.recv(100) == b"WATCHDOG=1"


def test_a_bridge_is_ready_with_its_first_beat(tmp_path, monkeypatch):
    """Its unit's watchdog is short and must not count while Python starts."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("BEAT_FILE", str(tmp_path / "beat"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(1)
        heartbeat.beat_of_bridge()
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
    assert (tmp_path / "beat").exists()


@pytest.mark.django_db
def test_a_cluster_that_stands_still_does_not_feed_the_watchdog(pings, monkeypatch):
    fed: list[bool] = []
    monkeypatch.setattr(heartbeat, "feed_watchdog", lambda: fed.append(True))
    assert not Heart("main", Pulse(), None).step(time.monotonic())
    assert not fed
