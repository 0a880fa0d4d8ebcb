"""django-q2 entry points: a few lines each."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from accounts.channels.registry import transport_for
from fanout.database import conninfo
from fanout.engine import sql
from fanout.engine.clock import SystemClock
from fanout.engine.connection import AsyncLink, by_key, prepare
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from fanout.inbound import hearing
from fanout.lanes import accounts
from fanout.lanes.wake import wake_after_clock_change
from fanout.models import Driver as DriverRow
from fanout.ops import audit, passing_on, stalls, stop
from fanout.rules.liveness import REPLACE_DRIVER_AFTER
from fanout.runs import account_controls, controls, firing, message_2, preparing
from fanout.runs.hygiene import clean_up

log = logging.getLogger("crier.tasks")

Step = Callable[[datetime], object]

SELDOM = (100_000, 50, 100)  # Python's usual thresholds are (700, 10, 10)

MAIN, DRIVERS = "main", "drivers"
# What providers answered and nobody could write yet: for the next slice of this process.
OUTBOX = Outbox()
EVERY_MINUTE = {"minute": "fanout.ops.tasks.minute", "notifications": "fanout.ops.tasks.notifications"}
EVERY_15_MINUTES = {"hygiene": "fanout.ops.tasks.hygiene"}


def drive() -> str:
    """One slice of a driver, then its successor."""
    parent = os.getppid()
    if stop.asked():
        return "the cluster is stopping"
    driver = Driver(
        SystemClock(),
        open_ledger,
        transport_for,
        capacity=settings.BOT_FIRE_CONCURRENCY,
        slots=settings.DRIVER_SLOTS,
        slice_seconds=settings.DRIVER_SLICE_SECONDS,
        stop_asked=lambda: stop.asked() or os.getppid() != parent,
        outbox=OUTBOX,
    )
    with collecting_seldom():
        driven = asyncio.run(driver.run())
    if not driven:
        return "this machine has all its drivers"
    if not driver.stop_asked():
        enqueue_driver()
    return "handed over"


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """A driver of many lanes holds hundreds of thousands of objects that no collection would free, and looking at them
    again and again took a fifth of its time. What there is in cycles waits for the end of the slice."""
    usual = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.collect()


async def open_ledger(outbox: Outbox) -> Ledger:
    info = conninfo(connection.settings_dict)
    locks = await AsyncLink.open(info, threshold=None)
    try:
        return Ledger(await prepare(locks), await by_key(await AsyncLink.open(info)), outbox)
    except BaseException:
        await locks.close()
        raise


def enqueue_driver() -> None:
    async_task("fanout.ops.tasks.drive", cluster=DRIVERS, task_name="driver")


def ensure_drivers() -> None:
    """Every slot of this machine has a driver or one on its way. Duplicates do no harm: one that finds no free slot
    ends at once, and one that waits in the queue is the successor of whoever hands over next."""
    on_their_way = OrmQ.objects.filter(key=DRIVERS, lock__lte=timezone.now()).count()
    for _ in range(settings.DRIVER_SLOTS - _live_drivers() - on_their_way):
        enqueue_driver()


def _live_drivers() -> int:
    """Of this machine. One that was killed is known by its session, which ends at once, and not only by its beats."""
    live = DriverRow.objects.raw(sql.LIVE_DRIVERS, {"silent_after": REPLACE_DRIVER_AFTER})
    return sum(driver.host == socket.gethostname() and driver.slot < settings.DRIVER_SLOTS for driver in live)


def hear() -> str:
    """One slice of working on what providers reported, then its successor."""
    parent = os.getppid()

    def stopping() -> bool:
        return stop.asked() or os.getppid() != parent

    if not hearing.listen(settings.DRIVER_SLICE_SECONDS, stopping):
        return "somebody else is hearing"
    if not stopping():
        enqueue_hearing()
    return "handed over"


def enqueue_hearing() -> None:
    async_task("fanout.ops.tasks.hear", cluster=MAIN, task_name="hearing")


def ensure_hearing() -> None:
    """Somebody hears, or something is on its way. Duplicates do no harm: one without the lock ends at once."""
    on_its_way = OrmQ.objects.filter(key=MAIN, lock__lte=timezone.now())
    if not on_its_way.exists() and not hearing.somebody_listens():
        enqueue_hearing()


def boot() -> None:
    """When a cluster starts: every slot anew, because what was queued before may be locked for a while."""
    ensure_schedules()
    for _ in range(settings.DRIVER_SLOTS):
        enqueue_driver()


def minute() -> None:
    """Once a minute, on the cluster `main`. A step that fails does not keep the others from their turn."""
    now = timezone.now()
    for step in STEPS:
        _take(step, now)
    ensure_drivers()
    ensure_hearing()
    _take(firing.fire_suspects, now)  # last: it may end this worker


def _take(step: Step, now: datetime) -> None:
    try:
        step(now)
    except Exception:
        log.exception("a step of the minute failed: %s", step.__name__)
        connection.close_if_unusable_or_obsolete()


def go_on_preparing(now: datetime) -> None:
    if preparing.unprepared():
        firing.enqueue_preparing()


def wake_after_set_back(now: datetime) -> None:
    if woken := wake_after_clock_change(now):
        log.warning("the clock was set back: %d lanes look again", woken)


def wake_sleeping(now: datetime) -> None:
    """Work that no lane comes for should not exist; if it does, it gets its lane, and the log says so."""
    forgotten, asleep = audit.forgotten_lanes(now, now), audit.sleeping(now, now)
    for violation in forgotten:
        log.error("%s: %s", violation.subject, violation.text, extra={"run": violation.key})
    for violation in asleep:
        log.error("%s: %s", violation.subject, violation.text, extra={"accounts": violation.key})
    audit.name_lanes(forgotten, now)
    audit.wake(asleep, now)


STEPS: tuple[Step, ...] = (
    firing.fire_due,
    go_on_preparing,
    wake_after_set_back,
    account_controls.end_suspensions,
    controls.resume_due,
    controls.sweep_canceled,
    message_2.skip_expired,
    wake_sleeping,
    stalls.free_stalled,
    accounts.note_deliveries,
)


def notifications() -> None:
    """Once a minute, apart from the firing: a slow mail server must not hold that up."""
    passing_on.pass_on(timezone.now())


def hygiene() -> None:
    """Every 15 minutes, on the cluster `main`."""
    clean_up(timezone.now())


def prepare_runs() -> None:
    """Copy the targets of large runs; as many tasks as it takes, one after the other."""
    for run_id in preparing.unprepared():
        try:
            prepared = preparing.prepare(run_id, timezone.now())
        except Exception:
            log.exception("a run could not be prepared", extra={"run": run_id})
            connection.close_if_unusable_or_obsolete()
            continue
        if not prepared:
            firing.enqueue_preparing()
            return


def ensure_schedules() -> None:
    """Ours exist, and none of an earlier version is left."""
    names = [f"crier-{name}" for name in EVERY_MINUTE | EVERY_15_MINUTES]
    Schedule.objects.filter(name__startswith="crier-").exclude(name__in=names).delete()
    for minutes, schedules in ((1, EVERY_MINUTE), (15, EVERY_15_MINUTES)):
        for name, path in schedules.items():
            _ensure_schedule(f"crier-{name}", path, minutes)


def _ensure_schedule(name: str, path: str, minutes: int) -> None:
    schedule = {"func": path, "schedule_type": Schedule.MINUTES, "minutes": minutes, "repeats": -1, "cluster": MAIN}
    Schedule.objects.update_or_create(name=name, defaults=schedule)
