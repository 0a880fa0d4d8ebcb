"""django-q2 entry points: a few lines each."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from accounts.channels.registry import transport_for
from fanout.engine.clock import SystemClock
from fanout.engine.connection import AsyncLink, by_key, conninfo, prepare
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.models import Driver as DriverRow
from fanout.ops import audit, passing_on
from fanout.rules.liveness import REPLACE_DRIVER_AFTER
from fanout.runs import controls, firing

log = logging.getLogger("crier.tasks")

DRIVERS = "drivers"
EVERY_MINUTE = {"minute": "fanout.ops.tasks.minute", "notifications": "fanout.ops.tasks.notifications"}


def drive(slot: int) -> str:
    """One slice of a driver, then its successor."""
    parent = os.getppid()
    driver = Driver(
        slot,
        SystemClock(),
        open_ledger,
        transport_for,
        capacity=settings.BOT_FIRE_CONCURRENCY,
        slots=settings.DRIVER_SLOTS,
        slice_seconds=settings.DRIVER_SLICE_SECONDS,
        orphaned=lambda: os.getppid() != parent,
    )
    if not asyncio.run(driver.run()):
        return "another driver has this slot"
    if not driver.orphaned():
        enqueue_driver(slot)
    return "handed over"


async def open_ledger() -> Ledger:
    info = conninfo(connection.settings_dict)
    return Ledger(await prepare(await AsyncLink.open(info, threshold=None)), await by_key(await AsyncLink.open(info)))


def enqueue_driver(slot: int) -> None:
    async_task("fanout.ops.tasks.drive", slot, cluster=DRIVERS, task_name=f"driver-{slot}")


def ensure_drivers() -> None:
    """Every slot has a driver or one on its way. Duplicates do no harm: the slot's lock sends them home."""
    now = timezone.now()
    beating = DriverRow.objects.filter(beat_at__gte=now - REPLACE_DRIVER_AFTER, ended_at__isnull=True)
    idle = set(range(settings.DRIVER_SLOTS)) - set(beating.values_list("slot", flat=True))
    on_their_way = OrmQ.objects.filter(key=DRIVERS, lock__lte=now).count()
    for slot in sorted(idle)[on_their_way:]:
        enqueue_driver(slot)


def boot() -> None:
    """When a cluster starts: every slot anew, because what was queued before may be locked for a while."""
    ensure_schedules()
    for slot in range(settings.DRIVER_SLOTS):
        enqueue_driver(slot)


def request_drain(host: str | None = None) -> None:
    """Ask the drivers of a machine to hand over now; a running task never sees SIGTERM."""
    DriverRow.objects.filter(host=host or socket.gethostname()).update(drain=True)


def minute() -> None:
    """Once a minute, on the cluster `main`."""
    now = timezone.now()
    firing.fire_due(now)
    controls.end_suspensions(now)
    controls.resume_due(now)
    controls.sweep_canceled(now)
    # Work that nobody comes for should not exist; if it does, it is woken and somebody can read about it.
    asleep = audit.sleeping(now, now)
    for violation in asleep:
        log.error("%s: %s", violation.subject, violation.text, extra={"accounts": violation.key})
    audit.wake(asleep, now)
    ensure_drivers()


def notifications() -> None:
    """Once a minute, apart from the firing: a slow mail server must not hold that up."""
    passing_on.pass_on(timezone.now())


def ensure_schedules() -> None:
    """Ours exist, and none of an earlier version is left."""
    names = [f"crier-{name}" for name in EVERY_MINUTE]
    Schedule.objects.filter(name__startswith="crier-").exclude(name__in=names).delete()
    for name, path in EVERY_MINUTE.items():
        Schedule.objects.update_or_create(
            name=f"crier-{name}",
            defaults={"func": path, "schedule_type": Schedule.MINUTES, "minutes": 1, "repeats": -1, "cluster": "main"},
        )
