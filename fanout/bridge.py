"""The WhatsApp bridge as a process: one event loop, enough threads for its clients, locks, feed and API."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from aiohttp import web
from django.db import close_old_connections, connection, connections, transaction
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from accounts.channels import base
from accounts.channels.provider_events import ProviderEvent
from accounts.channels.whatsapp import wire
from accounts.channels.whatsapp.bridge import library
from accounts.channels.whatsapp.bridge.api import Api
from accounts.channels.whatsapp.bridge.bridge import Bridge, Compared
from accounts.channels.whatsapp.bridge.journal import NotedMessage
from accounts.channels.whatsapp.bridge.library import Limits
from accounts.channels.whatsapp.bridge.review import CLOCK_MARGIN, Judged, UncertainSend
from accounts.channels.whatsapp.bridge.roster import WhatsAppGroup
from accounts.channels.whatsapp.bridge.scripted import ScriptedWhatsApp
from accounts.channels.whatsapp.bridge.session import Health
from accounts.channels.whatsapp.channel import CHANNEL
from accounts.models import Account
from fanout.database import LOCK_RUNS, conninfo, execute
from fanout.engine.connection import AsyncLink
from fanout.inbound import event_store as inbound
from fanout.lanes.lane_rows import wake_after_outage
from fanout.lanes.paired_numbers import BRIDGE_LOCKS, ENDED
from fanout.models import Run, RunTarget
from fanout.rules.liveness import BRIDGE_BEATS_EVERY
from fanout.rules.message_ids import message_id, name_of, named_in
from fanout.runs import corrections
from reminders.groups import note_changes, synchronise

log = logging.getLogger("crier.bridge")

T = TypeVar("T")

#: Every connected client occupies a thread for as long as it lives, and each call another for as long as it takes; with
#: asyncio's own executor everything stands still at the sixth client.
THREADS_PER_CLIENT = 4
SPARE_THREADS = 16
RECONNECT_SECONDS = 2.0
HARMLESS = "Failed to delete store"
PING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    host: str = "127.0.0.1"
    port: int = 0
    #: Address at which bridges and drivers on other machines reach this one; empty: none do.
    public_url: str = ""
    most: int = 200
    #: Folder of a script; None: the real WhatsApp.
    script: Path | None = None


def run(options: Options, beat: Callable[[], None]) -> None:
    """Run until SIGTERM; `beat` is called for as long as the event loop works. Ends the process itself: a client that
    does not stop must not keep it alive."""
    # Keys in the sessions are as secret as credentials.
    os.umask(0o077)
    # It logs what passes through it.
    for name in ("whatsmeow", "Whatsmeow", "neonize"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(is_news)
    # neonize prints to stdout.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(serve(options, beat))


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a log line says something. whatsmeow calls it an error that a store cannot be deleted which the
    log-out has deleted already."""
    return HARMLESS not in record.getMessage()


async def beat_on(beat: Callable[[], None]) -> None:
    """Call `beat` from the loop, not from a thread: a loop that stands still must not beat."""
    while True:
        beat()
        await asyncio.sleep(BRIDGE_BEATS_EVERY.total_seconds())


async def serve(options: Options, beat: Callable[[], None]) -> None:
    executor = ThreadPoolExecutor(options.most * THREADS_PER_CLIENT + SPARE_THREADS, "client")
    asyncio.get_running_loop().set_default_executor(executor)
    stop = stop_signal()
    beating = asyncio.create_task(beat_on(beat))
    provider = ScriptedWhatsApp(options.script) if options.script else None
    client_library = provider.library if provider else library.neonize()
    limits = Limits(**provider.script.of("0")["limits"]) if provider else Limits()
    feed = DatabaseFeed()
    shard = LockShard(conninfo(connection.settings_dict), CHANNEL.key)
    bridge = Bridge(client_library, wire.folder(), shard, feed, limits, options.most)
    app = Api(bridge, wire.token()).application()
    if provider:
        provider.add_routes(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port)
    await site.start()
    address = options.public_url or f"http://{options.host}:{runner.addresses[0][1]}"
    shard.address = address
    try:
        await until_stopped(bridge, shard, stop)
    finally:
        withdraw(address)
        beating.cancel()
        await runner.cleanup()
        with suppress(Exception):
            await feed.close()
    sys.stderr.flush()
    # Threads inside the Go library may never end, and Python would wait for them.
    os._exit(0)


def stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until_stopped(bridge: Bridge, shard: LockShard, stop: asyncio.Event) -> None:
    """Work while the locks are ours; without them, end all sessions and take locks anew."""
    while not stop.is_set():
        try:
            await shard.open()
        except (OSError, psycopg.Error) as error:
            log.warning("no session with PostgreSQL: %s", error)
        else:
            # Not earlier: a process that reads the address may ask at once.
            announce(shard.address)
            await work(bridge, shard, stop)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RECONNECT_SECONDS)


async def work(bridge: Bridge, shard: LockShard, stop: asyncio.Event) -> None:
    working = asyncio.create_task(bridge.run())
    try:
        while not stop.is_set():
            await shard.beat()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), PING_SECONDS)
            if working.done():
                working.result()
    except LocksLost as lost:
        log.error("the locks are lost, so every session is ended until they are back: %s", lost)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await shard.close()
        await bridge.abandon()


def announce(address: str) -> None:
    """Write the bridge's address to its file, renamed into place: a reader sees the whole address."""
    folder = wire.folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f"bridge.url.{os.getpid()}"
    part.write_text(address)
    part.replace(folder / "bridge.url")
    sys.stderr.write(f"WhatsApp bridge on {address}\n")
    sys.stderr.flush()


def withdraw(address: str) -> None:
    path = wire.folder() / "bridge.url"
    with suppress(OSError):
        if path.read_text() == address:
            path.unlink()


# --- locks ------------------------------------------------------------------------------------------------


PREFIX = "crier-bridge "
LONGEST_ADDRESS = 63 - len(PREFIX)  # PostgreSQL cuts the name of a session at 63 bytes

