"""What `manage.py doctor` looks at. Each look gives a verdict, and a hint where something is wrong."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from django_q.models import OrmQ, Schedule

from accounts.models import Account
from accounts.signin import sign_in
from fanout.models import ClusterBeat, Driver, LaneState
from fanout.ops.tasks import EVERY_MINUTE

OK, WARNING, FAILED = "ok", "warning", "failed"

OLDEST_POSTGRES = 140_000
SKEW = timedelta(seconds=2)
BEAT = timedelta(seconds=15)
OVERDUE = timedelta(minutes=3)
LONG_QUEUE = 1000
ACCOUNTS_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    state: str
    text: str
    hint: str = ""


def configuration() -> Verdict:
    found = checks.run_checks(include_deployment_checks=not settings.EMBEDDED_DATABASE)
    if not found:
        return Verdict("configuration", OK, "the environment is usable")
    worst = max(found, key=lambda message: message.level)
    state = FAILED if worst.level >= checks.ERROR else WARNING
    return Verdict("configuration", state, str(worst.msg), worst.hint or "see .env.example")


def files() -> Verdict:
    settings.MEDIA_ROOT.mkdir(parents=True, exist_ok=True)
    if os.access(settings.MEDIA_ROOT, os.W_OK):
        return Verdict("files", OK, "media can be stored")
    return Verdict("files", FAILED, "the media directory is not writable", "give Crier's user the directory var/media")


# --- the database -----------------------------------------------------------------------------------------


def database() -> Verdict:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
        number, name = cursor.fetchone()
    if number < OLDEST_POSTGRES:
        return Verdict("database", FAILED, f"PostgreSQL {name}", "Crier needs PostgreSQL 14 or newer")
    kind = "embedded" if settings.EMBEDDED_DATABASE else "external"
    return Verdict("database", OK, f"PostgreSQL {name}, {kind}")


def migrations() -> Verdict:
    executor = MigrationExecutor(connection)
    left = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    if left:
        return Verdict("migrations", FAILED, f"{left} are not applied", "run manage.py migrate")
    return Verdict("migrations", OK, "all applied")


def proxy() -> Verdict:
    """A pooler answers the handshake itself: the backend it names is not the one that runs our statements."""
    told = connection.connection.info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (real,) = cursor.fetchone()
    if told != real:
        hint = "point DATABASE_URL at PostgreSQL itself: advisory locks are not safe behind a pooling proxy"
        return Verdict("proxy", FAILED, "a pooling proxy stands in between", hint)
    return Verdict("proxy", OK, "connected directly")


def locks() -> Verdict:
    """Every driven lane holds one, and the room is for the whole server."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('max_locks_per_transaction')::int * current_setting('max_connections')::int,"
            " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
        )
        room, held = cursor.fetchone()
    wanted = settings.BOT_FIRE_CONCURRENCY * settings.DRIVER_SLOTS
    if wanted > room // 2:
        hint = "raise max_locks_per_transaction in postgresql.conf"
        return Verdict("locks", FAILED, f"{wanted} lanes want a lock each, there is room for {room}", hint)
    return Verdict("locks", OK, f"{held} held, room for {room}")


def time_skew() -> Verdict:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (there,) = cursor.fetchone()
    skew = abs(there - timezone.now())
    if skew > SKEW:
        hint = "let both machines keep time by NTP: windows and pace follow this machine's clock"
        return Verdict("time", FAILED, f"this clock and the database's differ by {skew.total_seconds():.1f} s", hint)
    return Verdict("time", OK, f"{skew.total_seconds() * 1000:.0f} ms between this clock and the database's")


# --- what works in the background -------------------------------------------------------------------------


def clusters() -> Verdict:
    alive = set(ClusterBeat.objects.filter(beat_at__gte=timezone.now() - BEAT).values_list("cluster", flat=True))
    missing = sorted({"main", "drivers"} - alive)
    if missing:
        hint = "start them: `make up`, or `manage.py cluster main` and `manage.py cluster drivers`"
        return Verdict("clusters", FAILED, f"no heartbeat of {', '.join(missing)}", hint)
    return Verdict("clusters", OK, "main and drivers beat")


def drivers() -> Verdict:
    beating = Driver.objects.filter(beat_at__gte=timezone.now() - BEAT)
    lanes = sum(beating.values_list("lanes", flat=True))
    late = LaneState.objects.filter(due_at__lt=timezone.now() - timedelta(minutes=1), holder="").count()
    if not beating:
        return Verdict("drivers", FAILED, "no driver beats, so nothing is sent", "look at var/log/drivers.log")
    if late:
        hint = "raise BOT_FIRE_CONCURRENCY or DRIVER_SLOTS"
        return Verdict("drivers", WARNING, f"{late} lanes have been waiting for a driver for over a minute", hint)
    return Verdict("drivers", OK, f"{len(beating)} beat, {lanes} lanes driven")


def schedules() -> Verdict:
    known = {schedule.name: schedule for schedule in Schedule.objects.all()}
    missing = [f"crier-{name}" for name in EVERY_MINUTE if f"crier-{name}" not in known]
    if missing:
        hint = "restart the cluster drivers: it makes them"
        return Verdict("schedules", FAILED, f"{', '.join(missing)} is missing", hint)
    late = [s.name for s in known.values() if s.next_run and s.next_run < timezone.now() - OVERDUE and s.repeats]
    if late:
        hint = "the cluster main runs them: look at var/log/main.log"
        return Verdict("schedules", FAILED, f"{', '.join(sorted(late))} is overdue", hint)
    return Verdict("schedules", OK, f"{len(known)} on time")


def queue() -> Verdict:
    waiting = OrmQ.objects.count()
    if waiting > LONG_QUEUE:
        return Verdict("queue", WARNING, f"{waiting} tasks wait", "is the cluster main alive and fast enough?")
    return Verdict("queue", OK, f"{waiting} tasks wait")


# --- providers --------------------------------------------------------------------------------------------


def accounts() -> Verdict:
    """Signs in with every active account, as its bridge or provider wants it."""
    active = list(Account.objects.filter(status=Account.Status.ACTIVE))
    problems = asyncio.run(_problems(active))
    if problems:
        hint = f"`manage.py account_check {problems[0].split(':')[0]!r}` says more"
        return Verdict("accounts", FAILED, "; ".join(problems[:5]), hint)
    return Verdict("accounts", OK, f"{len(active)} active ones can sign in")


async def _problems(active: list[Account]) -> list[str]:
    room = asyncio.Semaphore(ACCOUNTS_AT_ONCE)

    async def one(account: Account) -> str:
        async with room:
            result = await sign_in(account)
        return "" if result.ok else f"{account.label}: {result.text}"

    return [problem for problem in await asyncio.gather(*map(one, active)) if problem]


#: the first two must be well for the rest to make sense
LOOKS: tuple[Callable[[], Verdict], ...] = (
    database, migrations, configuration, files, proxy, locks, time_skew, clusters, drivers, schedules, queue, accounts,
)  # fmt: skip


def examine() -> Iterator[Verdict]:
    for look in LOOKS:
        try:
            verdict = look()
        except DatabaseError as problem:
            words = str(problem).splitlines()[0]
            verdict = Verdict(look.__name__, FAILED, words, "is PostgreSQL running, and DATABASE_URL right?")
        yield verdict
        if verdict.state == FAILED and look in (database, migrations):
            return
