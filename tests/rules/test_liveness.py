"""Silent processes, and the order of what follows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.rules import liveness
from fanout.rules.liveness import cluster_is_alive, driver_is_alive

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("silent_for", "driver", "cluster"),
    [(0, True, True), (10, True, True), (11, False, True), (15, False, True), (16, False, False)],
)
def test_a_process_is_alive_until_its_limit(silent_for, driver, cluster):
    beat_at = NOW - timedelta(seconds=silent_for)
    assert (driver_is_alive(beat_at, NOW), cluster_is_alive(beat_at, NOW)) == (driver, cluster)


def test_a_process_that_never_beat_is_not_alive():
    assert not driver_is_alive(None, NOW)
    assert not cluster_is_alive(None, NOW)


def test_harmless_consequences_come_first():
    assert liveness.REPLACE_DRIVER_AFTER < liveness.DRIVER_SILENT_AFTER
    assert liveness.CLUSTER_SILENT_AFTER < liveness.RESTART_CLUSTER_AFTER < liveness.FIRST_BEAT_WITHIN


def test_a_slow_machine_is_not_taken_for_a_dead_one():
    """Several beats may be missed before anything happens, and tasks have their time before workers count as silent."""
    assert liveness.REPLACE_DRIVER_AFTER >= 3 * SECOND  # a driver's way through the queue
    assert liveness.CLUSTER_SILENT_AFTER >= 5 * liveness.CLUSTER_BEATS_EVERY
    assert liveness.RESTART_BRIDGE_AFTER >= 10 * liveness.BRIDGE_BEATS_EVERY
    assert liveness.WORKERS_SILENT_AFTER > 120 * SECOND + liveness.PING_AFTER
    assert liveness.CLUSTER_SILENT_AFTER < liveness.GUARD_SILENT_AFTER < liveness.FIRST_BEAT_WITHIN
