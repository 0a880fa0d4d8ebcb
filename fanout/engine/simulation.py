"""The real lane on a virtual clock: the same driver, lane and SQL, only without waiting.

The tables are temporary copies that only this session sees, so a simulation leaves nothing behind and no
driver ever picks it up. The provider is the sandbox with its book in memory.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from accounts import knobs
from accounts.channels.base import AccountConfig, Transport
from accounts.channels.sandbox.book import MemoryBook
from accounts.channels.sandbox.provider import Provider
from accounts.channels.sandbox.script import Script
from accounts.channels.sandbox.transport import MemorySandboxTransport
from fanout.database import WriteAll
from fanout.engine.clock import Clock, VirtualClock, run_virtual
from fanout.engine.commit import LaneWrite, Result, Written, ignore_written
from fanout.engine.connection import BlockingLink, Link, Row, prepare
from fanout.engine.driver import Driver, LockSpaces
from fanout.engine.ledger import CAUSES, Ledger
from fanout.engine.loading import NEXT_RETRY
from fanout.engine.outbox import Outbox
from fanout.runs.texts import held_back_by
from reminders.window import Window

TABLES = (
    "accounts_account",
    "accounts_dailylimit",
    "reminders_recipient",
    "reminders_suppression",
    "fanout_run",
    "fanout_runtarget",
    "fanout_runchange",
    "fanout_tally",
    "fanout_lanestate",
    "fanout_knownchat",
    "fanout_knownid",
    "fanout_activity",
    "fanout_mediaupload",
    "fanout_driver",
    "fanout_event",
    "fanout_notification",
)

COUNT_TARGETS = """
CREATE TRIGGER inserted AFTER INSERT ON fanout_runtarget REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_count_inserted();
CREATE TRIGGER updated AFTER UPDATE ON fanout_runtarget REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION fanout_count_updated();
CREATE TRIGGER status BEFORE UPDATE OF status ON fanout_run
  FOR EACH ROW WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION fanout_fold_at_status()
