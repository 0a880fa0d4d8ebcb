"""One driver of Crier's engine: its share of the messages, over a hundred accounts without a pace."""

import asyncio
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import book  # type: ignore[import-not-found]  # noqa: E402
import django  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402

ACCOUNTS = 100


def work() -> None:
    from accounts.channels import registry
    from accounts.channels.base import Outcome, Part, Sent, Transport
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.ops.tasks import open_ledger, rare_garbage_collection

    class Noting(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ok"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            book.send(int(message_id.split("-")[1]))  # crier-<target>-<part>-<hash>
            return Sent(message_id)

    drivers = int(os.environ["PROCESSES"])
    driver = Driver(
        SystemClock(), open_ledger, Noting, capacity=-(-ACCOUNTS // drivers), slots=drivers, slice_seconds=3600
    )
    with rare_garbage_collection():
        asyncio.run(driver.run())


def main(what: str, jobs: int) -> None:
    django.setup()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = os.environ["PGDATABASE"]
    if what == "enqueue":
        from django.core.management import call_command
        from django.utils import timezone

        from benchmarks.scenes import due_runs

        call_command("migrate", verbosity=0)
        due_runs(ACCOUNTS, jobs // ACCOUNTS, timezone.now(), per_minute=0, concurrency=8)
    else:
        work()


main(sys.argv[1], int(sys.argv[2]))
