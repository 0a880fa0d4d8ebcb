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
from functools import cache
from multiprocessing.sharedctypes import RawValue
from urllib.parse import quote

from django.conf import settings
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.tasks import async_task

from accounts import message_templates, tokens
from accounts.channels.registry import transport_for
from fanout.database import conninfo, execute
from fanout.engine import holding, lost_commits
from fanout.engine.claim_journal import ClaimJournal
from fanout.engine.clock import SystemClock
from fanout.engine.connection import AsyncLink, by_key, prepare
from fanout.engine.counters import FOLD_ALL
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from fanout.inbound import worker
from fanout.lanes import accounts, reputation, results
from fanout.lanes.lane_rows import wake_after_clock_change
from fanout.models import Correction, KeptAnswer, Offload, SingleMessage, WebhookEndpoint
from fanout.models import Driver as DriverRow
from fanout.ops import audit, heartbeat, passing_on, webhooks
from fanout.rules.liveness import REPLACE_DRIVER_AFTER
from fanout.runs import controls, corrections, firing, freezing, message_2, sequences, server, single_messages
from fanout.runs.freezing import enqueue_preparing
from fanout.runs.hygiene import clean_up

log = logging.getLogger("crier.tasks")

Step = Callable[[datetime], object]

CARRY_ON_FOR = 40.0  # seconds of one task, which may take 60
RARE_COLLECTION = (100_000, 50, 100)  # Python's usual thresholds are (700, 10, 10)

MAIN, DRIVERS = "main", "drivers"
# Provider answers that could not be stored yet, for the next slice of this process.
OUTBOX = Outbox()


@cache
def journal_of(database: str) -> ClaimJournal:
    """Return this process's journal of one database, by its name: each has a folder of its own."""
    return ClaimJournal(settings.VAR_DIR / "claims" / quote(database, safe=""))


EVERY_MINUTE = {
    "minute": "fanout.ops.tasks.minute",
    "notifications": "fanout.ops.tasks.notifications",
    "webhooks": "fanout.ops.tasks.post_webhooks",
}
EVERY_15_MINUTES = {"hygiene": "fanout.ops.tasks.hygiene", "templates": "fanout.ops.tasks.templates"}


def drive() -> str:
    """Run one slice of a driver, then enqueue its successor."""
    parent = os.getppid()
    if stop_asked():
        return "the cluster is stopping"
    driver = Driver(
        SystemClock(),
        open_ledger,
        transport_for,
        capacity=settings.BOT_FIRE_CONCURRENCY,
        slots=settings.DRIVER_SLOTS,
        slice_seconds=settings.DRIVER_SLICE_SECONDS,
        stop_asked=lambda: stop_asked() or os.getppid() != parent,
        outbox=OUTBOX,
    )
    with rare_garbage_collection():
        driven = asyncio.run(driver.run())
    if not driven:
        return "this machine has all its drivers"
    if not driver.stop_asked():
        enqueue_driver()
    return "handed over"


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Make garbage collection rare while a driver runs.

    A driver of many lanes holds hundreds of thousands of live objects, and scanning them again and again took a fifth
    of its time. Cycles are freed at the end of the slice.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*RARE_COLLECTION)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.collect()


async def open_ledger(outbox: Outbox) -> Ledger:
    info = conninfo(connection.settings_dict)
    locks = await AsyncLink.open(info, threshold=None)
    journal = journal_of(locks.connection.info.dbname)
    try:
        ledger = Ledger(await prepare(locks), await by_key(await AsyncLink.open(info)), outbox, journal)
    except BaseException:
        await locks.close()
        raise
    try:
        ledger.held = await lost_commits.check(ledger)
    except BaseException:
        await ledger.close_connections()
        raise
    return ledger


def enqueue_driver() -> None:
    async_task("fanout.ops.tasks.drive", cluster=DRIVERS, task_name="driver")


