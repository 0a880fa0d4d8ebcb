"""The real driver, lane and SQL on the test database, with a virtual clock and the sandbox provider in memory.

A test sets the scene with the ORM, plays it for some virtual time with things happening at chosen moments, and
then judges by the provider's book.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.files.base import ContentFile
from django.db import connection

from accounts.channels.base import AccountConfig, Outcome, Part, Transport
from accounts.channels.sandbox.book import MemoryBook
from accounts.channels.sandbox.provider import Provider
from accounts.channels.sandbox.script import Script
from accounts.channels.sandbox.transport import MemorySandboxTransport
from accounts.models import Account
from fanout.database import conninfo, execute
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.connection import Link, prepare
from fanout.engine.driver import Driver
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from fanout.models import Run
from fanout.runs import controls
from reminders.models import MediaFile, Recipient, Reminder, ReminderMessage, ReminderTarget
from tests.engine.sessions import SESSIONS, PooledLink

MONDAY = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)

#: virtual seconds that an idle stage sleeps at most before it looks at the lanes again
LONGEST_SLEEP = 10.0

Happening = tuple[datetime, Callable[[datetime], Any]]


class Stage:
    def __init__(self, now: datetime = MONDAY, seed: int = 1, script: dict[str, Any] | None = None) -> None:
        self.now = now
        self.seed = seed
        self.book = MemoryBook()
        self.clock: VirtualClock | None = None
        self.provider = Provider(
            self.book,
            Script(script or {"*": {"latency_ms": [80, 200]}}),
            self._time,
            random.Random(seed),
            asyncio.sleep,
        )
        self.user = get_user_model().objects.create_user(f"operator-{random.random()}", is_staff=True)
        self.reads: list[str] = []
        self.drivers: list[StageDriver] = []
        self.ledgers: list[Ledger] = []
        self.at_provider: set[asyncio.Task[Outcome]] = set()
        self.outbox = Outbox()  # of the process: it outlives slices
        self.slice_seconds = 40.0
        self.capacity = 5000
        self.tick = 0.5
        self.stopping = False

    def _time(self) -> float:
        return (self.clock.now() if self.clock else self.now).timestamp()

    # --- setting the scene ------------------------------------------------------------------------------

    def account(self, **fields: Any) -> Account:
        n = Account.objects.count()
        return Account.objects.create(
            **{"owner": self.user, "label": f"account {n}", "channel": "sandbox", "address": f"a{n}"} | fields
        )

    def reminder(
        self, account: Account, groups: int = 10, parts: tuple[str, ...] = ("text",), first: int = 0, **fields: Any
    ) -> Reminder:
        reminder = Reminder.objects.create(
            **{"owner": self.user, "title": "Rent", "account": account, "delivery_window_end_hour": 18} | fields
        )
        for position, kind in enumerate(parts):
            file = None if kind == "text" else self.media(f"{kind}-{position}".encode())
            ReminderMessage.objects.create(
                reminder=reminder, position=position, kind=kind, text=f"part {position}", media=file
            )
        self.recipients(first, groups)
        wanted = [f"{120363000000000000 + n}@g.us" for n in range(first, first + groups)]
        people = Recipient.objects.filter(owner=self.user, address__in=wanted).order_by("address")
        ReminderTarget.objects.bulk_create(
            ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
        )
        return reminder

    def recipients(self, first: int, groups: int) -> None:
        Recipient.objects.bulk_create(
            (
                Recipient(owner=self.user, kind="group", address=f"{120363000000000000 + n}@g.us", name=f"Group {n}")
                for n in range(first, first + groups)
            ),
            ignore_conflicts=True,
        )

    def media(self, content: bytes) -> MediaFile:
        file = ContentFile(PNG + content, "picture.png")
        return MediaFile.objects.create(owner=self.user, file=file, filename="picture.png", mime="image/png")

    def fire(self, reminder: Reminder, at: datetime | None = None) -> Run:
        done = controls.fire(reminder, self.user, at or self.now)
        assert done.run is not None, done.text
        return done.run

    # --- playing ----------------------------------------------------------------------------------------

    def play(
        self,
        seconds: float | None = None,
        happenings: list[Happening] | None = None,
        drivers: int = 1,
        crash: bool = False,
    ) -> None:
        """Until nothing is due any more, or for some virtual time. A crash ends it without a word: what is with
        the provider goes its way, and nobody records it."""
        until = None if seconds is None else self.now + timedelta(seconds=seconds)
        ordered = sorted(happenings or [], key=lambda h: h[0])
        run_virtual(lambda clock: self._play(clock, until, ordered, drivers, crash), self.now)

    async def _play(
        self, clock: VirtualClock, until: datetime | None, happenings: list[Happening], drivers: int, crash: bool
    ) -> None:
        self.clock = clock
        self.stirred = asyncio.Event()
        self.watching, _ = open_link("looks at the stage")
        others = [asyncio.create_task(self._happen(clock, *happening)) for happening in happenings]
        workers = [asyncio.create_task(self._work(clock, drivers)) for _ in range(drivers)]
        try:
            if until is not None:
                await clock.sleep((until - clock.now()).total_seconds())
            else:
                await self._until_idle(clock, others)
        finally:
            await (self._die(workers) if crash else self._drain(workers))
            await self.watching.close()
            for task in workers + others:
                if task.done() and not task.cancelled():
                    task.result()
            self.now = clock.now()
            self.clock = None

    async def _drain(self, workers: list[asyncio.Task[None]]) -> None:
        for driver in self.drivers:
            driver.stopping = True
        self.stopping = True
        self.stirred.set()
        await asyncio.wait(workers)

    async def _die(self, workers: list[asyncio.Task[None]]) -> None:
        for ledger in self.ledgers:
            await ledger.close_connections()
        ours = asyncio.all_tasks() - self.at_provider - {asyncio.current_task()}
        for task in ours:
            task.cancel()
        await asyncio.wait(ours)
        if self.at_provider:
            await asyncio.wait(self.at_provider)

    async def _happen(self, clock: VirtualClock, at: datetime, what: Callable[[datetime], Any]) -> None:
        await clock.sleep((at - clock.now()).total_seconds())
        what(clock.now())
        connection.close()  # each asyncio task has a connection of its own
        self.stirred.set()
        for driver in self.drivers:
            driver.stirred.set()

    async def _until_idle(self, clock: VirtualClock, others: list[asyncio.Task[None]]) -> None:
        """Return when no lane is due any more and everything has happened; look rarely while all lanes are parked."""
        pause = 1.0
        while True:
            await clock.sleep(pause)
            earliest, everything_happened = await self._earliest_due(), all(task.done() for task in others)
            if earliest is None and everything_happened:
                return
            pause = 1.0
            if earliest is not None and everything_happened:
                pause = min(max(pause, (earliest - clock.now()).total_seconds()), LONGEST_SLEEP)

    async def _earliest_due(self) -> datetime | None:
        (row,) = await self.watching.query("SELECT min(due_at) AS at FROM fanout_lanestate")
        at: datetime | None = row["at"]
        return at

    async def _work(self, clock: VirtualClock, drivers: int) -> None:
        self.stopping = False
        while not self.stopping:
            driver = StageDriver(
                clock,
                self.open_ledger,
                self.transport,
                capacity=self.capacity,
                slice_seconds=self.slice_seconds,
                slots=drivers,
                seed=self.seed,
                tick=self.tick,
                silent_after=timedelta(days=1),  # real time: a busy machine must not end a driver on the stage
                outbox=self.outbox,
            )
            self.drivers.append(driver)
            await self._skip_idle_slices(clock)
            await driver.run()
            self.drivers.remove(driver)
            await clock.sleep(0.3)  # the successor's way through the queue

    async def _skip_idle_slices(self, clock: VirtualClock) -> None:
        """Sleep while every lane is parked for longer than a slice; a happening ends the sleep."""
        while not self.stopping:
            earliest = await self._earliest_due()
            idle = (earliest - clock.now()).total_seconds() - self.slice_seconds if earliest else 0.0
            if idle <= 0:
                return
            self.stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(idle, LONGEST_SLEEP)):
                    await self.stirred.wait()

    async def open_ledger(self, outbox: Outbox) -> Ledger:
        locks, is_new = open_link("claims of the stage")
        if is_new:
            await prepare(locks)
            await locks.query("SET synchronous_commit = off")
        reads, _ = open_link("reads of the stage")
        ledger = CountingLedger(locks, reads, self, outbox)
        self.ledgers = [ledger for ledger in self.ledgers if not ledger.locks.closed] + [ledger]
        return ledger

    def transport(self, account: AccountConfig) -> Transport:
        return FarAwayTransport(account, self.provider, self.at_provider)

    # --- judging ----------------------------------------------------------------------------------------

    def times(self, account: str | None = None) -> list[datetime]:
        return [datetime.fromtimestamp(d.t, UTC) for d in self.book.deliveries(account)]


class StageDriver(Driver):
    """A driver that sleeps while no lane is due: hours of waiting would cost thousands of queries."""

    LONGEST_SLEEP = LONGEST_SLEEP

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.stirred = asyncio.Event()

    async def _tick_pause(self) -> None:
        if self.lanes or self.tasks or self.leaving or self.outbox:
            await super()._tick_pause()
            return
        self.stirred.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(await self._until_due()):
                await self.stirred.wait()

    async def _until_due(self) -> float:
        (row,) = await self.ledger.reads.query("SELECT min(due_at) AS at FROM fanout_lanestate")
        wait = (row["at"] - self.clock.now()).total_seconds() if row["at"] else self.LONGEST_SLEEP
        left = self.slice.ends_at - self.clock.monotonic()
        return max(self.options.tick_seconds, min(wait, self.LONGEST_SLEEP, left))


class FarAwayTransport(MemorySandboxTransport):
    """The provider is a world of its own: what reached it happens, whether we are still there or not."""

    def __init__(self, account: AccountConfig, provider: Provider, under_way: set[asyncio.Task[Outcome]]) -> None:
        super().__init__(account, provider)
        self.under_way = under_way

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        task = asyncio.create_task(super().send(address, part, message_id))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return await asyncio.shield(task)


class CountingLedger(Ledger):
    def __init__(self, locks: Link, reads: Link, stage: Stage, outbox: Outbox) -> None:
        super().__init__(locks, reads, outbox)
        self.stage = stage

    async def read(self, statement: str, parameters: Any = None) -> list[dict[str, Any]]:
        self.stage.reads.append(statement)
        return await super().read(statement, parameters)


def open_link(use: str) -> tuple[PooledLink, bool]:
    """Return a link for this use, and whether its session is new."""
    info = conninfo(connection.settings_dict)
    session, is_new = SESSIONS.take(info, use)
    return PooledLink(session, info, use), is_new


def noon_zone(now: datetime) -> str:
    """Return the timezone in which it is about noon, so that no midnight falls into a test on the real clock."""
    return f"Etc/GMT{now.astimezone(UTC).hour - 12:+d}"


def whole_day(now: datetime) -> dict[str, Any]:
    """Return the fields of a reminder whose window is open for about twelve hours before and after `now`."""
    return {"timezone": noon_zone(now), "delivery_window_start_hour": 0, "delivery_window_end_hour": 24}


def fresh(run: Run) -> Run:
    run.refresh_from_db()
    return run


COUNTERS = ("pending", "sending", "sent", "failed", "skipped", "unconfirmed")
APPENDED = f"""
SELECT {", ".join(f"coalesce(sum({word}), 0) AS {word}" for word in COUNTERS)}
  FROM fanout_runchange WHERE run_id = %(run)s AND id > %(counted_to)s
"""


def books_balance(run: Run) -> bool:
    """Return whether the run's row and the changes appended since agree with its targets. A driver that was killed
    leaves such changes behind."""
    run.refresh_from_db()
    (appended,) = execute(APPENDED, {"run": run.pk, "counted_to": run.counted_to})
    counted = Counter(run.targets.values_list("status", flat=True))
    agree = all(getattr(run, word) + appended[word] == counted[word] for word in COUNTERS)
    return agree and run.total == counted.total()
