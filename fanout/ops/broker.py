"""django-q2's database broker, patient with a database that restarts."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django_q.brokers.orm import ORM

log = logging.getLogger("crier.broker")

PAUSE = 0.3


class PatientBroker(ORM):  # type: ignore[misc]  # django-q2 has no types
    """An error while polling makes django-q2's pusher sleep for ten seconds, with every driver slot waiting."""

    def dequeue(self) -> Any:
        try:
            return super().dequeue()
        except (DatabaseError, InterfaceError) as error:
            log.warning("the queue could not be read: %s", error, extra={"cluster": self.list_key})
            connections.close_all()
            time.sleep(PAUSE)
            return None
