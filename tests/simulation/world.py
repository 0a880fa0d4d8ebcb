"""Carries a play out: real drivers and real PostgreSQL, a provider in memory, time that jumps."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any
from unittest import mock

from django.contrib.auth import get_user_model
from django.db import connection

from accounts.channels.sandbox.book import MemoryBook
from accounts.channels.sandbox.provider import Provider
from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.database import conninfo
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.models import LaneState, Run, RunTarget
from fanout.ops import audit
from fanout.runs import controls
from reminders.models import Recipient, Reminder
from tests.simulation.judge import Judge
from tests.simulation.operators import Operators
from tests.simulation.processes import Process, task_factory
from tests.simulation.schedule import PROCESSES, Pair, Play, Schedule, play_of

MONDAY = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LONGEST = 90.0  # virtual seconds
#: what a play leaves behind, in the order in which it may go
LEFT_BEHIND = (
    "fanout_inboundevent",
    "fanout_notification",
    "fanout_event",
    "fanout_activity",
    "fanout_tally",
    "fanout_mediaupload",
    "fanout_knownchat",
    "fanout_runtarget",
    "fanout_runchange",
    "fanout_offload",
    "fanout_correction",
    "fanout_run",
    "fanout_lanestate",
    "fanout_driver",
    "reminders_suppression",
    "reminders_recipient",
    "reminders_reminder",
    "accounts_account",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    schedules: int
    calls: int
    deaths: int
    violations: tuple[str, ...]


def operators_in_the_loop() -> AbstractContextManager[Any]:
    """Operators act inside the event loop; nothing else waits there."""
    return mock.patch.dict(os.environ, DJANGO_ALLOW_ASYNC_UNSAFE="true")


def carry_out(seed: int, accounts: int | None = None) -> Verdict:
    """One play, from its seed to what was wrong with it."""
    play = play_of(seed) if accounts is None else play_of(seed, accounts)
    with operators_in_the_loop():
        return run_virtual(lambda clock: World(play, clock).run(), MONDAY)


class World:
    def __init__(self, play: Play, clock: VirtualClock) -> None:
        self.play = play
        self.clock = clock
        self.user, _ = get_user_model().objects.get_or_create(username="operator", defaults={"is_superuser": True})
        self.schedules: dict[int, Schedule] = {}
        self.runs: dict[int, Run] = {}
        self.book = MemoryBook()
        self.deaths = list(play.deaths)
        self.cuts = list(play.cuts)
        self.died = 0
        self._set_the_scene()
        script = {f"s{n}": schedule.provider for n, schedule in enumerate(play.schedules)}
        self.provider = Provider(self.book, Script(script), lambda: clock.now().timestamp(), play.rng, asyncio.sleep)
        self.info = conninfo(connection.settings_dict)
        self.judge = Judge(self.info, clock, self.book, self.schedules)

    # --- setting the scene ------------------------------------------------------------------------------

    def _set_the_scene(self) -> None:
        """All at once: a schedule must cost milliseconds. With the same ids each time, because draws depend on them."""
        clear()
        schedules = list(enumerate(self.play.schedules))
        accounts = Account.objects.bulk_create(self._account(n, schedule) for n, schedule in schedules)
        reminders = Reminder.objects.bulk_create(
            Reminder(id=account.pk, owner=self.user, title=account.label, account=account) for account in accounts
        )
        runs = Run.objects.bulk_create(self._run(r, s) for r, s in zip(reminders, self.play.schedules))
        people = Recipient.objects.bulk_create(
            Recipient(owner=self.user, kind="group", address=f"{n}-{position}@g.us")
            for n, schedule in schedules
            for position in range(schedule.targets)
        )
        senders = [
            (run, account)
            for run, schedule in zip(runs, self.play.schedules)
            for _, account in zip(range(schedule.targets), cycle(run.lanes))
        ]
        RunTarget.objects.bulk_create(
            RunTarget(id=n, run=run, account_id=account, recipient=person, position=n, address=person.address)
            for n, ((run, account), person) in enumerate(zip(senders, people), start=1)
        )
        LaneState.objects.bulk_create(LaneState(account=account, due_at=MONDAY, wake_count=1) for account in accounts)
        self.schedules = {a.pk: schedule for a, schedule in zip(accounts, self.play.schedules)}
        self.runs = {run.account_id: run for run in runs}

    def _account(self, n: int, schedule: Schedule) -> Account:
        return Account(
            id=n + 1,
            owner=self.user,
            label=f"s{n}",
            channel="sandbox",
            config={"account": f"s{n}", "recognises_repeats": schedule.repeats},
            max_send_per_minute=schedule.rate,
            send_burst=schedule.burst,
            group_concurrency=schedule.concurrency,
            retry_base_seconds=1,
        )

    def _run(self, reminder: Reminder, schedule: Schedule) -> Run:
        return Run(
            id=reminder.pk,
            reminder=reminder,
            account=reminder.account,
            owner=self.user,
            lanes=[1 + (reminder.account_id + n - 1) % len(self.play.schedules) for n in range(schedule.lanes)],
            title=reminder.title,
            action="message",
            scheduled_for=MONDAY,
            parts=[_part(kind, n) for n, kind in enumerate(schedule.parts)],
            timezone="UTC",
            window_start_hour=6,
            window_end_hour=24,
            window_closes_at=MONDAY + timedelta(seconds=schedule.closes_after),
        )

    # --- playing ----------------------------------------------------------------------------------------

    async def run(self) -> Verdict:
        asyncio.get_running_loop().set_task_factory(task_factory)
        self.ending = asyncio.Event()
        others = asyncio.create_task(self._act())
        processes = [asyncio.create_task(self._processes()) for _ in range(PROCESSES)]
        acts = [at for s in self.play.schedules for at in (*(at for at, _ in s.actions), *(p.at for p in s.pairs))]
        self.idle_from = max(acts, default=0.0)
        await self._until_idle()
        self.ending.set()
        await asyncio.gather(*processes)
        await others
        controls.sweep_canceled(self.clock.now())
        undriven = [*audit.forgotten_lanes(self.clock.now(), self.clock.now()), *self._asleep()]
        self.judge.at_the_end([f"{violation.subject}: {violation.text}" for violation in undriven])
        self.judge.close()
        connection.close()
        calls = sum(map(len, self.judge.calls.values()))
        return Verdict(self.play.seed, len(self.schedules), calls, self.died, tuple(self.judge.violations))

    async def _until_idle(self) -> None:
        """Nothing is due any more before the end, or something is wrong already."""
        end = MONDAY + timedelta(seconds=LONGEST)
        while self.clock.monotonic() < LONGEST and not self.judge.violations:
            await self.clock.sleep(2.0)
            self.judge.look_for_standstill()
            if (
                self.clock.monotonic() > self.idle_from
                and not self.judge.connection.execute(
                    "SELECT 1 FROM fanout_lanestate WHERE due_at < %s AND account_id = ANY(%s) LIMIT 1",
                    (end, list(self.schedules)),
                ).fetchone()
            ):
                return

    def _asleep(self) -> list[audit.Violation]:
        """Return work that no lane drives. Where another process is to end a run, it has had the time for it."""
        return audit.sleeping(self.clock.now(), self.clock.now() + audit.IN_FLIGHT_AT_MOST)

    async def _processes(self) -> None:
        """One after the other in one place: who dies is followed by the next."""
        while not self.ending.is_set():
            process = self._process()
            working = process.start()
            dying = asyncio.create_task(process.dead.wait())
            ending = asyncio.create_task(self.ending.wait())
            await asyncio.wait({working, dying, ending}, return_when=asyncio.FIRST_COMPLETED)
            await self._follow(process, working)
            for task in (dying, ending):
                task.cancel()

    def _process(self) -> Process:
        return Process(
            self.clock,
            self.info,
            self.provider,
            self.judge.witness,
            self.judge.connection,
            rng=self.play.rng,
            refused=self._refused,
            dies_at=self.deaths.pop() if self.deaths else None,
            cut_at=self.cuts.pop() if self.cuts else None,
            tick=self.play.tick,
            slice_seconds=self.play.slice_seconds,
            slots=PROCESSES,
        )

    def _refused(self) -> str:
        refusal, now = self.play.refusal, self.clock.monotonic()
        return refusal.what if refusal is not None and refusal.begins <= now < refusal.ends else ""

    async def _follow(self, process: Process, working: asyncio.Task[None]) -> None:
        if not process.dead.is_set():
            process.stopping = True
            await asyncio.wait({working})
        self.judge.lost_some |= process.dead.is_set() or process.cut
        if process.dead.is_set():
            self.died += 1
            await process.bury()
            self.judge.look()
            await self.clock.sleep(self.play.rng.uniform(0.2, 2.0))
        elif working.done() and not working.cancelled():
            working.result()

    # --- operators and recipients -----------------------------------------------------------------------

    async def _act(self) -> None:
        """One operator: everything in one task, because Django gives each its own connection."""
        operators = Operators(self.user, self.judge, self.book, self.runs)
        acts: list[tuple[float, int, str | Pair]] = []
        for account, schedule in self.schedules.items():
            acts += [(at, account, what) for at, what in schedule.actions]
            acts += [(pair.at, account, pair) for pair in schedule.pairs]
        for at, account, act in sorted(acts, key=lambda act: act[:2]):
            await self.clock.sleep(max(0.0, at - self.clock.monotonic()))
            if isinstance(act, str):
                operators.do(act, account, self.clock.now())
            else:
                operators.do_both(act, account, self.clock.now())


def clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute(";".join(f"DELETE FROM {table}" for table in LEFT_BEHIND))


def _part(kind: str, n: int) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": kind, "text": f"part {n}"}
    if kind != "text":
        part["media"] = {"sha256": f"{n:064x}", "filename": "picture.png", "mime": "image/png", "size": 1000}
    return part


def trace(seed: int, accounts: int) -> list[Any]:
    """What the provider received, call by call."""

    async def play(clock: VirtualClock) -> list[Any]:
        world = World(play_of(seed, accounts), clock)
        await world.run()
        return [*world.book.lines(), world.judge.calls]

    with operators_in_the_loop():
        return run_virtual(play, MONDAY)