ACCOUNTS = "SELECT id FROM accounts_account WHERE channel = %s"
TAKE = "SELECT pg_try_advisory_lock(%s, %s) AS taken"
GIVE_BACK = "SELECT pg_advisory_unlock(%s, %s)"
# The first journal of an account is its own, and so is that of a later pairing. The time is the database's: bridges of
# several machines write it.
USE_JOURNAL = """
INSERT INTO accounts_pairedsession AS s (account_id, journal, journal_page, journal_since, host)
VALUES (%(account)s, %(journal)s, %(page)s, clock_timestamp(), %(host)s)
ON CONFLICT (account_id) DO UPDATE
   SET host = excluded.host, journal = excluded.journal, moved_to = CASE WHEN %(replace)s THEN '' ELSE s.moved_to END,
       journal_page = CASE WHEN s.journal = excluded.journal AND s.journal_page > excluded.journal_page
                           THEN s.journal_page + 1 ELSE excluded.journal_page END,
       journal_since = CASE WHEN s.journal = excluded.journal AND s.journal_page <= excluded.journal_page
                            THEN s.journal_since ELSE excluded.journal_since END
 WHERE (s.journal = excluded.journal AND s.moved_to IN ('', excluded.host)) OR %(replace)s
RETURNING journal_since, journal_page
"""
IS_BEHIND = """
SELECT coalesce((SELECT s.journal = %(journal)s AND s.journal_page < %(page)s
                   FROM accounts_pairedsession s WHERE s.account_id = %(account)s), true) AS behind
"""
# A move counts the page on, so that no copy of the folder is taken for the original; the bridge that ends it goes on
# from there.
END_JOURNAL = """
UPDATE accounts_pairedsession
   SET journal_page = greatest(journal_page, %(page)s) + 1, state = %(state)s, state_since = clock_timestamp()
 WHERE account_id = %(account)s AND journal = %(journal)s AND moved_to NOT IN ('', %(host)s)
RETURNING journal_page
"""
BEAT = """
INSERT INTO accounts_bridgebeat (host, beat_at) VALUES (%s, clock_timestamp())
ON CONFLICT (host) DO UPDATE SET beat_at = excluded.beat_at
"""
MOVED_AWAY = "SELECT account_id FROM accounts_pairedsession WHERE moved_to NOT IN ('', %s)"
OWNER = """
SELECT a.application_name AS name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def this_machine() -> str:
    return socket.gethostname()[:200]


class LocksLost(ConnectionError):
    """The session with PostgreSQL ended, and with it the right to every account."""


class LockShard:
    """The accounts that a bridge has: an advisory lock each, held by one session with PostgreSQL.

    When that session ends, its locks are gone and other bridges take the accounts. The session's application name is
    the bridge's address, so PostgreSQL itself says where an account's session is, for as long as that is true.
    `address` is set once the bridge listens, and has at most `LONGEST_ADDRESS` characters.
    """

    def __init__(self, info: str, channel: str) -> None:
        self.info = info
        self.channel = channel
        self.address = ""
        self.link: AsyncLink | None = None

    async def open(self) -> None:
        named = make_conninfo(self.info, application_name=f"{PREFIX}{self.address}")
        self.link = await AsyncLink.open(named)

    async def close(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            await link.close()

    async def accounts(self) -> set[int]:
        return {row["id"] for row in await self._query(ACCOUNTS, (self.channel,))}

    async def take(self, account_id: int) -> bool:
        (row,) = await self._query(TAKE, (BRIDGE_LOCKS, account_id))
        return bool(row["taken"])

    async def give_back(self, account_id: int) -> None:
        await self._query(GIVE_BACK, (BRIDGE_LOCKS, account_id))

    async def use_journal(self, account_id: int, journal: str, page: int, replace: bool) -> tuple[datetime, int] | None:
        facts = {"account": account_id, "journal": journal, "page": page, "replace": replace, "host": this_machine()}
        rows = await self._query(USE_JOURNAL, facts)
        return next(((row["journal_since"], row["journal_page"]) for row in rows), None)

    async def is_behind(self, account_id: int, journal: str, page: int) -> bool:
        (row,) = await self._query(IS_BEHIND, {"account": account_id, "journal": journal, "page": page})
        return bool(row["behind"])

    async def end_journal(self, account_id: int, journal: str, page: int) -> int | None:
        facts = {"account": account_id, "journal": journal, "page": page, "host": this_machine(), "state": ENDED}
        return next((row["journal_page"] for row in await self._query(END_JOURNAL, facts)), None)

    async def beat(self) -> None:
        with suppress(psycopg.errors.ReadOnlySqlTransaction):  # a standby, for a moment
            await self._query(BEAT, (this_machine(),))

    async def moved_away(self) -> set[int]:
        return {row["account_id"] for row in await self._query(MOVED_AWAY, (this_machine(),))}

    async def owner(self, account_id: int) -> str:
        rows = await self._query(OWNER, (BRIDGE_LOCKS, account_id))
        return next((str(row["name"]).removeprefix(PREFIX) for row in rows), "")

    async def _query(self, statement: str, parameters: Any) -> list[dict[str, Any]]:
        if self.link is None:
            raise LocksLost("no session with PostgreSQL")
        try:
            return await self.link.query(statement, parameters)
        except psycopg.OperationalError as error:
            raise LocksLost(str(error)) from error


# --- news -------------------------------------------------------------------------------------------------


class DatabaseFeed:
    """Stores the bridge's news, events in the inbound table and groups as recipients, and looks after its lanes.

    In threads of its own, each with one connection: the loop never waits for Django, and neonize's threads have none.
    Thousands of groups take a while to be stored, and a lane that could send must not wait for that.
    """

    def __init__(self) -> None:
        self.news, self.lanes = ThreadPoolExecutor(1, "news"), ThreadPoolExecutor(1, "lanes")

    async def store(self, account_id: int, events: Sequence[ProviderEvent]) -> None:
        await run_in(self.news, lambda: inbound.store(account_id, events, timezone.now()))

    async def store_groups(self, account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None:
        await run_in(self.news, lambda: _store_groups(account_id, address, groups))

    async def wake(self, accounts: Sequence[int]) -> None:
        await run_in(self.lanes, lambda: wake_after_outage(accounts, timezone.now()))

    async def report(self, sessions: Mapping[int, Health]) -> None:
        await run_in(self.lanes, lambda: _report(sessions, timezone.now()))

    async def compare_groups(self, account_id: int, groups: Sequence[WhatsAppGroup]) -> None:
        await run_in(self.news, lambda: _compare_groups(account_id, groups))

    async def uncertain_sends(
        self, accounts: Sequence[int], oldest: timedelta, newest: timedelta
    ) -> dict[int, list[UncertainSend]]:
        return await run_in(self.lanes, lambda: _uncertain_sends(accounts, oldest, newest, timezone.now()))

    async def settle(self, account_id: int, judged: Sequence[Judged]) -> None:
        await run_in(self.lanes, lambda: _settle(account_id, judged, timezone.now()))

    async def compare(self, account_id: int, messages: Sequence[NotedMessage]) -> Compared:
        return await run_in(self.lanes, lambda: _compare(account_id, messages))

    async def owners(self, account_id: int, asked: Mapping[str, str]) -> dict[str, str]:
        return await run_in(self.news, lambda: _owners(account_id, asked))

    async def settled(self, messages: Sequence[str]) -> set[str]:
        return await run_in(self.lanes, lambda: _settled(messages))

    async def close(self) -> None:
        for thread in (self.news, self.lanes):
            await run_in(thread, connections.close_all)
            thread.shutdown()


async def run_in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    def checked() -> T:
        close_old_connections()
        return work()

    return await asyncio.get_running_loop().run_in_executor(thread, checked)


def _store_groups(account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None:
    account = Account.objects.filter(pk=account_id).first()
    if account is None:
        return
    if not account.address:
        # The number that was paired is the account's own.
        Account.objects.filter(pk=account_id).update(address=address)
    synchronise(account, _as_listed(groups), timezone.now())


def _compare_groups(account_id: int, groups: Sequence[WhatsAppGroup]) -> None:
    account = Account.objects.filter(pk=account_id).first()
    if account is not None:
        note_changes(account, _as_listed(groups))


def _as_listed(groups: Sequence[WhatsAppGroup]) -> list[base.Group]:
    return [base.Group(g.jid, g.name, g.size, g.announce_only, g.may_write) for g in groups]


# Only of the machine that has the session by now.
REPORT = """
UPDATE accounts_pairedsession s
   SET state = h.state, state_since = h.since, paired_at = h.paired_at, reported_at = %(now)s
  FROM unnest(%(accounts)s::bigint[], %(journals)s::text[], %(states)s::text[], %(since)s::timestamptz[],
              %(paired)s::timestamptz[]) AS h(account_id, journal, state, since, paired_at)
 WHERE s.account_id = h.account_id AND s.journal = h.journal
