"""The heartbeat of a django-q2 cluster, written from its main process while the cluster really works.

A cluster can stand still with all its processes alive: a worker killed -9 while it waited for work keeps the
lock of the shared queue, and one killed while it set its timer keeps the sentinel's guard waiting. So the
beat needs proof of both: the guard went round, and a worker took a task (a ping, when there is no other).
`manage.py up` and systemd restart a cluster whose beat stops.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

import psutil
from django.db import DatabaseError, InterfaceError, connection
from django.db.models.functions import Now
from django_q.signals import pre_execute
from django_q.status import Stat
from django_q.tasks import async_task

from fanout.models import ClusterBeat, Driver
from fanout.rules.liveness import (
    CLUSTER_BEATS_EVERY,
    CLUSTER_SILENT_AFTER,
    CLUSTERS,
    DRIVER_SILENT_AFTER,
    GUARD_SILENT_AFTER,
    PING_AFTER,
    WORKERS_SILENT_AFTER,
)

log = logging.getLogger(__name__)


def silent_clusters() -> list[str]:
    """The clusters that beat on no machine, by the database's clock, which all beats are written by."""
    beating = ClusterBeat.objects.filter(beat_at__gte=Now() - CLUSTER_SILENT_AFTER).values_list("cluster", flat=True)
    return sorted({*CLUSTERS}.difference(beating))


def beating_drivers() -> list[Driver]:
    return list(Driver.objects.filter(beat_at__gte=Now() - DRIVER_SILENT_AFTER))


def pong() -> None:
    """The ping task: that a worker took it is all it is for."""


@dataclass
class Pulse:
    """Signs of life that the cluster's forked processes leave in shared memory.

    Raw values, without a lock: a lock here could be left held by a killed process like the ones we watch for.
    """

    guard_at: Any = field(default_factory=lambda: RawValue("d", time.monotonic()))
    task_at: Any = field(default_factory=lambda: RawValue("d", time.monotonic()))

    def listen(self) -> None:
        """To be called before the cluster forks."""
        pre_execute.connect(self._on_task, weak=False)
        save = Stat.save

        # The guard saves its status every time round. Reading that from the cache would need one that is
        # shared between processes, which a small installation has not got.
        def save_and_note(stat: Stat) -> None:
            self.guard_at.value = time.monotonic()
            save(stat)

        Stat.save = save_and_note

    def _on_task(self, **_kwargs: object) -> None:
        self.task_at.value = time.monotonic()


class Heart:
    """Decides every two seconds whether the cluster may beat."""

    def __init__(self, cluster: str, pulse: Pulse, sentinel_pid: int | None) -> None:
        self.cluster = cluster
        self.pulse = pulse
        self.sentinel_pid = sentinel_pid
        self.pinged_at: float | None = None

    def step(self, now: float) -> bool:
        problem = self.problem(now)
        if problem:
            log.error("no heartbeat: %s", problem, extra={"cluster": self.cluster})
            return False
        if self._needs_ping(now):
            async_task("fanout.ops.heartbeat.pong", q_options={"cluster": self.cluster, "save": False})
            self.pinged_at = now
        self._write()
        feed_watchdog()
        return True

    def problem(self, now: float) -> str:
        if not _is_alive(self.sentinel_pid):
            return "its sentinel has ended"
        if now - self.pulse.guard_at.value > GUARD_SILENT_AFTER.total_seconds():
            return "its guard stands still"
        if self.pinged_at and self._unanswered and now - self.pinged_at > WORKERS_SILENT_AFTER.total_seconds():
            return "its workers take no tasks"
        return ""

    @property
    def _unanswered(self) -> bool:
        return self.pinged_at is not None and self.pulse.task_at.value < self.pinged_at

    def _needs_ping(self, now: float) -> bool:
        return now - self.pulse.task_at.value > PING_AFTER.total_seconds() and not self._unanswered

    def _write(self) -> None:
        beat = ClusterBeat(cluster=self.cluster, host=socket.gethostname(), pid=os.getpid(), beat_at=Now())
        ClusterBeat.objects.bulk_create(
            [beat],
            update_conflicts=True,
            unique_fields=["cluster", "host"],
            update_fields=["pid", "beat_at"],
        )

    def beat_for_ever(self) -> None:
        while True:
            try:
                self.step(time.monotonic())
            except (DatabaseError, InterfaceError) as problem:
                log.warning("heartbeat not written: %s", problem, extra={"cluster": self.cluster})
                connection.close()
                # While the database is away no task can run: the ping's time starts again.
                self.pinged_at = None
            time.sleep(CLUSTER_BEATS_EVERY.total_seconds())


def start(cluster: str, pulse: Pulse, sentinel_pid: int | None) -> None:
    """Beat from a thread of its own; to be called after the cluster forked, for its connection's sake."""
    heart = Heart(cluster, pulse, sentinel_pid)
    threading.Thread(target=heart.beat_for_ever, name="heartbeat", daemon=True).start()


def beat_of_bridge() -> None:
    """A bridge's event loop goes round: told to whoever watches it, `manage.py up` or systemd."""
    if path := os.environ.get("BEAT_FILE", ""):
        with suppress(OSError):
            Path(path).touch()
    feed_watchdog()


def feed_watchdog() -> None:
    """Tell systemd, where it watches (`WatchdogSec=`), that the process works; it restarts one that does not."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            # A leading @ stands for the zero byte of an abstract address.
            notify.sendto(b"WATCHDOG=1", address.replace("@", "\0", 1) if address.startswith("@") else address)


def _is_alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
