"""The tasks that django-q2 calls."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.db import connection

from fanout.ops import tasks

pytestmark = pytest.mark.django_db(transaction=True)


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
    tasks.minute()
    assert ran == [*names, "ensure_drivers"]
    assert f"failed: {step.__name__}" in caplog.text