"""

SIMULATION_LOCKS = 0x53494D  # "SIM", and a number drawn for each
UPLOAD_BYTES_PER_MS = 1024  # about 8 Mbit/s up
TICK = 60.0  # seconds: nothing comes from outside


@dataclass(frozen=True, slots=True)
class Scenario:
    """The parameters of `manage.py simulate`."""

    groups: int = 1000
    parts: Sequence[str] = ("text",)
    image_mb: float = 5
    at: datetime = field(default_factory=lambda: datetime.fromisoformat("2026-01-05T09:00:00+00:00"))
    timezone: str = "UTC"
    window: tuple[int, int] = (6, 18)
    latency_ms: tuple[float, float] = (80, 250)
    error_rate: float = 0.0
    daily_cap: int | None = None
    seed: int = 1
    lanes: int = 1
    knobs: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    run: Row
    book: MemoryBook
    ended_at: datetime
    real_seconds: float
    reads: int


def simulate(info: str, scenario: Scenario) -> Report:
    """Play a scenario to its end. `info` is the connection string of PostgreSQL."""
    began = time.perf_counter()

    async def play(clock: VirtualClock) -> Report:
        link = BlockingLink.open(info)
        try:
            world = World(link, clock, scenario)
            await world.build()
            await world.play()
            row = await world.run_row()
            return Report(row, world.book, clock.now(), time.perf_counter() - began, world.reads)
        finally:
            await link.close()

    return run_virtual(play, scenario.at)


class World:
    """Temporary tables, a provider in memory, and drivers that come and go until nothing is due."""

    def __init__(self, link: Link, clock: Clock, scenario: Scenario) -> None:
        self.link = link
        self.clock = clock
        self.scenario = scenario
        self.book = MemoryBook()
        self.reads = 0
        upload_ms = scenario.image_mb * 1024 * 1024 / UPLOAD_BYTES_PER_MS
        script = {
            "*": {"latency_ms": list(scenario.latency_ms), "upload_latency_ms": upload_ms, "faults": _faults(scenario)}
        }
        now = lambda: clock.now().timestamp()  # noqa: E731
        rng = random.Random(scenario.seed)
        self.provider = Provider(self.book, Script(script), now, rng, clock.sleep)

    # --- setting up -------------------------------------------------------------------------------------

    async def build(self) -> None:
        for table in TABLES:
            await self.link.query(f"CREATE TEMPORARY TABLE {table} (LIKE public.{table} INCLUDING ALL)")
        for trigger in COUNT_TARGETS.split(";"):
            await self.link.query(trigger)
        await prepare(self.link)
        for account in range(1, self.scenario.lanes + 1):
            await self._add_account(account)
            await self._add_run(account)
            await self._add_targets(account)
        await self.link.query(f"ANALYZE {', '.join(TABLES)}")  # not the whole database, which other sessions use

    async def _add_account(self, account: int) -> None:
        row = {
            "id": account,
            "label": f"account {account}",
            "channel": "sandbox",
            "status": "active",
            "timezone": self.scenario.timezone,
            # An empty column means no limit.
            **{name: value for name, value in self.scenario.knobs.items() if value != math.inf},
        }
        blanks = {
            "address": "",
            "config": Jsonb({}),
            "credentials": "",
            "status_reason": "",
            "last_error": "",
            "warmup_days": 0,
            "warmup_floor": 0,
            "owner_id": 1,
        }
        times = {"created_at": self.clock.now(), "updated_at": self.clock.now()}
        await self._insert("accounts_account", row | blanks | times)
        lane = {
            "account_id": account,
            "epoch": 0,
            "holder": "",
            "due_at": self.clock.now(),
            "wake_count": 1,
            "batch_sent": 0,
            "slow_factor": 1.0,
            "sample": "",
            "probing": False,
            "crashes": 0,
            "why": "",
        }
        await self._insert("fanout_lanestate", lane)
        if self.scenario.daily_cap is not None:
            limit = {"account_id": account, "action": "message", "limit": self.scenario.daily_cap}
            await self._insert("accounts_dailylimit", limit)

    async def _add_run(self, run: int) -> None:
        start, end = self.scenario.window
        now = self.clock.now()
        counters = dict.fromkeys(("total", "pending", "sending", "sent", "failed", "skipped", "unconfirmed"), 0)
        seconds = {f"seconds_{cause}": 0.0 for cause in CAUSES}
        row = {
            "id": run,
            "reminder_id": 1,
            "account_id": run,
            "lanes": [run],
            "title": "simulation",
            "action": "message",
            "status": "queued",
            "pause_reason": "",
            "error_summary": "",
            "archived": False,
            "scheduled_for": now,
            "created_at": now,
            "waiting_why": "",
            "delays": Jsonb({}),
            "parts": Jsonb(_parts(self.scenario)),
            "timezone": self.scenario.timezone,
            "window_start_hour": start,
            "window_end_hour": end,
            "window_closes_at": Window(self.scenario.timezone, start, end).closes_on(now),
            "auto_resume": False,
            "owner_id": 1,
        }
        await self._insert("fanout_run", row | counters | seconds | {"reminder_id": run})

    async def _add_targets(self, run: int) -> None:
        await self.link.query(
            """
            WITH people AS (
              INSERT INTO reminders_recipient (kind, address, name, tags, status, follow_up_attempts, created_at,
                                               owner_id)
              SELECT 'group', (%(first)s + n) || '@g.us', 'Group ' || n, '{}', 'active', 0, %(now)s, 1
                FROM generate_series(1, %(groups)s) n RETURNING id, address)
            INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent,
                                          attempts, claim_epoch, provider_id, error_kind, error)
            SELECT %(run)s, %(run)s, id, row_number() OVER (ORDER BY id), address, 'pending', 0, 0, 0, '', '', ''
              FROM people
            """,
            {"run": run, "groups": self.scenario.groups, "now": self.clock.now(), "first": run * 10_000_000},
        )

    async def _insert(self, table: str, row: dict[str, Any]) -> None:
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join(["%s"] * len(row))
        await self.link.query(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))

    # --- playing ----------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Run drivers, slice by slice, until no lane has anything to do."""
        while await self._next_due() is not None:
            due = await self._next_due()
            assert due is not None
            if due > self.clock.now():
                await self.clock.sleep((due - self.clock.now()).total_seconds())
            await self._driver().run()

    def _driver(self) -> Driver:
        space = SIMULATION_LOCKS + random.SystemRandom().randrange(1 << 24)
        return _UntilIdle(
            self.clock,
            self._open_ledger,
            self.transport,
            capacity=self.scenario.lanes,
            slice_seconds=3600,
            spaces=LockSpaces(lanes=space, slots=space + (1 << 24)),
            seed=self.scenario.seed,
            tick=TICK,
        )

    async def _open_ledger(self, outbox: Outbox) -> Ledger:
        return _SimulatedLedger(self.link, self.link, self)

    def transport(self, account: AccountConfig) -> Transport:
        return MemorySandboxTransport(account, self.provider)

    async def _next_due(self) -> datetime | None:
        (row,) = await self.link.query("SELECT min(due_at) AS due FROM fanout_lanestate")
        due: datetime | None = row["due"]
        return due

    async def run_row(self, run: int = 1) -> Row:
        (row,) = await self.link.query("SELECT * FROM fanout_run WHERE id = %s", (run,))
        return row


