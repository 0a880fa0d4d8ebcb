"""How much of PostgreSQL's speed is left after the engine took its part.

    python -m benchmarks.overhead [--targets 20000] [--accounts 100] [--drivers 1] [--rounds 3] [--json FILE]

In turn on the same PostgreSQL: a bare psycopg loop that makes the same two batched writes for every target (claimed,
then settled), the whole engine with a provider that answers at once and no pacing, and the bare loop again, because a
busy machine changes its mind. Every claim and every outcome is durable in both. Prints deliveries per second and their
ratio, each round on a database of its own, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from pathlib import Path

import django
from django.db.models import Max, Min

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=20_000)
    parser.add_argument("--accounts", type=int, default=100)
    parser.add_argument("--batch", type=int, default=200, help="of the bare loop")
    parser.add_argument("--concurrency", type=int, default=8, help="targets of an account in flight at once")
    parser.add_argument("--drivers", type=int, default=1, help="processes that share the accounts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    from benchmarks.scratch import scratch_database

    ratios = []
    for _ in range(options.rounds):
        with scratch_database():
            before = bare_loop(options.targets, options.batch)
            engine = whole_engine(options.targets, options.accounts, options.concurrency, options.drivers)
            bare = (before + bare_loop(options.targets, options.batch)) / 2
        ratios.append(engine / bare)
        report(
            {"bare_per_second": round(bare), "engine_per_second": round(engine), "ratio": round(ratios[-1], 2)}, None
        )
    of = {"targets": options.targets, "drivers": options.drivers}
    report(of | {"overhead_ratio": round(statistics.median(ratios), 2)}, options.json)


def bare_loop(targets: int, batch: int) -> float:
    """UPDATE … FROM unnest, twice for every target, each batch in a transaction of its own."""
    import psycopg
    from django.db import connection

    from fanout.database import conninfo

    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as link:
        link.execute("DROP TABLE IF EXISTS bare")
        link.execute("CREATE TABLE bare (id bigint PRIMARY KEY, status text, epoch bigint, at timestamptz)")
        link.execute("INSERT INTO bare SELECT n, 'pending', 0, now() FROM generate_series(1, %s) n", (targets,))
        link.execute("ANALYZE bare")
        claim = (
            "UPDATE bare t SET status = 'sending', epoch = 1, at = now() FROM unnest(%s::bigint[]) c(id)"
            " WHERE t.id = c.id"
        )
        settle = (
            "UPDATE bare t SET status = o.status, at = now() FROM unnest(%s::bigint[], %s::text[]) o(id, status)"
            " WHERE t.id = o.id AND t.epoch = 1"
        )
        began = time.perf_counter()
        for first in range(1, targets + 1, batch):
            ids = list(range(first, min(first + batch, targets + 1)))
            link.execute(claim, (ids,))
            link.execute(settle, (ids, ["sent"] * len(ids)))
        return targets / (time.perf_counter() - began)


def whole_engine(targets: int, accounts: int, concurrency: int, drivers: int) -> float:
    from django.db import connection

    from benchmarks.scratch import fire_everywhere
    from fanout.models import Run

    fire_everywhere(accounts, targets // accounts, concurrency)
    connection.close()
    processes = [
        multiprocessing.get_context("fork").Process(target=drive, args=(accounts, drivers)) for _ in range(drivers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    left = sum(Run.objects.values_list("pending", flat=True))
    assert left == 0, f"{left} targets were not sent"
    ends = Run.objects.aggregate(first=Min("first_attempt_at"), last=Max("finished_at"))
    return targets / float((ends["last"] - ends["first"]).total_seconds())


def drive(accounts: int, drivers: int) -> None:
    """One driver's process, until nothing is left."""
    from accounts.channels import registry
    from accounts.channels.base import Outcome, Part, Sent, Transport
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.ops.tasks import open_ledger, rare_garbage_collection

    class AtOnce(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ok"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            return Sent(message_id)

    class UntilDone(Driver):
        def _over(self) -> bool:
            return super()._over() or (self.ticks > 4 and not self.lanes)

    driver = UntilDone(
        SystemClock(), open_ledger, AtOnce, capacity=-(-accounts // drivers), slots=drivers, slice_seconds=120
    )
    with rare_garbage_collection():
        asyncio.run(driver.run())


if __name__ == "__main__":
    main()
