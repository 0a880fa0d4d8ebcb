"""How many accounts one machine serves in time.

    python -m benchmarks.accounts [--accounts 1000 3000] [--seconds 60] [--drivers 1] [--json FILE]

Every account sends 40 messages a minute to a provider that answers after 150 ms, inside the driver's process, so that
nothing but Crier and PostgreSQL is measured. All runs become due in the same second. Drivers are processes of their
own, in slices as in production. The provider's own notes say how many calls there were, when the last account had its
first, and whether any account was ever called more often than its pace permits.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import os
import resource
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import django

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

PER_MINUTE, BURST = 40, 3
ANSWERS_AFTER = 0.150
SLICE = 40.0
LEAD = 8.0  # seconds from the scene's end to the moment at which all runs are due
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Notes:
    """What a driver's provider saw, and what the driver cost."""

    calls: dict[int, list[float]] = field(default_factory=dict)
    cpu: float = 0.0
    megabytes: float = 0.0
    round_trips: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accounts", type=int, nargs="+", default=[1000, 3000])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--profile", type=Path, help="write cProfile's statistics of the first driver to this file")
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    for accounts in options.accounts:
        figures = measure(accounts, options.seconds, options.drivers, options.profile)
        report(figures, options.json)


def measure(accounts: int, seconds: int, drivers: int, profile: Path | None = None) -> dict[str, Any]:
    from django.utils import timezone

    from benchmarks.scenes import due_runs
    from benchmarks.scratch import scratch_database

    permitted = permitted_within(seconds)
    with scratch_database():
        # The scene takes its time: what it makes is due only when it is complete.
        due_at = timezone.now() + timedelta(days=1)
        due_runs(accounts, permitted + 20, due_at, PER_MINUTE)
        due_at = timezone.now() + timedelta(seconds=LEAD)
        _all_due_at(due_at)
        due = time.monotonic() + (due_at - timezone.now()).total_seconds()
        cpu, wal = postgres_cpu(), number("SELECT pg_current_wal_insert_lsn() - '0/0'")
        notes = drive(drivers, accounts, due, seconds, profile)
        postgres, wal = postgres_cpu() - cpu, number("SELECT pg_current_wal_insert_lsn() - '0/0'") - wal
        sizes = {f"bytes_per_{name}": round(bytes_per_row(f"fanout_{name}")) for name in ("runtarget", "activity")}
    sends = sum(len(times) for one in notes for times in one.calls.values())
    figures = figures_of(notes, postgres, accounts, due, seconds, permitted)
    return figures | {"wal_bytes_per_send": round(wal / sends)} | sizes


def _all_due_at(due_at: Any) -> None:
    from fanout.models import LaneState, Run

    closes_at = Run.objects.all()[0].window.closes_on(due_at)
    Run.objects.update(scheduled_for=due_at, window_closes_at=closes_at)
    LaneState.objects.update(due_at=due_at)


def permitted_within(seconds: int) -> int:
    """The most that one account's bucket lets through in this time, from a full bucket on."""
    return BURST + math.ceil(seconds * PER_MINUTE / 60) - 1


