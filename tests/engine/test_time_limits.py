"""Time limits that live in different files and rest on each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from config.local import supervisor
from fanout.engine import dispatcher, driver, uploads
from fanout.rules import liveness

Q_CLUSTER: dict[str, Any] = settings.Q_CLUSTER
DRIVERS = Q_CLUSTER["ALT_CLUSTERS"]["drivers"]
DEPLOY = Path(settings.BASE_DIR, "deploy")


def test_a_driver_ends_within_the_time_limit_of_its_task() -> None:
    """django-q2 kills the worker then, and what it knew would be unconfirmed."""
    assert settings.DRIVER_SLICE_SECONDS + driver.LONGEST_END < DRIVERS["timeout"] < DRIVERS["retry"]
    assert liveness.WORKERS_SILENT_AFTER.total_seconds() > DRIVERS["timeout"] + liveness.PING_AFTER.total_seconds()


def test_calls_and_uploads_end_before_their_lane_is_given_up() -> None:
    assert dispatcher.SEND_LIMIT < driver.GIVE_UP_AFTER
    assert uploads.UPLOAD_LIMIT < driver.WIND_DOWN + driver.GIVE_UP_AFTER
    assert driver.TAKE_LANES_FOR + driver.GIVE_UP_AFTER <= driver.WIND_DOWN


def test_stopping_a_cluster_waits_for_its_drivers() -> None:
    assert driver.LONGEST_STOP < supervisor.STOP_PATIENCE


@pytest.mark.parametrize(
    ("file", "pattern", "at_least"),
    [
        ("systemd/crier.service", r"^TimeoutStopSec=(\d+)$", supervisor.STOP_PATIENCE),
        ("systemd/crier-cluster@.service", r"^TimeoutStopSec=(\d+)$", driver.LONGEST_STOP),
        (
            "compose.yaml",
            r"cluster drivers\n(?:.*\n)*? +stop_grace_period: (\d+)s$",
            driver.LONGEST_STOP,
        ),
    ],
)
def test_a_service_manager_does_too(file: str, pattern: str, at_least: float) -> None:
    limit = re.search(pattern, (DEPLOY / file).read_text(), re.MULTILINE)
    assert limit is not None
    assert int(limit[1]) > at_least
