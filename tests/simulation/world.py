"""Carries a play out: real drivers and real PostgreSQL, a provider in memory, time that jumps."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from django.contrib.auth import get_user_model
from django.db import connection

from accounts.channels.events import EventKind, ProviderEvent
from accounts.channels.sandbox.book import MemoryBook
from accounts.channels.sandbox.provider import Provider
from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.database import conninfo
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.inbound import worker
from fanout.inbound.events import store
from fanout.models import LaneState, Run, RunTarget
from fanout.runs import controls, corrections
from reminders.models import Recipient, Reminder
from reminders.suppressions import New, suppress
from tests.simulation.judge import Judge
from tests.simulation.processes import Process, task_factory
from tests.simulation.schedule import PROCESSES, Play, Schedule, play_of

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
        owners = [run for run, schedule in zip(runs, self.play.schedules) for _ in range(schedule.targets)]
        RunTarget.objects.bulk_create(
            RunTarget(id=n, run=run, account=run.account, recipient=person, position=n, address=person.address)
            for n, (run, person) in enumerate(zip(owners, people), start=1)
        )
        LaneState.objects.bulk_create(LaneState(account=account, due_at=MONDAY, poke=1) for account in accounts)
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
            lanes=[reminder.account_id],
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
        self.idle_from = max([at for s in self.play.schedules for at, _ in s.actions], default=0.0)
        await self._until_idle()
        self.ending.set()
        await asyncio.gather(*processes)
        await others
        self.judge.at_the_end()
        self.judge.connection.close()
        connection.close()
        calls = sum(map(len, self.judge.calls.values()))
        return Verdict(self.play.seed, len(self.schedules), calls, self.died, tuple(self.judge.violations))

    async def _until_idle(self) -> None:
        """Nothing is due any more before the end, or something is wrong already."""
        end = MONDAY + timedelta(seconds=LONGEST)
        while self.clock.monotonic() < LONGEST and not self.judge.violations:
            await self.clock.sleep(2.0)
            if (
                self.clock.monotonic() > self.idle_from
                and not self.judge.connection.execute(
                    "SELECT 1 FROM fanout_lanestate WHERE due_at < %s AND account_id = ANY(%s) LIMIT 1",
                    (end, list(self.schedules)),
                ).fetchone()
            ):
                return

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
        acts = [(at, account, what) for account, schedule in self.schedules.items() for at, what in schedule.actions]
        for at, account, what in sorted(acts):
            await self.clock.sleep(max(0.0, at - self.clock.monotonic()))
            self._do(what, account, self.clock.now())

    def _do(self, what: str, account: int, now: datetime) -> None:
        run = self.runs[account]
        run.refresh_from_db()
        {
            "pause": self._pause,
            "resume": self._resume,
            "cancel": self._cancel,
            "suppress": self._suppress,
            "opt out": self._opt_out,
            "stop account": self._stop_account,
            "reactivate": self._reactivate,
            "settle": self._settle,
            "retry failed": self._retry_failed,
        }[what](run, now)

    def _pause(self, run: Run, now: datetime) -> None:
        if controls.pause(run, self.user, now).ok:
            self.judge.stopped["run", run.pk] = now

    def _resume(self, run: Run, now: datetime) -> None:
        if controls.resume(run, self.user, now).ok:
            self.judge.stopped.pop(("run", run.pk), None)

    def _cancel(self, run: Run, now: datetime) -> None:
        if controls.cancel(run, self.user, now).ok:
            self.judge.stopped["run", run.pk] = now

    def _suppress(self, run: Run, now: datetime) -> None:
        address = run.targets.order_by("-position")[0].address
        suppress(New(address, "manual", "operator", "", now, None, None))
        self.judge.stopped["address", address] = now

    def _opt_out(self, run: Run, now: datetime) -> None:
        address = run.targets.order_by("-position")[0].address
        key = f"{run.pk}-{now}"
        store(run.account_id, [ProviderEvent(key=key, kind=EventKind.REPLY, at=now, text="STOP", address=address)], now)
        worker.step(now)
        self.judge.stopped["address", address] = now

    def _stop_account(self, run: Run, now: datetime) -> None:
        if controls.pause_account(run.account, self.user, now).ok:
            self.judge.stopped["account", run.account_id] = now

    def _reactivate(self, run: Run, now: datetime) -> None:
        if controls.reactivate(run.account, self.user, now).ok:
            self.judge.stopped.pop(("account", run.account_id), None)

    def _settle(self, run: Run, now: datetime) -> None:
        """As an operator does who has waited a while and looked whether it arrived."""
        latest = now - timedelta(seconds=8)
        heard = {delivery.message_id.split("-")[1] + "-" + str(delivery.part) for delivery in self.book.deliveries()}
        for target in run.targets.filter(status="unconfirmed", claimed_at__lt=latest):
            corrections.settle(run, [target.pk], f"{target.pk}-{target.parts_sent}" in heard, self.user, now)

    def _retry_failed(self, run: Run, now: datetime) -> None:
        if controls.retry_failed(run, self.user, now).ok:
            self.judge.stopped.pop(("run", run.pk), None)


def clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute(";".join(f"DELETE FROM {table}" for table in LEFT_BEHIND))


def _part(kind: str, n: int) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": kind, "text": f"part {n}"}
    if kind != "text":
        part["media"] = {"sha256": f"{n:064x}", "filename": "picture.png", "mime": "image/png", "size": 1000}
    return part


def trace(seed: int) -> list[Any]:
    """What the provider heard, call by call."""

    async def play(clock: VirtualClock) -> list[Any]:
        world = World(play_of(seed), clock)
        await world.run()
        return [*world.book.lines(), world.judge.calls]

    with operators_in_the_loop():
        return run_virtual(play, MONDAY)
