"""Stopping a cluster."""

from __future__ import annotations

import multiprocessing
import threading
import time
from types import SimpleNamespace

from fanout.management.commands import cluster
from fanout.ops import tasks

PATIENCE = 20.0


def test_a_sentinel_that_was_killed_while_it_waited_holds_up_no_stop(monkeypatch) -> None:
    """Setting the event waited for that sentinel to wake, and the cluster ended by its time limit only."""
    forks = multiprocessing.get_context("fork")
    event = forks.Event()
    killed = forks.Process(target=event.wait)
    killed.start()
    until = time.monotonic() + PATIENCE
    while not event._cond._sleeping_count.get_value():  # type: ignore[attr-defined]
        assert time.monotonic() < until, "it did not begin to wait"
        time.sleep(0.01)
    killed.kill()
    killed.join()
    sentinel = forks.Process(target=time.sleep, args=(1,))  # as long as it is there, `_watch` goes on
    sentinel.start()
    monkeypatch.setattr(tasks, "stop_asked", lambda: True)

    watching = threading.Thread(
        target=cluster._watch,
        args=(SimpleNamespace(sentinel=sentinel, stop_event=event), "main", SimpleNamespace(hangs=False)),
        daemon=True,
    )
    watching.start()
    watching.join(PATIENCE)

    assert not watching.is_alive(), "still waiting for a dead process"
