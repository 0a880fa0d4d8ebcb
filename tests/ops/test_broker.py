"""Workers run only Crier's own tasks, even if django-q2's tables name others."""

from __future__ import annotations

import os
import pickle
import pydoc
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.utils import timezone
from django_q import core_signing
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule, Task
from django_q.monitor import save_task
from django_q.signing import SignedPackage
from django_q.tasks import async_task
from picklefield.fields import dbsafe_encode  # type: ignore[import-untyped]

from fanout.ops import broker, tasks
from tests.crier_processes import clusters

OURS = {"id": "1", "name": "one", "func": "fanout.ops.tasks.minute", "args": (), "kwargs": {}}


class Bomb:
    """Unpickling it runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def signed(task: Any) -> str:
    return SignedPackage.dumps(task | {"started": timezone.now()})


def test_ours_are_taken():
    assert broker.open_payload(signed(OURS))["func"] == "fanout.ops.tasks.minute"


def test_every_allowed_name_is_a_function():
    assert all(callable(pydoc.locate(name)) for name in broker.ALLOWED)
    assert {*tasks.EVERY_MINUTE.values(), *tasks.EVERY_15_MINUTES.values()} <= broker.ALLOWED


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"func": "os.system"}, "'os.system' is not one", id="function"),
        pytest.param({"func": os.system}, r"it holds a posix\.system", id="callable"),
        pytest.param({"hook": "os.system"}, "it has hook", id="hook"),
        pytest.param({"chain": [("os.system", (), {})]}, "it has chain", id="chain"),
        pytest.param({"sync": True}, "it has sync", id="sync"),
        pytest.param({"args": ("touch x",)}, "no arguments", id="arguments"),
        pytest.param({"kwargs": {"x": 1}}, "no arguments", id="named arguments"),
    ],
)
def test_everything_else_is_refused(change, why):
    with pytest.raises(broker.Refused, match=why):
        broker.open_payload(signed(OURS | change))


def test_reading_a_payload_runs_nothing(tmp_path):
    with pytest.raises(broker.Refused, match="it holds a posix"):
        broker.open_payload(signed(OURS | {"name": Bomb(tmp_path / "ran")}))
    assert not (tmp_path / "ran").exists()


@pytest.mark.django_db
def test_a_forged_result_does_not_run_either(tmp_path):
    """django-q2 reads the row of a failed task's earlier attempt, with everything that is pickled in it."""
    failed = OURS | {"success": False, "started": timezone.now(), "stopped": timezone.now(), "result": "no"}
    times = {"started": failed["started"], "stopped": failed["stopped"], "success": False}
    Task.objects.create(id="1", name="one", func=OURS["func"], args=(), kwargs={}, attempt_count=1, **times)
    bomb = dbsafe_encode(Bomb(tmp_path / "ran"), copy=False)  # a copy would run it
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_q_task SET args = %s, kwargs = %s, result = %s", [bomb] * 3)
    save_task(failed | {"sync": True}, broker.CrierBroker(list_key="main"))  # or it closes the test's connection
    assert not (tmp_path / "ran").exists()
    assert Task.objects.get().attempt_count == 2


FOREIGN = core_signing.dumps({"func": "x"}, key="another key")


@pytest.mark.parametrize("payload", ["", "garbage", FOREIGN], ids=["empty", "garbage", "another key"])
def test_payloads_with_a_wrong_signature_are_refused(payload):
    with pytest.raises(broker.Refused, match="cannot be read"):
        broker.open_payload(payload)


@pytest.mark.django_db
def test_a_refused_payload_leaves_the_queue(caplog):
    OrmQ.objects.create(key="main", payload=signed(OURS | {"func": "os.system"}), lock=_past())
    mine = OrmQ.objects.create(key="main", payload=signed(OURS), lock=_past())
    handed_out = [broker.CrierBroker(list_key="main").dequeue() for _ in range(2)]
    assert [entry[0] for entries in handed_out for entry in entries or ()] == [mine.pk]
    assert list(OrmQ.objects.values_list("pk", flat=True)) == [mine.pk]
    assert "'os.system' is not one of Crier's tasks" in caplog.text


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{}, {"sync": True}], ids=["queued", "at once"])
def test_other_tasks_cannot_be_queued(options, tmp_path):
    with pytest.raises(broker.Refused):
        async_task("os.system", f"touch {tmp_path / 'ran'}", q_options=dict(options))
    assert not OrmQ.objects.exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.django_db
def test_a_strange_schedule_is_removed_and_ours_stay(caplog):
    tasks.ensure_schedules()
    for number, change in enumerate(
        ({"func": "os.system"}, {"hook": "os.system"}, {"args": "'x'"}, {"kwargs": "q_options={'sync': True}"})
    ):
        Schedule.objects.create(**{"name": f"n{number}", "func": "fanout.ops.tasks.minute", **change})
    assert broker.remove_strange() == 4
    every = dict(Schedule.objects.values_list("name", "minutes"))
    often = {"crier-minute": 1, "crier-notifications": 1, "crier-webhooks": 1}
    assert every == often | {"crier-hygiene": 15, "crier-templates": 15}
    assert "(os.system) is not one of Crier's: removed, not run" in caplog.text


@pytest.mark.django_db
def test_schedules_follow_a_clock_that_is_set_back():
    tasks.ensure_schedules()
    now = timezone.now()
    assert broker.follow_the_clock(now) == 0
    hour_ago = now - timedelta(hours=1)
    assert broker.follow_the_clock(hour_ago) == 5
    assert set(Schedule.objects.values_list("next_run", flat=True)) == {hour_ago}


def test_django_q2_has_no_pages():
    assert not [model for model in admin.site._registry if model._meta.app_label == "django_q"]


def _past() -> Any:
    return timezone.now() - timedelta(seconds=5)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_real_cluster_runs_none_of_it(tmp_path):
    """A schedule and two payloads that would each leave a file behind, and one of ours that is run."""
    ran = {name: tmp_path / name for name in ("schedule", "at-once", "payload", "pickle")}
    touch = {name: f"('touch {path}',)" for name, path in ran.items()}
    Schedule.objects.create(name="a", func="os.system", args=touch["schedule"], next_run=_past(), repeats=-1)
    Schedule.objects.create(
        name="b", func="os.system", args=touch["at-once"], kwargs="{'q_options': {'sync': True}}", next_run=_past()
    )
    command = OURS | {"func": "os.system", "args": (f"touch {ran['payload']}",)}
    for payload in (signed(command), _as_django_q2_would(Bomb(ran["pickle"])), signed(OURS)):
        OrmQ.objects.create(key="main", payload=payload, lock=_past())
    with clusters(tmp_path / "log", "main"):
        # What is locked is with a worker: one of ours works on providers' reports all the time.
        _wait(
            lambda: (
                not OrmQ.objects.filter(key="main", lock__lte=timezone.now()).exists() and not Schedule.objects.exists()
            )
        )
    assert [name for name, path in ran.items() if path.exists()] == []
    log = (tmp_path / "log" / "main.log").read_text()
    assert log.count("is not one of Crier's: removed, not run") == 2
    assert log.count("in the queue is refused") == 2


def _as_django_q2_would(thing: Any) -> str:
    class Pickle:
        dumps = staticmethod(pickle.dumps)

    return str(core_signing.dumps(thing, key=Conf.SECRET_KEY, salt=Conf.PREFIX, serializer=Pickle))


def _wait(condition: Any, seconds: float = 180.0) -> None:
    """django-q2 looks at its schedules after thirty seconds, once its processes have started."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.2)