"""


def _report(sessions: Mapping[int, Health], now: datetime) -> None:
    accounts = sorted(sessions)
    journals, states, since, paired = (list(column) for column in zip(*(sessions[number] for number in accounts)))
    columns = {"journals": journals, "states": [str(state) for state in states], "since": since, "paired": paired}
    execute(REPORT, {"accounts": accounts, "now": now} | columns)


# --- uncertain sends -----------------------------------------------------------------------------------------------


MOST_UNCERTAIN = 1_000
KNOWN_AS_SENT = "sent, by the bridge's journal"
NEVER_LEFT = "never left, by the bridge's journal: send again"
# The newest first: an operator has had time for the others. The witness is by the same account, before the claim.
UNCERTAIN_SENDS = """
SELECT t.id, t.run_id, t.account_id, t.parts_sent, t.claimed_at, t.claim_epoch, l.epoch,
       w.run_target_id AS witness, w.part AS witness_part
  FROM fanout_runtarget t
  JOIN fanout_lanestate l ON l.account_id = t.account_id
  LEFT JOIN LATERAL (
       SELECT a.run_target_id, a.part FROM fanout_activity a
        WHERE a.account_id = t.account_id AND a.action = %(action)s AND a.at < t.claimed_at AND a.at > %(after)s
          AND a.outcome = 'sent' AND a.kind <> 'settled' AND a.run_target_id IS NOT NULL
        ORDER BY a.at DESC LIMIT 1) AS w ON true
 WHERE t.account_id = ANY(%(accounts)s) AND t.status = 'unconfirmed'
   AND t.claimed_at > %(after)s AND t.claimed_at < %(before)s
 ORDER BY t.claimed_at DESC LIMIT %(most)s