def ensure_drivers() -> None:
    """Enqueue drivers until every slot of this machine has one running or queued.

    Duplicates do no harm: one that finds no free slot ends at once, and one in the queue succeeds the next driver that
    hands over.
    """
    on_their_way = OrmQ.objects.filter(key=DRIVERS, lock__lte=timezone.now()).count()
    for _ in range(settings.DRIVER_SLOTS - _live_drivers() - on_their_way):
        enqueue_driver()


def _live_drivers() -> int:
    """Return the live drivers of this machine. A killed one is missing at once, because its session has ended."""
    live = DriverRow.objects.raw(holding.LIVE_DRIVERS, {"silent_after": REPLACE_DRIVER_AFTER})
    return sum(driver.host == socket.gethostname() and driver.slot < settings.DRIVER_SLOTS for driver in live)


def process_inbound() -> str:
    """Work on inbound events for one slice, then enqueue the successor."""
    parent = os.getppid()

    def stopping() -> bool:
        return stop_asked() or os.getppid() != parent

    if not worker.run(settings.DRIVER_SLICE_SECONDS, stopping):
        return "another worker handles inbound events"
    if not stopping():
        enqueue_inbound_worker()
    return "handed over"


def enqueue_inbound_worker() -> None:
    async_task("fanout.ops.tasks.process_inbound", cluster=MAIN, task_name="inbound")


def ensure_inbound_worker() -> None:
    """Enqueue an inbound worker unless one is running or a task is queued. One without the lock ends at once."""
    on_its_way = OrmQ.objects.filter(key=MAIN, lock__lte=timezone.now())
    if not on_its_way.exists() and not worker.is_running():
        enqueue_inbound_worker()


def boot() -> None:
    """Fill every driver slot when a cluster starts: tasks queued earlier may be locked for a while."""
    ensure_schedules()
    for _ in range(settings.DRIVER_SLOTS):
        enqueue_driver()


def minute() -> None:
    """Run all steps once a minute, on the cluster `main`. A failing step does not stop the others."""
    now = timezone.now()
    for step in STEPS:
        if step not in (firing.fire_due, sequences.fire_follow_ups) or server.may_fire():
            _take(step, now)
    ensure_drivers()
    ensure_inbound_worker()
    if server.may_fire():
        _take(firing.fire_after_failures, now)  # last: it may end this worker


def _take(step: Step, now: datetime) -> None:
    try:
        step(now)
    except Exception:
        log.exception("a step of the minute failed: %s", step.__name__)
        connection.close_if_unusable_or_obsolete()


def go_on_preparing(now: datetime) -> None:
    if freezing.unprepared():
        enqueue_preparing()


def go_on_with_large_controls(now: datetime) -> None:
    """Go on with offloads and corrections that a crash interrupted, or whose task is lost."""
    if Offload.objects.exists() or Correction.objects.exists():
        controls.enqueue_rest()


def go_on_collecting(now: datetime) -> None:
    """Collect messages whose task is lost."""
    if SingleMessage.objects.filter(**single_messages.WAITING).exists():
        single_messages.enqueue_collecting()


def wake_after_set_back(now: datetime) -> None:
    if woken := wake_after_clock_change(now):
        log.warning("the clock was set back: %d lanes look again", woken)


def wake_sleeping(now: datetime) -> None:
    """Wake lanes of work that no lane would pick up, and finish paused runs without work. This should not happen, so it
    is logged as an error."""
    forgotten, asleep = audit.forgotten_lanes(now, now), audit.sleeping(now, now)
    paused = audit.paused_for_nothing(now, now)
    for violation in (*forgotten, *paused):
        log.error("%s: %s", violation.subject, violation.text, extra={"run": violation.key})
    for violation in asleep:
        log.error("%s: %s", violation.subject, violation.text, extra={"accounts": violation.key})
    audit.name_lanes(forgotten, now)
    audit.wake(asleep, now)
    audit.judge_again(paused, now)


def count_appended(now: datetime) -> None:
    """Bring the counters up to date that a killed driver left behind."""
    execute(FOLD_ALL, {})


