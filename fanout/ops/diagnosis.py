"""The checks of `manage.py doctor`. Each returns a verdict, with a hint if something is wrong."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPException
from tempfile import TemporaryFile
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone
from django_q.models import OrmQ, Schedule

from accounts.channels import registry
from accounts.inputs import counted
from accounts.knobs import delay_error
from accounts.models import Account
from accounts.signin import sign_in
from config.env import in_var
from config.problems import (
    BEHIND_A_PROXY,
    is_empty,
    is_proxy,
    migrations_left,
    version_problem,
)
from config.web import FURTHER_CONNECTIONS
from fanout.database import conninfo, execute
from fanout.engine import commit
from fanout.engine.commit import recording
from fanout.engine.connection import AsyncLink, ProxyRefused
from fanout.engine.holding import as_sent
from fanout.inbound import worker as inbound_worker
from fanout.models import ClusterBeat, InboundEvent, LaneState
from fanout.models.events import RECEIPT
from fanout.ops.heartbeat import beating_drivers, silent_clusters
from fanout.ops.tasks import EVERY_15_MINUTES, EVERY_MINUTE
from fanout.rules.liveness import CLUSTER_SILENT_AFTER, CLUSTERS
from fanout.runs import recovery, texts
from fanout.runs.why import overdue_results
from reminders.models import Reminder
from reminders.suppressions import unsubscribe_url

OK, WARNING, FAILED = "ok", "warning", "failed"

OLDEST_POSTGRES = 140_000
SKEW = timedelta(seconds=2)
OVERDUE = timedelta(minutes=3)
BEHIND = timedelta(minutes=1)
LONG_QUEUE = 1000

#: besides a cluster's workers: its main thread and heartbeat, and django-q2's pusher, monitor and scheduler
BESIDE_WORKERS = 5
LINKS_OF_A_DRIVER = 2
CONNECTIONS_OF_A_BRIDGE = 3
NAMED = 3
ACCOUNTS_AT_ONCE = 20
STUCK_AFTER = timedelta(seconds=20)  # Crier's own transactions take a second or two
#: a link for this address is opened, and nothing is changed by that
LINK_ADDRESS = "doctor@example.com"
LINK_TIMEOUT = 10.0
LARGEST_PAGE = 200_000
LINK_HINTS = {
    400: "the web process does not allow this host: restart it with the same PUBLIC_URL",
    404: "the web process has another SECRET_KEY, or the proxy does not pass /unsubscribe/ on",
    403: "the proxy asks for a login: let /unsubscribe/ through",
    401: "the proxy asks for a login: let /unsubscribe/ through",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    state: str
    text: str
    hint: str = ""


def configuration() -> Verdict:
    own_machine = settings.EMBEDDED_DATABASE
    messages = checks.run_checks(include_deployment_checks=not own_machine)
    demo = checks.run_checks(tags=["demo"], include_deployment_checks=True) if own_machine else []
    if not messages and demo:
        text = f"{demo[0].msg} That is right for a demo that only this machine reaches."
        return Verdict("configuration", WARNING, text, demo[0].hint or "")
    if not messages:
        return Verdict("configuration", OK, "the environment is usable")
    # All of the worst, in an order of their own: Django runs its checks in none.
    level = max(message.level for message in messages)
    worst = sorted((message for message in messages if message.level == level), key=lambda message: message.id or "")
    hint = next((message.hint for message in worst if message.hint), "see .env.example")
    state = FAILED if level >= checks.ERROR else WARNING
    return Verdict("configuration", state, " ".join(str(message.msg) for message in worst), hint)


def files() -> Verdict:
    for folder, mode in ((settings.MEDIA_ROOT, 0o777), (settings.VAR_DIR / "claims", 0o700)):
        try:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            with TemporaryFile(dir=folder, buffering=0) as file:
                file.write(b"x")
        except OSError as problem:
            text = f"nothing can be stored in {folder}: {problem.strerror}"
            return Verdict("files", FAILED, text, "give Crier's user a directory with free space in CRIER_VAR")
    return Verdict("files", OK, "media and the claim journal can be stored")


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
    if problem := version_problem():
        return Verdict("migrations", FAILED, problem)
    if left := migrations_left():
        return Verdict("migrations", FAILED, f"{left} are not applied", "run manage.py migrate")
    return Verdict("migrations", OK, "all applied")


def server_history() -> Verdict:
    """Check that the database is not one that lacks commits after a fail-over or a restore."""
    known = recovery.in_the_way()
    if known is None:
        return Verdict("history", OK, "no commits are missing, as far as Crier knows")
    state = FAILED if known.held else WARNING
    return Verdict("history", state, recovery.in_words(known), recovery.CONFIRM if known.held else "")


def proxy() -> Verdict:
    """Connect as a driver does, which refuses a proxy."""
    try:
        asyncio.run(_connect_as_driver())
    except ProxyRefused as refusal:
        return Verdict("proxy", FAILED, str(refusal))
    return Verdict("proxy", OK, "connected directly")


async def _connect_as_driver() -> None:
    await (await AsyncLink.open(conninfo(connection.settings_dict))).close()


def locks(slots: int | None = None, here_only: bool = False) -> Verdict:
    """Compare the locks of all lanes with PostgreSQL's limit for the whole server.

    Every driven lane holds one: this machine's lanes, and those that other machines drive now, unless `here_only`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('max_locks_per_transaction')::int * current_setting('max_connections')::int,"
            " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
        )
        room, held = cursor.fetchone()
    elsewhere = 0 if here_only else lanes_elsewhere()
    wanted = settings.BOT_FIRE_CONCURRENCY * (slots or settings.DRIVER_SLOTS) + elsewhere
    if wanted > room // 2:
        text = f"{wanted} lanes need a lock each, and half of PostgreSQL's {room} locks are for them"
        hint = "raise max_locks_per_transaction in postgresql.conf, or lower BOT_FIRE_CONCURRENCY"
        return Verdict("locks", FAILED, text, hint)
    return Verdict("locks", OK, f"{held} held, room for {room}")