def figures_of(
    notes: list[Notes], postgres: float, accounts: int, due: float, seconds: int, permitted: int
) -> dict[str, Any]:
    calls: dict[int, list[float]] = {}
    for one in notes:
        for account, times in one.calls.items():
            calls.setdefault(account, []).extend(at - due for at in times)
    in_time = sum(at < seconds for times in calls.values() for at in times)
    sends = sum(map(len, calls.values()))
    firsts = sorted(min(times) for times in calls.values())
    return {
        "accounts": accounts,
        "drivers": len(notes),
        "seconds": seconds,
        "sends_per_second": round(in_time / seconds),
        "achieved": round(in_time / (permitted * accounts), 4),
        "most_in_60_s": max(most_in_a_minute(sorted(times)) for times in calls.values()),
        "first_send_p50": round(firsts[len(firsts) // 2], 2),
        "first_send_last": round(firsts[-1], 2),
        "accounts_served": len(calls),
        "driver_cpu_s_per_1000": round(1000 * sum(one.cpu for one in notes) / sends, 3),
        "postgres_cpu_s_per_1000": round(1000 * postgres / sends, 3),
        "driver_mb": round(max(one.megabytes for one in notes)),
        "round_trips_per_target": round(sum(one.round_trips for one in notes) / sends, 4),
    }


def most_in_a_minute(times: list[float]) -> int:
    """The most calls within any 60 seconds."""
    most, first = 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= 60:
            first += 1
        most = max(most, last - first + 1)
    return most


# --- drivers ----------------------------------------------------------------------------------------------


def drive(drivers: int, accounts: int, due: float, seconds: int, profile: Path | None) -> list[Notes]:
    from django.db import connection

    connection.close()
    processes = multiprocessing.get_context("fork")
    pipes = []
    for n in range(drivers):
        ours, theirs = processes.Pipe(duplex=False)
        args = (theirs, drivers, accounts, due + seconds, profile if n == 0 else None)
        process = processes.Process(target=_drive, args=args)
        process.start()
        pipes.append((ours, process))
    notes = [ours.recv() for ours, _ in pipes]
    for _, process in pipes:
        process.join()
    return notes


def _drive(pipe: Any, drivers: int, accounts: int, until: float, profile: Path | None) -> None:
    """One driver's process: slice after slice."""
    notes = Notes()
    began = resource.getrusage(resource.RUSAGE_SELF)
    if profile is not None:
        import cProfile

        profiler = cProfile.Profile(time.process_time)
        profiler.runcall(_slices, notes, drivers, accounts, until)
        profiler.dump_stats(profile)
    else:
        _slices(notes, drivers, accounts, until)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    notes.cpu = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    notes.megabytes = ended.ru_maxrss / 1024
    pipe.send(notes)


def _slices(notes: Notes, drivers: int, accounts: int, until: float) -> None:
    from accounts.channels import registry
    from accounts.channels.base import Outcome, Part, Sent, Transport
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.engine.ledger import Ledger
    from fanout.engine.outbox import Outbox
    from fanout.ops.tasks import open_ledger, rare_garbage_collection

    class AnswersLate(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ok"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            notes.calls.setdefault(self.account.id, []).append(time.monotonic())
            await asyncio.sleep(ANSWERS_AFTER)
            return Sent(message_id)

    async def counting(outbox: Outbox) -> Ledger:
        ledger = await open_ledger(outbox)
        for link in (ledger.locks, ledger.reads):
            _count(link, notes)
        return ledger

    while (left := until - time.monotonic()) > 0:
        driver = Driver(
            SystemClock(), counting, AnswersLate, capacity=accounts, slots=drivers, slice_seconds=min(SLICE, left)
        )
        with rare_garbage_collection():
            asyncio.run(driver.run())


def _count(link: Any, notes: Notes) -> None:
    """Every question to PostgreSQL is one round trip, however many statements it carries."""
    for name in ("query", "call", "script"):
        really = getattr(link, name)

        async def counted(*args: Any, really: Any = really) -> Any:
            notes.round_trips += 1
            return await really(*args)

        setattr(link, name, counted)


# --- PostgreSQL's share -----------------------------------------------------------------------------------


def number(question: str) -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(question)
        return float(cursor.fetchone()[0])


def bytes_per_row(table: str) -> float:
    """With its indexes."""
    return number(f"SELECT pg_total_relation_size('{table}') / greatest(1, (SELECT count(*) FROM {table}))")


def postgres_cpu() -> float:
    """CPU seconds of the server's processes so far, those that have ended included."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT setting FROM pg_settings WHERE name = 'data_directory'")
        (directory,) = cursor.fetchone()
    postmaster = int(Path(directory, "postmaster.pid").read_text().split()[0])
    pids = [postmaster, *_children(postmaster)]
    # Backends that ended are counted with the postmaster, which has waited for them.
    return sum(map(_own_cpu, pids)) + _ended_cpu(postmaster)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def _own_cpu(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def _ended_cpu(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_SECOND


if __name__ == "__main__":
    main()
