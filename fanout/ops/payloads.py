"""What a worker may be asked to do.

django-q2 calls whatever function a row of its tables names. Crier's workers call Crier's own tasks, without
arguments: everything else in the queue is refused, also when it is signed with the right key.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from django_q import core_signing
from django_q.conf import Conf

#: a new task is added here, or it is refused
ALLOWED = frozenset(
    {
        "fanout.ops.tasks.drive",
        "fanout.ops.tasks.hygiene",
        "fanout.ops.tasks.hear",
        "fanout.ops.tasks.minute",
        "fanout.ops.tasks.notifications",
        "fanout.ops.tasks.prepare_runs",
        "fanout.ops.heartbeat.pong",
    }
)
#: of what django-q2 puts into a payload; `hook`, `chain` and `sync` would run something else or elsewhere
KEYS = frozenset({"id", "name", "func", "args", "kwargs", "started", "cluster", "group", "save", "ack_failure"})
#: the only classes in a payload of ours: the moment it was made
CLASSES = frozenset({("datetime", "datetime"), ("datetime", "timezone"), ("datetime", "timedelta")})


class Refused(Exception):
    """The payload is not one of Crier's; the text says why."""


def opened(payload: str) -> dict[str, Any]:
    """The task in a signed payload. Raises Refused; nothing of it is run while it is read."""
    try:
        task = core_signing.loads(payload, key=Conf.SECRET_KEY, salt=Conf.PREFIX, serializer=_PlainPickle)
    except Refused:
        raise
    except Exception as error:  # a bad signature, or bytes that are no pickle: there are many ways
        raise Refused(f"it cannot be read ({type(error).__name__})") from None
    check(task)
    return dict(task)


def check(task: Any) -> None:
    """Raises Refused unless the task is one of Crier's."""
    if not isinstance(task, dict):
        raise Refused("it is not a task")
    if not isinstance(task.get("func"), str) or task["func"] not in ALLOWED:
        raise Refused(f"{str(task.get('func'))[:100]!r} is not one of Crier's tasks")
    if strange := sorted(map(str, task.keys() - KEYS)):
        raise Refused(f"it has {', '.join(strange)}")
    if task.get("args") or task.get("kwargs"):
        raise Refused("Crier's tasks take no arguments")


class _PlainPickle:
    @staticmethod
    def loads(data: bytes) -> Any:
        return _PlainUnpickler(io.BytesIO(data)).load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in CLASSES:
            raise Refused(f"it holds a {module}.{name}")
        return super().find_class(module, name)