# The session that has done nothing inside a transaction for longest, first of all one that others wait for. What other
# users' sessions do is seen only by roles with pg_read_all_stats.
STUCK = """
SELECT a.pid, a.usename, a.application_name, coalesce(a.client_addr::text, '') AS address,
       extract(epoch FROM clock_timestamp() - a.state_change)::int AS seconds, count(w.pid) AS waiting
  FROM pg_stat_activity a
  LEFT JOIN pg_stat_activity w ON w.wait_event_type = 'Lock' AND a.pid = ANY(pg_blocking_pids(w.pid))
 WHERE a.datname = current_database() AND a.state LIKE 'idle in transaction%%'
   AND a.state_change < clock_timestamp() - %(after)s
 GROUP BY a.pid, a.usename, a.application_name, a.client_addr, a.state_change
 ORDER BY waiting DESC, seconds DESC LIMIT 1
"""


def stuck_clients() -> Verdict:
    """Look for a session that stands still inside a transaction: what needs the rows that it has locked waits."""
    rows = execute(STUCK, {"after": STUCK_AFTER})
    if not rows:
        return Verdict("clients", OK, "no session stands still in a transaction")
    (row,) = rows
    who = " ".join(filter(None, (row["usename"], row["application_name"], row["address"])))
    text = f"session {row['pid']} ({who}) has stood still in a transaction for {row['seconds']} s"
    if row["waiting"]:
        text += f"; {counted(row['waiting'], 'session')} waiting for it"
    return Verdict("clients", WARNING, text, f"end that client, or: SELECT pg_terminate_backend({row['pid']})")


def connections() -> Verdict:
    """Compare the connections that Crier's processes may open with what PostgreSQL has for them."""
    with connection.cursor() as cursor:
        cursor.execute(CONNECTIONS)
        room, others = cursor.fetchone()
    beats = ClusterBeat.objects.filter(beat_at__gte=Now() - CLUSTER_SILENT_AFTER)
    bridges = {key for key, described in registry.channels().items() if described.bridge}
    parts = connections_needed(
        # Before the first heartbeat, this machine is counted.
        Counter(beats.values_list("cluster", flat=True)) or Counter(CLUSTERS),
        has_bridge=Account.objects.filter(channel__in=bridges).exists(),
    )
    needed = sum(parts.values())
    text = f"{needed} of {room} at most"
    if needed + others <= room:
        return Verdict("connections", OK, text)
    listed = ", ".join(f"{part} {count}" for part, count in parts.items())
    text += f" ({listed}), and other programs have {others}: when all are in use, drivers cannot connect"
    hint = "raise max_connections in postgresql.conf, or lower WEB_THREADS or DRIVER_SLOTS"
    return Verdict("connections", WARNING, text, hint)


