"""The tasks that django-q2 calls."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta

import psycopg
import pytest
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ

from fanout.database import conninfo
from fanout.models import Driver
from fanout.ops import tasks
from fanout.runs import firing

pytestmark = pytest.mark.django_db(transaction=True)

NO_PID = 2**31 - 1  # above what any kernel gives


def raises(now: datetime) -> None:
    raise ValueError("this step is broken")


def loses_its_connection(now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize("step", [raises, loses_its_connection])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_step_of_the_minute_that_fails_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: tasks.Step, place: int
) -> None:
    ran = []

    def followed(name: str, really: tasks.Step) -> tasks.Step:
        def run(now: datetime) -> None:
            really(now)
            ran.append(name)

        return run

    names = [each.__name__ for each in tasks.STEPS]
    steps = [followed(each.__name__, each) for each in tasks.STEPS]
    monkeypatch.setattr(tasks, "STEPS", (*steps[:place], step, *steps[place:]))
    monkeypatch.setattr(tasks, "ensure_drivers", lambda: ran.append("ensure_drivers"))
    # The last of all: it may end the worker.
    monkeypatch.setattr(firing, "fire_after_failures", followed("fire_after_failures", firing.fire_after_failures))
    tasks.minute()
    assert ran == [*names, "ensure_drivers", "fire_after_failures"]
    assert f"failed: {step.__name__}" in caplog.text


@pytest.mark.parametrize(
    ("session", "beaten_ago", "ended", "enqueued"),
    [
        ("alive", 1, False, 0),
        ("alive", 6, False, 1),  # it stands still
        ("gone", 1, False, 1),  # killed a moment ago
        ("alive", 1, True, 1),
    ],
)
def test_a_slot_whose_driver_is_not_there_gets_another(
    settings, session: str, beaten_ago: float, ended: bool, enqueued: int
) -> None:
    settings.DRIVER_SLOTS = 1
    with psycopg.connect(conninfo(connection.settings_dict)) as its_session:
        Driver.objects.create(
            host=socket.gethostname(),
            slot=0,
            token="its token",
            pid=1,
            backend_pid=its_session.info.backend_pid if session == "alive" else NO_PID,
            started_at=timezone.now(),
            beat_at=timezone.now() - timedelta(seconds=beaten_ago),
            ended_at=timezone.now() if ended else None,
        )
        tasks.ensure_drivers()
    assert OrmQ.objects.count() == enqueued
