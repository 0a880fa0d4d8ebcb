"""What a target costs in a small run and in a large one.

    python -m benchmarks.growth [--targets 1000 100000] [--json FILE]

Accounts without a pace, one at a time, and a provider that answers at once; each size on a database of its own. Prints
the CPU time of the driver and of PostgreSQL per target, and how many times as much each size costs as the first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
from pathlib import Path
from typing import Any

import django

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

CONCURRENCY = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    costs = []
    for targets in options.targets:
        figures = cost(targets)
        costs.append(figures["driver_ms_per_target"] + figures["postgres_ms_per_target"])
        report({"targets": targets, **figures, "ratio": round(costs[-1] / costs[0], 2)}, options.json)


def cost(targets: int) -> dict[str, Any]:
    from django.db import connection
    from django.utils import timezone

    from accounts.channels import registry
    from accounts.channels.base import Outcome, Part, Sent, Transport
    from benchmarks.accounts import postgres_cpu
    from benchmarks.scenes import due_runs
    from benchmarks.scratch import scratch_database
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.ops.tasks import open_ledger, rare_garbage_collection

    # Several runs of a small size, one after the other, so that starting up does not count.
    runs, calls = max(1, 10_000 // targets), 0

    class AtOnce(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ok"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            nonlocal calls
            calls += 1
            return Sent(message_id)

    class UntilDone(Driver):
        def _over(self) -> bool:
            return super()._over() or (calls >= runs * targets and not self.lanes)

    with scratch_database():
        due_runs(runs, targets, timezone.now(), per_minute=0, concurrency=CONCURRENCY)
        connection.close()
        driver = UntilDone(SystemClock(), open_ledger, AtOnce, capacity=1, slice_seconds=600)
        postgres, ours = postgres_cpu(), _cpu()
        with rare_garbage_collection():
            asyncio.run(driver.run())
        ours, postgres = _cpu() - ours, postgres_cpu() - postgres
    return {
        "driver_ms_per_target": round(1000 * ours / calls, 4),
        "postgres_ms_per_target": round(1000 * postgres / calls, 4),
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