"""


def _uncertain_sends(
    accounts: Sequence[int], oldest: timedelta, newest: timedelta, now: datetime
) -> dict[int, list[UncertainSend]]:
    span = {"after": now - oldest, "before": now - newest}
    uncertain_sends = defaultdict(list)
    for row in execute(
        UNCERTAIN_SENDS, span | {"accounts": list(accounts), "action": CHANNEL.action, "most": MOST_UNCERTAIN}
    ):
        witness = name_of(row["witness"], row["witness_part"]) if row["witness"] else ""
        uncertain_sends[row["account_id"]].append(
            UncertainSend(
                target_id=row["id"],
                run_id=row["run_id"],
                name=name_of(row["id"], row["parts_sent"]),
                claimed_at=row["claimed_at"],
                claim_epoch=row["claim_epoch"],
                lane_epoch=row["epoch"],
                witness=witness,
            )
        )
    return uncertain_sends


def _settle(account_id: int, judged: Sequence[Judged], now: datetime) -> None:
    """Settle the targets, each run in a transaction of its own."""
    by_run = defaultdict(list)
    for one in judged:
        by_run[one.uncertain.run_id].append(one)
    for run_id, of_run in sorted(by_run.items()):
        with transaction.atomic():
            run = Run.objects.select_for_update(no_key=True, of=("self",)).filter(pk=run_id).first()
            if run is not None:
                _settle_run(run, account_id, of_run, now)


def _settle_run(run: Run, account_id: int, judged: Sequence[Judged], now: datetime) -> None:
    claims = {(one.uncertain.target_id, one.uncertain.claim_epoch, one.uncertain.claimed_at): one for one in judged}
    targets = run.targets.filter(account_id=account_id, status=RunTarget.Status.UNCONFIRMED)
    found = targets.filter(pk__in=[pk for pk, _, _ in claims]).values_list("pk", "claim_epoch", "claimed_at")
    still = [claims[claim] for claim in found if claim in claims]
    never_left = [one.uncertain.target_id for one in still if not one.provider_id]
    sent = {one.uncertain.target_id: one.provider_id for one in still if one.provider_id}
    for target_id, provider_id in sent.items():
        run.targets.filter(pk=target_id).update(provider_id=provider_id, in_doubt=False)
    if sent:
        corrections.settle(run, sent, True, None, now, words=KNOWN_AS_SENT)
    if never_left:
        corrections.settle(run, never_left, False, None, now, words=NEVER_LEFT)


def _settled(messages: Sequence[str]) -> set[str]:
    """Return the messages whose part is settled: it counts as sent, or is to be sent again, or never will be."""
    named = {message: name for message in messages if (name := named_in(message))}
    targets = RunTarget.objects.filter(pk__in={name.target_id for name in named.values()})
    known = {pk: (status, parts) for pk, status, parts in targets.values_list("pk", "status", "parts_sent")}
    open_states = (RunTarget.Status.SENDING, RunTarget.Status.UNCONFIRMED)
    return {
        message
        for message, name in named.items()
        if name.target_id in known
        and (known[name.target_id][1] > name.part or known[name.target_id][0] not in open_states)
    }


# A message of several parts has the ids of the later ones beside the first, so it is looked for among the messages to
# the same chat.
OWNERS = """
SELECT q.provider_id, k.id, k.part
  FROM unnest(%(ids)s::text[], %(targets)s::bigint[]) AS q(provider_id, target)
 CROSS JOIN LATERAL (
   SELECT t.id, 0 AS part FROM fanout_runtarget t
    WHERE t.provider_id = q.provider_id AND t.provider_id <> '' AND t.account_id = %(account)s
    UNION ALL
   SELECT o.id, p.key::int FROM fanout_runtarget t
     JOIN reminders_recipient r ON r.address = t.address
     JOIN fanout_runtarget o ON o.recipient_id = r.id AND o.account_id = %(account)s AND o.part_ids <> '{}'
    CROSS JOIN LATERAL jsonb_each_text(o.part_ids) AS p
    WHERE t.id = q.target AND p.value = q.provider_id) AS k
 ORDER BY q.provider_id, k.part
