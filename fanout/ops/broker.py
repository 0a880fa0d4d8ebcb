"""django-q2's database broker: patient with a database that restarts, and strict about what it hands out."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.dispatch import receiver
from django_q.brokers.orm import ORM
from django_q.models import Task
from django_q.signals import pre_enqueue

from fanout.ops import payloads

log = logging.getLogger("crier.broker")

PAUSE = 0.3


def _unread(value: Any, expression: Any, connection: Any) -> None:
    """Instead of unpickling it: django-q2 reads a failed task's earlier attempt, and others may write that table."""


for _pickled in ("args", "kwargs", "result"):
    Task._meta.get_field(_pickled).from_db_value = _unread


class CrierBroker(ORM):  # type: ignore[misc]  # django-q2 has no types
    def dequeue(self) -> list[tuple[int, str]] | None:
        """An error while polling makes django-q2's pusher sleep for ten seconds, with every driver slot waiting."""
        try:
            return [entry for entry in super().dequeue() or () if self._accepts(*entry)]
        except (DatabaseError, InterfaceError) as error:
            log.warning("the queue could not be read: %s", error, extra={"cluster": self.list_key})
            connections.close_all()
            time.sleep(PAUSE)
            return None

    def _accepts(self, pk: int, payload: str) -> bool:
        try:
            payloads.opened(payload)
        except payloads.Refused as why:
            log.error("task %s in the queue is refused: %s", pk, why)
            self.fail(pk)
            return False
        return True


@receiver(pre_enqueue)
def refuse_strange(task: dict[str, Any], **kwargs: Any) -> None:
    """Before a task is queued too: one with `sync` would be run at once, past the queue."""
    payloads.check(task)
