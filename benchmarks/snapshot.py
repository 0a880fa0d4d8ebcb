"""How much an old snapshot slows the engine down.

    python -m benchmarks.snapshot [--targets 60000] [--accounts 2] [--json FILE]

A backup (`pg_dump`) keeps its snapshot for as long as it runs, and PostgreSQL removes no version of a row that the
snapshot may still see. The whole engine sends without a pace, first without and then with such a snapshot. Prints the
deliveries per second in the first and in the last fifth of each, their ratio, and how many versions were left.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django

from benchmarks.overhead import drive
from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

PARTS = 5  # the run's deliveries are looked at in so many parts

TIMES = "SELECT settled_at FROM fanout_runtarget WHERE status = 'sent' ORDER BY settled_at"
VERSIONS = "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE relname IN ('fanout_run', 'fanout_lanestate')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=60_000)
    parser.add_argument("--accounts", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8, help="targets of an account in flight at once")
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    for snapshot in (False, True):
        report(measure(options, snapshot), options.json)


def measure(options: argparse.Namespace, snapshot: bool) -> dict[str, object]:
    from django.db import connection

    from benchmarks.scratch import fire_everywhere, scratch_database

    with scratch_database():
        fire_everywhere(options.accounts, options.targets // options.accounts, options.concurrency)
        connection.close()
        with old_snapshot(snapshot):
            process = multiprocessing.get_context("fork").Process(target=drive, args=(options.accounts, 1))
            process.start()
            process.join()
        with connection.cursor() as cursor:
            cursor.execute(TIMES)
            times = [row[0] for row in cursor.fetchall()]
            cursor.execute(VERSIONS)
            dead = {f"dead_{name}": count for name, count in cursor.fetchall()}
    assert len(times) == options.targets, f"{options.targets - len(times)} targets were not sent"
    size = len(times) // PARTS
    first, last = (size / (part[-1] - part[0]).total_seconds() for part in (times[:size], times[-size:]))
    return {"snapshot": snapshot, "first": round(first), "last": round(last), "ratio": round(last / first, 2)} | dead


@contextmanager
def old_snapshot(wanted: bool) -> Iterator[None]:
    """Keep a snapshot of this moment open, as a backup does."""
    import psycopg
    from django.db import connection

    from fanout.database import conninfo

    if not wanted:
        yield
        return
    with psycopg.connect(conninfo(connection.settings_dict)) as link:
        link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        link.execute("SELECT 1 FROM fanout_run LIMIT 1")
        yield


if __name__ == "__main__":
    main()
