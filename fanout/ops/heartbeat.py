"""Signs of life of clusters and lanes.

A cluster can stand still with all its processes alive: a worker killed -9 while it waited for work keeps the
lock of the shared queue, and one killed while it set its timer keeps the sentinel's guard waiting. So its heartbeat,
written from the cluster's main process, needs proof of both: the guard went round, and a worker took a task (a ping,
when there is no other). `manage.py up` and systemd restart a cluster whose heartbeat stops; where neither watches, it
ends itself, so that Compose starts it anew.

A lane that could send and makes no progress is freed, and its owner is told.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

import psutil
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models.functions import Now
from django_q.signals import pre_execute
from django_q.status import Stat
from django_q.tasks import async_task

from fanout.database import Row, carry_out, execute
from fanout.lanes.lane_rows import wake_lanes
from fanout.lanes.telling import add_event, tell
from fanout.models import ClusterBeat, Driver, Event
from fanout.models.run import lane_order
from fanout.rules.liveness import (
    CLUSTER_BEATS_EVERY,
    CLUSTER_SILENT_AFTER,
    CLUSTERS,
    DRIVER_SILENT_AFTER,
    END_CLUSTER_AFTER,
    GUARD_SILENT_AFTER,
    PING_AFTER,
    WORKERS_SILENT_AFTER,
)
from fanout.runs import texts
from fanout.runs.transitions import LIVE

log = logging.getLogger(__name__)

FORGOTTEN_AFTER = timedelta(days=7)


def silent_clusters() -> list[str]:
    """Return the clusters without a recent heartbeat on any machine, by the database's clock."""
    beating = ClusterBeat.objects.filter(beat_at__gte=Now() - CLUSTER_SILENT_AFTER).values_list("cluster", flat=True)
    return sorted({*CLUSTERS}.difference(beating))


def beating_drivers() -> list[Driver]:
    return list(Driver.objects.filter(beat_at__gte=Now() - DRIVER_SILENT_AFTER))


def drivers_among(sentinel_pid: int) -> bool:
    """Return whether a living child of the sentinel drives lanes."""
    pids = [child.pid for child in psutil.Process(sentinel_pid).children() if _is_alive(child.pid)]
    return Driver.objects.filter(host=socket.gethostname(), pid__in=pids, ended_at=None).exists()


def pong() -> None:
    """Do nothing: the ping task only proves that a worker took it."""


@dataclass
class Pulse:
    """Signs of life that the cluster's forked processes leave in shared memory.

    Raw values, without a lock: a lock here could be left held by a killed process like the ones we watch for.
    """

    guard_at: Any = field(default_factory=lambda: RawValue("d", time.monotonic()))
    task_at: Any = field(default_factory=lambda: RawValue("d", time.monotonic()))

    def listen(self) -> None:
        """Connect to django-q2. Call it before the cluster forks."""
        pre_execute.connect(self._on_task, weak=False)
        save = Stat.save

        # The guard saves its status in every round. Reading it from the cache would need a cache that is shared
        # between processes, which a small installation does not have.
        def save_and_note(stat: Stat) -> None:
            self.guard_at.value = time.monotonic()
            save(stat)

        Stat.save = save_and_note

    def _on_task(self, **_kwargs: object) -> None:
        self.task_at.value = time.monotonic()


class Heart:
    """Decides every two seconds whether to write a heartbeat."""

    def __init__(self, cluster: str, pulse: Pulse, sentinel_pid: int | None) -> None:
        self.cluster = cluster
        self.pulse = pulse
        self.sentinel_pid = sentinel_pid
        self.pinged_at: float | None = None
        self.problem_since: float | None = None
        self.hangs = False

    def step(self, now: float) -> bool:
        if not _is_alive(self.sentinel_pid):
            return False  # the cluster is ending; where it was not asked to, its command says so
        problem = self.problem(now)
        if problem:
            log.error("no heartbeat: %s", problem, extra={"cluster": self.cluster})
            self._look_whether_it_hangs(now)
            return False
        self.problem_since = None
        if self._needs_ping(now):
            async_task("fanout.ops.heartbeat.pong", q_options={"cluster": self.cluster, "save": False})
            self.pinged_at = now
        self._write()
        feed_watchdog()
        return True

    def problem(self, now: float) -> str:
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

    def _look_whether_it_hangs(self, now: float) -> None:
        """Set `hangs` when the problem has lasted. While the database is away, anything may stand still."""
        self.problem_since = now if self.problem_since is None else self.problem_since
        if now - self.problem_since > END_CLUSTER_AFTER.total_seconds():
            execute("SELECT 1 AS answers", {})
            self.hangs = True

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
                # Without the database no task can run: the ping starts again later.
                self.pinged_at = self.problem_since = None
            time.sleep(CLUSTER_BEATS_EVERY.total_seconds())


def forget_old_beats(now: datetime) -> None:
    """Delete heartbeats of machines that have been gone for a week. Containers get a new host name each time."""
    ClusterBeat.objects.filter(beat_at__lt=now - FORGOTTEN_AFTER).delete()


