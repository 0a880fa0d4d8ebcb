"""django-q2's database broker and scheduler, for Crier's own tasks only.

django-q2 calls any function that a row of its tables names. Crier's workers call Crier's own tasks, without arguments:
everything else in the queue or among the schedules is refused, even if it is signed with the right key.
"""

from __future__ import annotations

import io
import logging
import pickle
import time
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone
from django_q import core_signing
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import Schedule, Task
from django_q.scheduler import scheduler
from django_q.signals import pre_enqueue

log = logging.getLogger("crier.broker")

PAUSE = 0.3


def _unread(value: Any, expression: Any, connection: Any) -> None:
    """Return None instead of unpickling: django-q2 reads a task's earlier attempt, and others may write that table."""


for _pickled in ("args", "kwargs", "result"):
    Task._meta.get_field(_pickled).from_db_value = _unread


class CrierBroker(ORM):  # type: ignore[misc]  # django-q2 has no types
    def dequeue(self) -> list[tuple[int, str]] | None:
        """Return the next tasks; None after a database error.

        An error while polling makes django-q2's pusher sleep for ten seconds, with every driver slot waiting.
        """
        try:
            return [entry for entry in super().dequeue() or () if self._accepts(*entry)]
        except (DatabaseError, InterfaceError) as error:
            log.warning("the queue could not be read: %s", error, extra={"cluster": self.list_key})
            connections.close_all()
            time.sleep(PAUSE)
            return None

    def _accepts(self, pk: int, payload: str) -> bool:
        try:
            open_payload(payload)
        except Refused as why:
            log.error("task %s in the queue is refused: %s", pk, why)
            self.fail(pk)
            return False
        return True


@receiver(pre_enqueue)
def refuse_strange(task: dict[str, Any], **kwargs: Any) -> None:
    """Check a task before it is queued, too: one with `sync` would run at once, bypassing the queue."""
    check_task(task)


# --- payloads ---------------------------------------------------------------------------------------------


#: a new task is added here, or it is refused
ALLOWED = frozenset(
    {
        "fanout.ops.tasks.carry_on",
        "fanout.ops.tasks.collect_messages",
        "fanout.ops.tasks.drive",
        "fanout.ops.tasks.hygiene",
        "fanout.ops.tasks.post_webhooks",
        "fanout.ops.tasks.process_inbound",
        "fanout.ops.tasks.minute",
        "fanout.ops.tasks.notifications",
        "fanout.ops.tasks.prepare_runs",
        "fanout.ops.tasks.templates",
        "fanout.ops.heartbeat.pong",
    }
)
#: keys of a payload that are accepted; `hook`, `chain` and `sync` would run something else or elsewhere
TASK_KEYS = frozenset({"id", "name", "func", "args", "kwargs", "started", "cluster", "group", "save", "ack_failure"})
#: the only classes in our payloads: the time of creation
PICKLED_CLASSES = frozenset({("datetime", "datetime"), ("datetime", "timezone"), ("datetime", "timedelta")})


class Refused(Exception):
    """The payload is not one of Crier's; the text says why."""


def open_payload(payload: str) -> dict[str, Any]:
    """Return the task in a signed payload, without running any of it. Raises Refused."""
    try:
        task = core_signing.loads(payload, key=Conf.SECRET_KEY, salt=Conf.PREFIX, serializer=_PlainPickle)
    except Refused:
        raise
    except Exception as error:  # a bad signature, or bytes that are not a pickle: there are many ways
        raise Refused(f"it cannot be read ({type(error).__name__})") from None
    check_task(task)
    return dict(task)


def check_task(task: Any) -> None:
    """Raises Refused unless the task is one of Crier's."""
    if not isinstance(task, dict):
        raise Refused("it is not a task")
    if not isinstance(task.get("func"), str) or task["func"] not in ALLOWED:
        raise Refused(f"{str(task.get('func'))[:100]!r} is not one of Crier's tasks")
    if strange := sorted(map(str, task.keys() - TASK_KEYS)):
        raise Refused(f"it has {', '.join(strange)}")
    if task.get("args") or task.get("kwargs"):
        raise Refused("Crier's tasks take no arguments")


class _PlainPickle:
    @staticmethod
    def loads(data: bytes) -> Any:
        return _PlainUnpickler(io.BytesIO(data)).load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PICKLED_CLASSES:
            raise Refused(f"it holds a {module}.{name}")
        return super().find_class(module, name)


# --- schedules --------------------------------------------------------------------------------------------


AHEAD_AT_MOST = timedelta(minutes=2)
_EMPTY = ("", "()", "{}")
#: our schedules name one of our tasks, without arguments and without a hook
OUR_SCHEDULES = (
    Q(func__in=ALLOWED)
    & (Q(hook=None) | Q(hook=""))
    & (Q(args=None) | Q(args__in=_EMPTY))
    & (Q(kwargs=None) | Q(kwargs__in=_EMPTY))
)


def run_ours(broker: Any = None) -> None:
    """Run due schedules in place of django-q2's own scheduler; foreign ones are removed before they can run."""
    try:
        remove_strange()
        follow_the_clock(timezone.now())
    except DatabaseError as error:
        log.warning("the schedules could not be checked: %s", error)
        return
    scheduler(broker=broker)


def follow_the_clock(now: datetime) -> int:
    """Pull back schedules whose next time is too far ahead because the clock was set back.

    They would stand still for as long, and with them all firings. Returns how many there were.
    """
    too_far = Schedule.objects.filter(schedule_type=Schedule.MINUTES, next_run__gt=now + AHEAD_AT_MOST)
    pulled_back: int = too_far.update(next_run=now)
    return pulled_back


def remove_strange() -> int:
    """Delete schedules that are not Crier's. Returns how many there were."""
    strange = Schedule.objects.exclude(pk__in=Schedule.objects.filter(OUR_SCHEDULES).values("pk"))
    for schedule in strange:
        log.error("schedule %s (%s) is not one of Crier's: removed, not run", schedule.pk, schedule.func[:100])
    removed: int = strange.delete()[0]
    return removed