# Without the connections reserved for superusers. Of other users' sessions only the existence may be visible.
CONNECTIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0),
       (SELECT count(*) FROM pg_stat_activity
         WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
           AND NOT (datname = current_database() AND coalesce(application_name, '') LIKE 'crier%'))
"""


def connections_needed(clusters: Mapping[str, int], has_bridge: bool) -> dict[str, int]:
    """Return the most connections by kind of process.

    Web servers have no heartbeat: one is counted for each cluster main, with the process of `manage.py up` and, if
    needed, a bridge.
    """
    machines, drivers = clusters.get("main", 0), clusters.get("drivers", 0)
    workers: Any = settings.Q_CLUSTER["workers"]
    return {
        "web": machines * (settings.WEB_THREADS + FURTHER_CONNECTIONS),
        "main": machines * (workers + BESIDE_WORKERS),
        "drivers": drivers * (settings.DRIVER_SLOTS * (1 + LINKS_OF_A_DRIVER) + BESIDE_WORKERS),
        "up": machines,
        "bridge": machines * CONNECTIONS_OF_A_BRIDGE if has_bridge else 0,
    }


def lanes_elsewhere() -> int:
    return sum(driver.lanes for driver in beating_drivers() if driver.host != socket.gethostname())


def refusal(slots: int | None = None) -> str:
    """Return why drivers could not work on this database, which may be empty yet; an empty text if they can."""
    for verdict in (proxy(), locks(slots, here_only=is_empty())):
        if verdict.state == FAILED:
            return f"{verdict.text}: {verdict.hint}." if verdict.hint else verdict.text
    return ""


def time_skew() -> Verdict:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (there,) = cursor.fetchone()
    skew = abs(there - timezone.now())
    if skew > SKEW:
        hint = "synchronise both machines by NTP: windows and pace follow this machine's clock"
        return Verdict("time", FAILED, f"it differs from the database's clock by {skew.total_seconds():.1f} s", hint)
    return Verdict("time", OK, f"{skew.total_seconds() * 1000:.0f} ms between this machine's clock and the database's")


# --- background work -------------------------------------------------------------------------


def clusters() -> Verdict:
    silent = silent_clusters()
    if silent:
        hint = "start them: `make up`, or `manage.py cluster main` and `manage.py cluster drivers`"
        return Verdict("clusters", FAILED, f"no heartbeat from {', '.join(silent)}", hint)
    return Verdict("clusters", OK, "main and drivers are running")


def drivers() -> Verdict:
    now = timezone.now()
    alive = beating_drivers()
    late = LaneState.objects.filter(due_at__lt=now - timedelta(minutes=1), holder="").count()
    if not alive:
        hint = f"look at {in_var('log/drivers.log')}"
        return Verdict("drivers", FAILED, "no driver is running, so nothing is sent", hint)
    if late:
        hint = "raise BOT_FIRE_CONCURRENCY or DRIVER_SLOTS"
        return Verdict("drivers", WARNING, f"{late} lanes have been waiting for a driver for over a minute", hint)
    lanes = sum(driver.lanes for driver in alive)
    return Verdict("drivers", OK, f"{len(alive)} running, {counted(lanes, 'lane')} in use")


def results() -> Verdict:
    """Check that provider answers are stored. If not, one is stored and rolled back to learn the reason."""
    overdue = overdue_results(timezone.now())
    first = overdue.order_by("claimed_at").values().first()
    if first is None:
        return Verdict("results", OK, "what providers answered is stored")
    text = f"{texts.unstored(overdue.count())}: {_refused_result(dict(first)) or 'it would take it now'}"
    hint = f"make room on its disk or let it write again; its own log and {in_var('log/drivers.log')} say more"
    return Verdict("results", FAILED, text, hint)


def _refused_result(target: dict[str, Any]) -> str:
    """Return PostgreSQL's error when storing the result of this target; empty if there is none."""
    name, values = recording([as_sent(target)])
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '3s'")
            cursor.execute(commit.HOT[name], values)
            transaction.set_rollback(True)
    except DatabaseError as problem:
        return str(problem).splitlines()[0]
    return ""