def start(cluster: str, pulse: Pulse, sentinel_pid: int | None) -> Heart:
    """Write heartbeats from a thread. Call it after the cluster forked: connections must not be shared."""
    heart = Heart(cluster, pulse, sentinel_pid)
    threading.Thread(target=heart.beat_for_ever, name="heartbeat", daemon=True).start()
    return heart


def beat_of_bridge() -> None:
    """Tell `manage.py up` and systemd that the bridge's event loop is running."""
    if path := os.environ.get("BEAT_FILE", ""):
        with suppress(OSError):
            Path(path).touch()
    feed_watchdog(b"READY=1\nWATCHDOG=1")


def feed_watchdog(words: bytes = b"WATCHDOG=1") -> None:
    """Tell systemd's watchdog (`WatchdogSec=`), if there is one, that the process works. It counts from "ready" where
    the unit has `Type=notify`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            # A leading @ stands for the zero byte of an abstract address.
            notify.sendto(words, address.replace("@", "\0", 1) if address.startswith("@") else address)


def _is_alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- lanes without progress -------------------------------------------------------------------------------


NO_PROGRESS_FOR = timedelta(minutes=5)
TELL_AGAIN_AFTER = timedelta(hours=1)
STALLED_VERB = "stalled"

# When the window opens whose end the run knows.
WINDOW_OPENS = """(date_trunc('day', (r.window_closes_at AT TIME ZONE r.timezone) - interval '1 second')
                   + make_interval(hours => r.window_start_hour)) AT TIME ZONE r.timezone"""

# A run that should be sending: started, or due and not started yet, or at the end of its wait.
SHOULD_SEND = f"""(r.status = 'running' AND r.started_at < %(before)s
                 OR r.status = 'queued' AND r.scheduled_for < %(before)s AND {WINDOW_OPENS} < %(before)s
                 OR r.status = 'waiting' AND r.waiting_until < %(before)s)"""

# A recipient for whom an earlier run of the lane has something pending, such as a retry, comes first (sql.TARGETS).
OWED_FIRST = f"""EXISTS (
                 SELECT FROM fanout_run b JOIN fanout_runtarget e ON e.run_id = b.id AND e.recipient_id = t.recipient_id
                  WHERE e.status IN ('pending', 'sending') AND b.id <> r.id
                    AND (b.id = r.answers_id OR (b.status IN {LIVE} AND b.lanes @> ARRAY[l.account_id]
                                                 AND ({lane_order("b")}) < ({lane_order("r")}))))"""

# Not parked, nothing claimed or recorded for a while, not waiting, and with something that may be sent.
STALLED = f"""
SELECT a.id, a.label, a.owner_id, a.team_id,
       (SELECT count(*) FROM fanout_runtarget f
         WHERE f.account_id = a.id AND f.status = 'sending' AND f.claimed_at < %(before)s) AS unstored
  FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id
 WHERE a.status = 'active' AND l.due_at <= %(now)s AND l.progress_at < %(before)s
   AND (l.next_send_at IS NULL OR l.next_send_at < %(before)s)
   AND EXISTS (SELECT FROM fanout_run r
                WHERE r.lanes @> ARRAY[l.account_id] AND {SHOULD_SEND}
                  AND EXISTS (SELECT FROM fanout_runtarget t
                               WHERE t.run_id = r.id AND t.account_id = l.account_id AND t.status = 'pending'
                                 AND (t.next_attempt_at IS NULL OR t.next_attempt_at < %(before)s)
                                 AND NOT {OWED_FIRST}))
 ORDER BY l.account_id
"""

# Fences the current holder, which stops; the next driver takes the lane.
FENCE_LANE = "UPDATE fanout_lanestate SET epoch = epoch + 1, holder = '' WHERE account_id = %(account)s"


def free_stalled(now: datetime) -> int:
    """Free lanes without progress; called every minute. Returns how many there were."""
    rows = execute(STALLED, {"now": now, "before": now - NO_PROGRESS_FOR})
    for row in rows:
        log.error("a lane has made no progress", extra={"account": row["id"]})
        _free_lane(row, now)
    return len(rows)


def _free_lane(row: Row, now: datetime) -> None:
    account = row["id"]
    recent = Event.objects.filter(account=account, verb=STALLED_VERB, at__gte=now - TELL_AGAIN_AFTER)
    with transaction.atomic():
        execute(FENCE_LANE, {"account": account})
        wake_lanes([account], now)
        if recent.exists():
            return
        cause = f": {texts.unstored(row['unstored'])}" if row["unstored"] else " although it could; it is tried again"
        detail = f"Nothing was sent for {NO_PROGRESS_FOR.seconds // 60} minutes{cause}."
        execute(*add_event(now, STALLED_VERB, detail, account=account))
        carry_out(tell(row, "Account stalled", detail, "warning", now))
