"""A process of drivers that may die at any await, and whose connections may be cut there.

Everything it is asked to do passes a point: before and after every statement and every call. What dies at a point has
done everything before it and nothing after it.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from accounts.channels.base import AccountConfig, Handle, Media, Outcome, Part, Transport
from accounts.channels.sandbox.provider import Provider
from accounts.channels.sandbox.transport import MemorySandboxTransport
from fanout.engine import commit
from fanout.engine.clock import VirtualClock
from fanout.engine.connection import BlockingLink, Row, by_key, prepare
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from tests.engine.sessions import SESSIONS, PooledLink

RUNNING: ContextVar[Process | None] = ContextVar("RUNNING", default=None)

#: what the database may refuse for a while
REFUSED: dict[str, Callable[[str], bool]] = {
    "results": lambda statement: statement in (commit.RECORD, commit.RECORD_FOLLOW_UPS),
    "claims": lambda statement: statement == commit.CLAIM,
    "everything": lambda statement: re.search(r"\b(UPDATE|INSERT INTO|DELETE FROM) [a-z]+_", statement) is not None,
}

#: asked before each call to the provider: the process, the account, the target's message id, its part
Witness = Callable[["Process", int, str, int], None]


class Process:
    """Drivers one after the other, as a worker runs them, until it is stopped or dies."""

    def __init__(
        self,
        clock: VirtualClock,
        info: str,
        provider: Provider,
        witness: Witness,
        watch: psycopg.Connection[Any],
        *,
        rng: random.Random,
        refused: Callable[[], str] = lambda: "",
        dies_at: int | None = None,
        cut_at: int | None = None,
        tick: float = 1.0,
        slice_seconds: float = 40.0,
        slots: int = 1,
    ) -> None:
        self.clock = clock
        self.info = info
        self.provider = provider
        self.witness = witness
        self.watch = watch
        self.rng = rng
        self.refused = refused  # by the database, at this moment
        self.dies_at = dies_at
        self.cut_at = cut_at
        self.tick = tick
        self.slice_seconds = slice_seconds
        self.slots = slots
        self.points = 0
        self.dead = asyncio.Event()
        self.cut = False
        self.stopping = False
        self.outbox = Outbox()
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in the order in which they began
        self.links: list[MortalLink] = []
        self.locks: MortalLink | None = None

    def start(self) -> asyncio.Task[None]:
        token = RUNNING.set(self)
        try:
            return asyncio.create_task(self._work())
        finally:
            RUNNING.reset(token)

    async def _work(self) -> None:
        while not self.stopping:
            driver = Driver(
                self.clock,
                self._open_ledger,
                self._transport,
                capacity=5000,
                slice_seconds=self.slice_seconds,
                slots=self.slots,
                seed=self.rng.randrange(1 << 30),
                stop_asked=lambda: self.stopping,
                tick=self.tick,
                silent_after=timedelta(days=1),  # real time: a busy machine must not end a driver here
                outbox=self.outbox,
            )
            await driver.run()
            await self.clock.sleep(0.3)  # the successor's way through the queue

    async def _open_ledger(self, outbox: Outbox) -> Ledger:
        await self.point()
        locks, is_new = self._open_link("claims of a play")
        if is_new:
            await prepare(BlockingLink(locks.connection))
            locks.connection.execute("SET synchronous_commit = off")
        reads, is_new = self._open_link("reads of a play")
        if is_new:
            await by_key(BlockingLink(reads.connection))
            reads.connection.prepare_threshold = 5  # as AsyncLink.open has it
        self.locks = locks
        return Ledger(locks, reads, outbox)

    def _open_link(self, use: str) -> tuple[MortalLink, bool]:
        """Return a link for this use, and whether its session is new."""
        session, is_new = SESSIONS.take(self.info, use)
        link = MortalLink(session, self.info, use)
        link.process = self
        self.links.append(link)
        return link, is_new

    def _transport(self, account: AccountConfig) -> Transport:
        return WitnessedTransport(account, self.provider, self)

    # --- dying ------------------------------------------------------------------------------------------

    async def point(self, may_yield: bool = True) -> None:
        self.points += 1
        if self.points == self.dies_at:
            self._die()
        if self.dead.is_set():
            raise asyncio.CancelledError  # nothing happens here any more
        if self.points == self.cut_at:
            self.cut = True
            self._close_links()
        if may_yield and self.rng.random() < 0.2:
            await asyncio.sleep(0)  # others first

    def _die(self) -> None:
        self.dead.set()
        self._close_links()

    async def bury(self) -> None:
        """End tasks again that clean up on their way out: a dead process does not."""
        while self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.sleep(0)

    def _close_links(self) -> None:
        for link in self.links:
            link.end()
        self.links.clear()


class MortalLink(PooledLink):
    process: Process

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        await self.process.point(self._idle())
        self._refuse([statement])
        rows = await super().query(statement, parameters)
        await self.process.point(self._idle())
        return rows if "ORDER BY" in statement else in_order(rows)

    async def call(self, calls: Any) -> list[list[Row]]:
        await self.process.point(self._idle())
        self._refuse([commit.HOT[name] for name, _ in calls])
        answers = await super().call(calls)
        await self.process.point(self._idle())
        return [in_order(rows) for rows in answers]

    async def script(self, statements: Any) -> list[list[Row]]:
        await self.process.point(self._idle())
        self._refuse([statement for statement, *_ in statements])
        answers = await super().script(statements)
        await self.process.point(self._idle())
        return [
            rows if "ORDER BY" in statement else in_order(rows) for (statement, *_), rows in zip(statements, answers)
        ]

    def _refuse(self, statements: list[str]) -> None:
        """As a full disk does, which has room for some tables and none for others."""
        refused = REFUSED.get(self.process.refused())
        if refused is not None and not self.closed and any(map(refused, statements)):
            raise psycopg.errors.DiskFull("No space left on device")

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        """Leave the session's locks, as its end would. One in the middle of something is closed; then return when
        PostgreSQL has noticed: whether a lock is free must not be a matter of luck."""
        if self.closed:
            return
        session, pid = self.connection, self.connection.info.backend_pid
        self.give_back()
        while (
            session.closed
            and self.process.watch.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
        ):
            time.sleep(0.001)

    def _idle(self) -> bool:
        """A process that yields inside a transaction would make others wait for its locks on the same thread, for
        ever."""
        return not self.closed and self.connection.info.transaction_status == TransactionStatus.IDLE


def in_order(rows: list[Row]) -> list[Row]:
    """Where a statement asks for no order, rows come as the table happens to keep them: a seed would not replay."""
    return sorted(rows, key=lambda row: tuple(row.values())[:1])


class WitnessedTransport(MemorySandboxTransport):
    """The provider is a world of its own: what reached it happens, whether the process lives or not."""

    def __init__(self, account: AccountConfig, provider: Provider, process: Process) -> None:
        super().__init__(account, provider)
        self.process = process

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        await self.process.point()
        self.process.witness(self.process, self.account.id, message_id, part.index)
        outcome = await asyncio.shield(far_away(super().send(address, part, message_id)))
        await self.process.point()
        return outcome

    async def prepare(self, media: Media) -> Handle:
        await self.process.point()
        handle = await asyncio.shield(far_away(super().prepare(media)))
        await self.process.point()
        return handle


def far_away(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task outside all processes: it survives them."""
    token = RUNNING.set(None)
    try:
        return asyncio.create_task(work)
    finally:
        RUNNING.reset(token)


def task_factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """Every task belongs to the process that made it."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = RUNNING.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(process.tasks.pop)
    return task