STEPS: tuple[Step, ...] = (
    firing.fire_due,
    sequences.fire_follow_ups,
    go_on_preparing,
    wake_after_set_back,
    controls.end_suspensions,
    controls.resume_due,
    controls.sweep_canceled,
    go_on_with_large_controls,
    go_on_collecting,
    message_2.skip_expired,
    wake_sleeping,
    heartbeat.free_stalled,
    accounts.note_deliveries,
    count_appended,
    results.fold,
)


def notifications() -> None:
    """Pass on notifications once a minute, apart from firing, which a slow mail server must not delay."""
    passing_on.pass_on(timezone.now())


def post_webhooks() -> str:
    """Post to webhooks for most of a minute, then enqueue the successor, while there are any. The schedule starts one
    that is lost."""
    parent = os.getppid()

    def stopping() -> bool:
        return stop_asked() or os.getppid() != parent

    if not webhooks.work(CARRY_ON_FOR, stopping):
        return "another task posts to webhooks"
    if not stopping() and WebhookEndpoint.objects.filter(enabled=True).exists():
        webhooks.enqueue_posting()
    return "done"


def hygiene() -> None:
    """Clean up every 15 minutes, on the cluster `main`, and warn of accounts that people turn away from."""
    now = timezone.now()
    clean_up(now)
    KeptAnswer.forget(now)
    tokens.forget_guesses(now)
    heartbeat.forget_old_beats(now)
    single_messages.forget(now)
    reputation.warn_of_opt_outs(now)


def templates() -> None:
    """Read accounts' message templates every 15 minutes, apart from the rest, which a slow provider must not delay."""
    message_templates.refresh_due(timezone.now())


def prepare_runs() -> None:
    """Copy the targets of large runs, in as many tasks as needed, one after the other."""
    if not server.may_fire():
        return  # `go_on_preparing` asks again every minute
    for run_id in freezing.unprepared():
        try:
            prepared = freezing.prepare(run_id, timezone.now())
        except Exception:
            log.exception("a run could not be prepared", extra={"run": run_id})
            connection.close_if_unusable_or_obsolete()
            continue
        if not prepared:
            enqueue_preparing()
            return


def carry_on() -> None:
    """Carry large controls to their end, in as many tasks as needed: offloads, corrections of very many targets, and
    the targets of canceled runs."""
    now = timezone.now()
    controls.sweep_canceled(now, CARRY_ON_FOR / 3)
    at_their_end = corrections.carry_on_offloads(now, CARRY_ON_FOR / 3)
    if not corrections.carry_on_corrections(now, CARRY_ON_FOR / 3) or not at_their_end:
        controls.enqueue_rest()


def collect_messages() -> None:
    """Put single messages of the API into runs, in as many tasks as needed."""
    if server.may_fire() and not single_messages.collect(timezone.now(), CARRY_ON_FOR):
        single_messages.enqueue_collecting()


def ensure_schedules() -> None:
    """Create or update our schedules, and delete those of earlier versions."""
    names = [f"crier-{name}" for name in EVERY_MINUTE | EVERY_15_MINUTES]
    Schedule.objects.filter(name__startswith="crier-").exclude(name__in=names).delete()
    for minutes, schedules in ((1, EVERY_MINUTE), (15, EVERY_15_MINUTES)):
        for name, path in schedules.items():
            _ensure_schedule(f"crier-{name}", path, minutes)


def _ensure_schedule(name: str, path: str, minutes: int) -> None:
    schedule = {"func": path, "schedule_type": Schedule.MINUTES, "minutes": minutes, "repeats": -1, "cluster": MAIN}
    Schedule.objects.update_or_create(name=name, defaults=schedule)


# --- stopping a cluster -----------------------------------------------------------------------------------


# A running django-q2 task sees no signal, and a worker that has just handed over takes the next task from the queue. So
# the main process sets a flag in memory that its forked children share: drivers look at it four times a second, and a
# driver that starts later ends at once. Without a lock, which a killed process could leave held. Created when this
# module is imported, before any fork.
_stop_asked = RawValue("b", 0)


def ask_to_stop() -> None:
    """Ask all processes of this cluster to stop."""
    _stop_asked.value = 1


def stop_asked() -> bool:
    return bool(_stop_asked.value)
