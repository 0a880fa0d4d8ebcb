"""Time limits after which a driver, cluster or bridge counts as silent, and what follows. Pure.

Shortest first: harmless reactions come early, those that end a process come last.
"""

from __future__ import annotations

from datetime import datetime, timedelta

#: the clusters that must run
CLUSTERS = ("main", "drivers")
CLUSTER_BEATS_EVERY = timedelta(seconds=2)

# --- drivers, which beat every second ---------------------------------------------------------------------

#: Another driver is enqueued for the slot, at once where its database session is gone. A mistake costs one task: a
#: second driver exits because the slot lock is taken.
REPLACE_DRIVER_AFTER = timedelta(seconds=4)
#: Operators are told that it does not send, and its database session is ended, so that others get its locks. It beats
#: while it hands over, and a slow commit takes a few seconds: a slow driver must not lose its lanes.
DRIVER_SILENT_AFTER = timedelta(seconds=10)

#: A call takes at most 12 s, and its result is stored with the next commit. A target in flight for longer was answered,
#: and the database does not take the answer: the account sends nothing until it does.
RESULT_OVERDUE_AFTER = timedelta(seconds=30)

# --- clusters, which beat every two seconds ---------------------------------------------------------------

#: After so long without any task, a ping is sent through the queue: a worker that takes it proves that they work.
PING_AFTER = timedelta(seconds=15)
#: Probes, dashboard and doctor call the cluster dead. Before the supervisor acts, so that its restart is announced.
CLUSTER_SILENT_AFTER = timedelta(seconds=15)
#: The supervisor starts it anew.
RESTART_CLUSTER_AFTER = timedelta(seconds=20)
#: The cluster stops beating. Its guard goes round twice a second; a slow database can hold it up for a while.
GUARD_SILENT_AFTER = timedelta(seconds=20)
#: Until the first beat after a start: Django's start-up time on a busy machine.
FIRST_BEAT_WITHIN = timedelta(seconds=60)
#: The cluster stops beating. All workers may be inside a task until its time limit of 120 s, and a ping waits behind.
WORKERS_SILENT_AFTER = timedelta(seconds=160)
#: A cluster that has stopped beating for one of these two reasons ends itself, where nothing outside does it earlier:
#: Compose restarts only what has ended.
END_CLUSTER_AFTER = timedelta(seconds=30)
#: Its drivers have so long to store their results and hand over; a call takes at most 12 s.
HAND_OVER_WITHIN = timedelta(seconds=15)

# --- bridges, which beat every second from their event loop -------------------------------------------------

BRIDGE_BEATS_EVERY = timedelta(seconds=1)
#: The supervisor starts it anew. Its journal settles what it was sending, so little is lost where it was only slow.
RESTART_BRIDGE_AFTER = timedelta(seconds=10)


def driver_is_alive(beat_at: datetime | None, now: datetime) -> bool:
    return beat_at is not None and now - beat_at <= DRIVER_SILENT_AFTER


def cluster_is_alive(beat_at: datetime | None, now: datetime) -> bool:
    return beat_at is not None and now - beat_at <= CLUSTER_SILENT_AFTER
