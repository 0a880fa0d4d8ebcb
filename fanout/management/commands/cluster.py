"""`manage.py cluster main|drivers`: a django-q2 cluster with a heartbeat."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, OperationalError, connection, connections
from django_q import cluster as django_q_cluster
from django_q.cluster import Cluster, Sentinel

from config.problems import BEHIND_A_PROXY, is_proxy, set_up_problem
from fanout.management.base import NotDone, PlainCommand
from fanout.ops import broker, diagnosis, heartbeat, tasks
from fanout.rules.liveness import HAND_OVER_WITHIN

log = logging.getLogger(__name__)

ENSURE_SECONDS = 1.5
DATABASE_PATIENCE = 60


class Command(PlainCommand):
    help = "Run one of the django-q2 clusters, with the heartbeat that `manage.py up` watches."
    example = "cluster drivers"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=("main", "drivers"))

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        _configure(name)
        _wait_for_database(name)
        if reason := set_up_problem() or diagnosis.refusal():
            raise NotDone(reason)
        cluster = run(name)
        if cluster.sentinel.exitcode:
            raise CommandError(f"The sentinel of cluster {name} ended with code {cluster.sentinel.exitcode}.")


def _configure(name: str) -> None:
    """Restart the process with the name in the environment: django-q2 reads it while Django is set up."""
    if os.environ.get("Q_CLUSTER_NAME") != name:
        os.environ["Q_CLUSTER_NAME"] = name
        os.execv(sys.executable, [sys.executable, *sys.argv])


class SentinelInItsOwnGroup(Sentinel):  # type: ignore[misc]  # django-q2 has no types
    """A sentinel in its own process group.

    Ctrl-C and `kill` of the whole group reach only the main process, which then stops the others in order. Workers
    that got the signal too would die in the middle of a send, and django-q2 hangs without its pusher.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        os.setpgid(0, 0)
        super().__init__(*args, **kwargs)


def run(name: str) -> Cluster:
    pulse = heartbeat.Pulse()
    pulse.listen()
    django_q_cluster.Sentinel = SentinelInItsOwnGroup
    django_q_cluster.scheduler = broker.run_ours
    cluster = Cluster()
    # Replaces django-q2's handler, which joins the sentinel inside the signal and hangs at a second signal.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: tasks.ask_to_stop())
    # No connection may be shared with the processes that are forked now.
    connections.close_all()
    cluster.start()
    heart = heartbeat.start(name, pulse, cluster.sentinel.pid)
    _enqueue(name, tasks.boot if name == tasks.DRIVERS else tasks.ensure_inbound_worker)
    _watch(cluster, name, heart)
    return cluster


def _wait_for_database(name: str) -> None:
    """Wait until PostgreSQL answers: after a power cut it starts slower than the rest."""
    for _ in range(DATABASE_PATIENCE):
        try:
            connection.ensure_connection()
        except OperationalError as error:
            if is_proxy(error):
                raise NotDone(BEHIND_A_PROXY) from None
            log.warning("waiting for the database: %s", error, extra={"cluster": name})
            time.sleep(1)
        else:
            return
    raise CommandError(f"The database does not answer after {DATABASE_PATIENCE} s: is PostgreSQL running?")


def _watch(cluster: Cluster, name: str, heart: heartbeat.Heart) -> None:
    """Keep long-running tasks enqueued until the sentinel ends, or end it where it hangs."""
    ensure = tasks.ensure_drivers if name == tasks.DRIVERS else tasks.ensure_inbound_worker
    ensured, stopper = time.monotonic(), None
    while cluster.sentinel.is_alive():
        time.sleep(0.2)
        if heart.hangs:
            _end_hung(cluster, name)
        elif tasks.stop_asked():
            stopper = stopper or _begin_stop(cluster)
        elif time.monotonic() - ensured > ENSURE_SECONDS:
            ensured = time.monotonic()
            _enqueue(name, ensure)


def _end_hung(cluster: Cluster, name: str) -> None:
    """Kill the sentinel and its children, which no event reaches any more, after drivers have handed over."""
    log.critical("the cluster hangs; it ends, to be started again", extra={"cluster": name})
    tasks.ask_to_stop()
    until = time.monotonic() + HAND_OVER_WITHIN.total_seconds()
    with suppress(DatabaseError, psutil.NoSuchProcess):
        while heartbeat.drivers_among(cluster.sentinel.pid) and time.monotonic() < until:
            time.sleep(0.2)
    with suppress(ProcessLookupError):
        os.killpg(cluster.sentinel.pid, signal.SIGKILL)
    cluster.sentinel.join()


def _begin_stop(cluster: Cluster) -> threading.Thread:
    """Set the stop event in a thread: setting it blocks until all waiters wake, even a sentinel that was killed."""
    stopper = threading.Thread(target=cluster.stop_event.set, name="stop", daemon=True)
    stopper.start()
    return stopper


def _enqueue(name: str, tasks_of_cluster: Callable[[], None]) -> None:
    """Enqueue long-running tasks at once: django-q2's `retry` would do so after 135 s, or five minutes."""
    try:
        tasks_of_cluster()
    except Exception:
        log.exception("its long-running tasks were not enqueued", extra={"cluster": name})
        connections.close_all()
