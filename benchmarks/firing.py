"""How long reminders take to become runs.

    python -m benchmarks.firing [--reminders 3000] [--targets 60] [--large 50000]

First many reminders that are due in the same second: they have 60 seconds of lead. Then a single large one, as its own
task prepares it, chunk by chunk.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reminders", type=int, default=3000)
    parser.add_argument("--targets", type=int, default=60)
    parser.add_argument("--large", type=int, default=50_000)
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    report(many(options.reminders, options.targets), options.json)
    report(large(options.large), options.json)


def many(reminders: int, targets: int) -> dict[str, Any]:
    from fanout.runs.firing import fire_due

    def fire(now: datetime) -> None:
        runs = fire_due(now)
        assert len(runs) == reminders, f"{len(runs)} of {reminders} reminders were fired"

    return {"reminders": reminders, "targets": targets, **measured(reminders, targets, fire)}


def large(targets: int) -> dict[str, Any]:
    from fanout.models import Run
    from fanout.runs import firing, freezing

    def fire(now: datetime) -> None:
        (run,) = firing.fire_due(now)
        while not freezing.prepare(run.pk, now):
            pass
        run.refresh_from_db()
        assert (run.status, run.total) == (Run.Status.QUEUED, targets), f"{run.status} with {run.total} targets"

    return {"reminders": 1, "targets": targets, **measured(1, targets, fire)}


def measured(reminders: int, targets: int, fire: Callable[[datetime], None]) -> dict[str, float]:
    from django.utils import timezone

    from benchmarks.accounts import postgres_cpu
    from benchmarks.scenes import scheduled
    from benchmarks.scratch import scratch_database

    with scratch_database():
        now = timezone.now()
        scheduled(reminders, targets, now + timedelta(seconds=30))
        postgres, cpu, began = postgres_cpu(), time.process_time(), time.perf_counter()
        fire(now)
        seconds = time.perf_counter() - began
        return {
            "seconds": round(seconds, 2),
            "ms_each": round(1000 * seconds / reminders, 1),
            "cpu_ms_each": round(1000 * (time.process_time() - cpu) / reminders, 1),
            "postgres_cpu_ms_each": round(1000 * (postgres_cpu() - postgres) / reminders, 1),
        }


if __name__ == "__main__":
    main()
