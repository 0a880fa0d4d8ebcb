"""What a second machine adds.

    python -m benchmarks.machines [--seconds 20] [--json FILE]

Eighty accounts without a pace and a provider that answers after 20 ms. A machine is a process with a host name of its
own and room for 20 accounts; all share one PostgreSQL. First one of them, then two: prints the calls per second of
each, by the provider's own notes, and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import django

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

ACCOUNTS, ROOM, CONCURRENCY = 80, 20, 3
ANSWERS_AFTER = 0.020
WARM_UP = 3.0  # seconds until every machine has its lanes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    options = parser.parse_args()
    django.setup()
    one, two = (calls_per_second(machines, options.seconds) for machines in (1, 2))
    report({"one_machine": round(one), "two_machines": round(two), "ratio": round(two / one, 2)}, options.json)


def calls_per_second(machines: int, seconds: float) -> float:
    from django.db import connection
    from django.utils import timezone

    from benchmarks.scenes import due_runs
    from benchmarks.scratch import scratch_database

    with scratch_database():
        due_runs(ACCOUNTS, 4000, timezone.now(), per_minute=0, concurrency=CONCURRENCY)
        connection.close()
        processes = multiprocessing.get_context("fork")
        pipes = []
        for number in range(machines):
            ours, theirs = processes.Pipe(duplex=False)
            process = processes.Process(target=_machine, args=(theirs, f"machine-{number}", WARM_UP + seconds))
            process.start()
            pipes.append((ours, process))
        calls = sum(ours.recv() for ours, _ in pipes)
        for _, process in pipes:
            process.join()
    return calls / seconds


def _machine(pipe: Any, host: str, seconds: float) -> None:
    from accounts.channels import registry
    from accounts.channels.base import Outcome, Part, Sent, Transport
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.ops.tasks import open_ledger, rare_garbage_collection

    began, calls = time.monotonic(), 0

    class AnswersSoon(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ok"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            nonlocal calls
            calls += WARM_UP <= time.monotonic() - began < seconds
            await asyncio.sleep(ANSWERS_AFTER)
            return Sent(message_id)

    driver = Driver(SystemClock(), open_ledger, AnswersSoon, capacity=ROOM, slice_seconds=seconds)
    driver.identity.host = host
    with rare_garbage_collection():
        asyncio.run(driver.run())
    pipe.send(calls)


if __name__ == "__main__":
    main()