class _UntilIdle(Driver):
    """Ends its slice as soon as no lane is left, so that the clock can jump to the next one due."""

    def _over(self) -> bool:
        return super()._over() or (self.ticks > 0 and not self.lanes)

    async def _tick_pause(self) -> None:
        """Give back a lane that ends at once: by the next tick its wait might be over already."""
        if self.tasks:
            await asyncio.wait(
                set(self.tasks.values()), timeout=self.options.tick_seconds, return_when=asyncio.FIRST_COMPLETED
            )


class _SimulatedLedger(Ledger):
    """Nothing can crash here, so a result need not be durable at once: it goes out with the next claim, or before a
    read of a run's state. The connection stays open: the temporary tables live in it."""

    def __init__(self, locks: Link, reads: Link, world: World) -> None:
        super().__init__(locks, reads)
        self.world = world

    def hand_in(self, result: Result, lane: LaneWrite | None, written: Written) -> None:
        self._put(result, lane, ignore_written)
        written(None)

    async def read(self, statement: str, parameters: Any = None) -> list[Row]:
        self.world.reads += 1
        if statement is NEXT_RETRY:
            await self.flushed()
        return await super().read(statement, parameters)

    @asynccontextmanager
    async def together(self) -> AsyncIterator[WriteAll]:
        await self.flushed()
        async with super().together() as write:
            yield write

    async def close_connections(self) -> None:
        await self.locks.query("SELECT pg_advisory_unlock_all()")


def _faults(scenario: Scenario) -> list[dict[str, Any]]:
    if not scenario.error_rate:
        return []
    match = {"probability": scenario.error_rate, "seed": scenario.seed}
    return [{"on": "messages", "match": match, "effect": "soft_bounce"}]


def _parts(scenario: Scenario) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for kind in scenario.parts:
        part: dict[str, Any] = {"kind": kind, "text": "A reminder"}
        if kind != "text":
            size = int(scenario.image_mb * 1024 * 1024)
            part["media"] = {
                "sha256": f"{kind:0<64}",
                "filename": f"{kind}.bin",
                "mime": "application/octet-stream",
                "size": size,
            }
        parts.append(part)
    return parts


def summary(report: Report, scenario: Scenario) -> dict[str, Any]:
    """Return what `simulate --json` prints."""
    run, book = report.run, report.book
    deliveries = book.deliveries()
    minutes = _minutes(run, report.ended_at)
    return {
        "status": run["status"],
        **{word: run[word] for word in ("total", "sent", "failed", "skipped", "pending", "unconfirmed")},
        "virtual_minutes": round(minutes, 2),
        "uploads": len(book.uploads()),
        "bytes_uploaded": sum(upload.size for upload in book.uploads()),
        "peak_60s": book.peak(),
        "permitted_ratio": _permitted_ratio(deliveries, scenario),
        "bound_by": held_back_by(run),
        "error_summary": run["error_summary"],
        "real_seconds": round(report.real_seconds, 2),
    }


def _minutes(run: Row, ended_at: datetime) -> float:
    finished_at: datetime = run["finished_at"] or ended_at
    took: timedelta = finished_at - run["scheduled_for"]
    return took.total_seconds() / 60


def _permitted_ratio(deliveries: Sequence[Any], scenario: Scenario) -> float | None:
    """Return the share of messages sent of those that rate and burst would have permitted in that time."""
    rate = scenario.knobs.get("max_send_per_minute", knobs.KNOBS["max_send_per_minute"].default)
    burst = scenario.knobs.get("send_burst", knobs.KNOBS["send_burst"].default)
    if not rate or len(deliveries) < 2:
        return None
    minutes: float = (deliveries[-1].t - deliveries[0].t) / 60
    return round(len(deliveries) / (burst + rate * minutes), 4)