"""


def _owners(account_id: int, asked: Mapping[str, str]) -> dict[str, str]:
    targets = [named.target_id if (named := named_in(message)) else None for message in asked.values()]
    rows = execute(OWNERS, {"account": account_id, "ids": list(asked), "targets": targets})
    return {row["provider_id"]: message_id(row["id"], row["part"]) for row in rows}


# --- after the database was restored ----------------------------------------------------------------------


# The targets of a journal's messages. A run that was made after the message has the number of another target, which
# the backup did not have.
NOTED_TARGETS = """
SELECT t.id, t.run_id, t.status, t.parts_sent, t.reopened_at, r.created_at,
       ARRAY(SELECT jsonb_object_keys(t.part_ids))::int[] AS later_parts
  FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
 WHERE t.account_id = %(account)s AND t.id = ANY(%(targets)s)
"""
# As after a crash: the journal's review ends the uncertain.
MARK = """
UPDATE fanout_runtarget t
   SET status = 'unconfirmed', parts_sent = m.parts, claimed_at = m.at, next_attempt_at = NULL,
       claim_epoch = greatest(1, (SELECT l.epoch FROM fanout_lanestate l WHERE l.account_id = t.account_id)),
       error = %(why)s, error_kind = 'unknown'
  FROM unnest(%(targets)s::bigint[], %(parts)s::int[], %(at)s::timestamptz[]) AS m(id, parts, at)
 WHERE t.id = m.id AND t.status = 'pending'
RETURNING t.id
"""
SENT_SINCE = "the database was restored from a backup, and the bridge had begun to send this since"


def _compare(account_id: int, messages: Sequence[NotedMessage]) -> Compared:
    named = [(one, name) for one in messages if (name := named_in(one.message_id))]
    rows = execute(NOTED_TARGETS, {"account": account_id, "targets": [name.target_id for _, name in named]})
    targets, marks = {row["id"]: row for row in rows}, {}
    known = set()
    for one, name in named:  # oldest first: the last part that was begun counts
        at, target = datetime.fromtimestamp(one.at, UTC), targets.get(name.target_id)
        if target is None or target["created_at"] > at + CLOCK_MARGIN:
            continue
        known.add(one.message_id)
        # A part behind one that was refused late, or a try that was settled before the target was opened again.
        settled = target["reopened_at"] is not None and at + CLOCK_MARGIN < target["reopened_at"]
        if name.part < target["parts_sent"] or name.part in target["later_parts"] or settled:
            continue
        if target["status"] == RunTarget.Status.PENDING:
            marks[name.target_id] = (name.part, at)
    return Compared(known, _mark({targets[number]["run_id"] for number in marks}, marks))


def _mark(runs: Collection[int], marks: Mapping[int, tuple[int, datetime]]) -> int:
    with transaction.atomic():
        execute(LOCK_RUNS, {"runs": list(runs)})
        parts, at = [part for part, _ in marks.values()], [moment for _, moment in marks.values()]
        facts = {"targets": list(marks), "parts": parts, "at": at, "why": SENT_SINCE}
        return len(execute(MARK, facts)) if marks else 0