def inbound() -> Verdict:
    """Check that the inbound worker is running and keeps up."""
    if not inbound_worker.is_running():
        hint = f"the cluster main does it: look at {in_var('log/main.log')}"
        return Verdict("inbound", FAILED, "inbound events are not being processed", hint)
    now = timezone.now()
    waiting = InboundEvent.objects.filter(state=InboundEvent.State.NEW, came_at__lt=now - BEHIND, next_attempt_at=None)
    # Two queries, because each has its own index.
    if waiting.filter(RECEIPT).exists() or waiting.exclude(RECEIPT).exists():
        hint = f"look at {in_var('log/main.log')}: is the database slow?"
        return Verdict("inbound", WARNING, "reports have been waiting for over a minute", hint)
    failed = InboundEvent.objects.filter(state=InboundEvent.State.FAILED, came_at__gt=now - timedelta(days=1))
    if count := failed[:LONG_QUEUE].count():
        hint = "open Inbound events in the admin, filtered by failed: each says why, and can be worked on again"
        return Verdict("inbound", WARNING, f"{count} reports of the last day could not be worked on", hint)
    return Verdict("inbound", OK, "providers' reports are worked on")


def schedules() -> Verdict:
    stored = {schedule.name: schedule for schedule in Schedule.objects.all()}
    missing = [f"crier-{name}" for name in EVERY_MINUTE | EVERY_15_MINUTES if f"crier-{name}" not in stored]
    if missing:
        hint = "restart the cluster drivers: it creates them"
        return Verdict("schedules", FAILED, f"{', '.join(missing)} is missing", hint)
    late = [s.name for s in stored.values() if s.next_run and s.next_run < timezone.now() - OVERDUE and s.repeats]
    if late:
        hint = f"the cluster main runs them: look at {in_var('log/main.log')}"
        return Verdict("schedules", FAILED, f"{', '.join(sorted(late))} is overdue", hint)
    return Verdict("schedules", OK, f"{len(stored)} on time")


def reminders() -> Verdict:
    """Check that every due reminder becomes a run."""
    on, off = Reminder.objects.filter(enabled=True), Reminder.objects.filter(enabled=False, archived=False)
    if late := on.filter(next_fire_at__lt=timezone.now() - OVERDUE).count():
        hint = f"the cluster main fires them: look at {in_var('log/main.log')}"
        return Verdict("reminders", FAILED, f"{late} overdue", hint)
    aside = off.exclude(firing_problem="")
    if named := ", ".join(f"“{reminder.title}” ({reminder.pk})" for reminder in aside[:NAMED]):
        hint = "`manage.py why` says what is wrong; mend each one on its page and switch it on again"
        return Verdict("reminders", WARNING, f"{aside.count()} set aside: {named}", hint)
    return Verdict("reminders", OK, f"{on.count()} switched on, none is overdue")


def queue() -> Verdict:
    waiting = OrmQ.objects.count()
    if waiting > LONG_QUEUE:
        hint = f"check that the cluster main is running: see {in_var('log/main.log')}"
        return Verdict("queue", WARNING, f"{waiting} tasks are waiting", hint)
    return Verdict("queue", OK, f"{waiting} tasks are waiting")


# --- providers --------------------------------------------------------------------------------------------


def accounts() -> Verdict:
    """Sign in with every active account at its bridge or provider."""
    active = list(Account.objects.filter(status=Account.Status.ACTIVE))
    problems = asyncio.run(_problems(active))
    if problems:
        hint = f"run `manage.py account_check {problems[0].split(':')[0]!r}` for details"
        return Verdict("accounts", FAILED, "; ".join(problems[:5]), hint)
    return Verdict("accounts", OK, f"all {len(active)} active accounts can sign in")


async def _problems(active: list[Account]) -> list[str]:
    room = asyncio.Semaphore(ACCOUNTS_AT_ONCE)

    async def one(account: Account) -> str:
        async with room:
            result = await sign_in(account)
        return "" if result.ok else f"{account.label}: {result.text}"

    return [problem for problem in await asyncio.gather(*map(one, active)) if problem]


def paces() -> Verdict:
    """Find accounts whose delay between two messages is outside their channel's range. Forms refuse such values on the
    account, but values from the environment hold for accounts that were saved before."""
    ranged = {key: described for key, described in registry.channels().items() if described.delay}
    active = Account.objects.filter(status=Account.Status.ACTIVE, channel__in=list(ranged)).order_by("pk")
    found = [(account.label, delay_error(ranged[account.channel], account.settings())) for account in active]
    wrong = [(label, error) for label, error in found if error]
    if wrong:
        named = f"{', '.join(label for label, _ in wrong[:NAMED])}{', …' if len(wrong) > NAMED else ''}"
        hint = "change the values in the environment, or give these accounts their own: `manage.py tune ACCOUNT --set`"
        return Verdict("paces", WARNING, f"{counted(len(wrong), 'account')} ({named}): {wrong[0][1]}", hint)
    return Verdict("paces", OK, "all gateway accounts keep the delay that their gateway asks for")


def links() -> Verdict:
    """Open an unsubscribe link as a recipient's mail program does, through the public address."""
    url = unsubscribe_url(LINK_ADDRESS)
    if url is None:
        mail = [key for key, described in registry.channels().items() if described.subject]
        if not Account.objects.filter(channel__in=mail, archived=False).exists():
            return Verdict("links", OK, "no account sends mail, which needs unsubscribe links")
        text = "mails have no unsubscribe link, which Gmail and Yahoo want of senders of many mails"
        return Verdict("links", WARNING, text, "set PUBLIC_URL to the address at which recipients reach this site")
    try:
        with urlopen(url, timeout=LINK_TIMEOUT) as answer:  # noqa: S310 (PUBLIC_URL is https, by config.env)
            shown = LINK_ADDRESS in answer.read(LARGEST_PAGE).decode("utf-8", "replace")
    except HTTPError as refusal:
        refusal.close()
        hint = LINK_HINTS.get(refusal.code, "see the log of the web server and of the proxy in front of it")
        return Verdict("links", FAILED, f"{settings.PUBLIC_URL} answers {refusal.code} to an unsubscribe link", hint)
    except (OSError, HTTPException) as problem:
        reason = getattr(problem, "reason", None) or problem
        hint = "check DNS, certificate and proxy; or this machine alone does not reach its public address"
        return Verdict("links", WARNING, f"{settings.PUBLIC_URL} cannot be reached from here: {reason}", hint)
    if not shown:
        hint = "PUBLIC_URL leads to another site, or to a page in front of this one: let /unsubscribe/ through"
        return Verdict("links", FAILED, f"{settings.PUBLIC_URL} shows another page for an unsubscribe link", hint)
    return Verdict("links", OK, f"an unsubscribe link at {settings.PUBLIC_URL} works")


#: without the first two the rest makes no sense
LOOKS: tuple[Callable[[], Verdict], ...] = (
    database,
    migrations,
    configuration,
    files,
    server_history,
    proxy,
    locks,
    stuck_clients,
    connections,
    time_skew,
    clusters,
    drivers,
    results,
    inbound,
    schedules,
    reminders,
    queue,
    links,
    paces,
    accounts,
)


def examine() -> Iterator[Verdict]:
    for look in LOOKS:
        try:
            verdict = look()
        except (DatabaseError, psycopg.Error) as problem:
            hint = "check that PostgreSQL is running and that DATABASE_URL is right"
            verdict = Verdict(look.__name__, FAILED, str(problem).splitlines()[0], hint)
            if is_proxy(problem):
                verdict = Verdict("proxy", FAILED, BEHIND_A_PROXY)
        yield verdict
        if verdict.state == FAILED and look in (database, migrations):
            return
