"""Does any statement on the locking connection grow with the size of a run, or with history?

    python -m benchmarks.history [--history 1000000] [--small 1000] [--large 50000]

A database with a million settled targets. A small run and then a large one go through all they can go through: some
deliveries, a wait for the account's hours, a resume, the window's end. Prints the slowest call of every statement on
the connection that holds the locks, for both sizes. Beats and hand-overs wait for the slowest of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from fanout.models import Run

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

SECONDS = 4.0  # that each round of sending gets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=50_000)
    options = parser.parse_args()
    django.setup()
    from benchmarks.scratch import scratch_database

    with scratch_database():
        make_history(options.history)
        small, large = slowest_statements(options.small), slowest_statements(options.large)
    print(f"{'slowest call, in ms':50} {options.small:>9,} {options.large:>9,} pending")  # noqa: T201
    for name in sorted(large, key=lambda name: -large[name])[:15]:
        print(f"{name:50} {small.get(name, 0) * 1000:9.1f} {large[name] * 1000:9.1f}")  # noqa: T201
    print(f"worst: {max(large.values()) * 1000:.0f} ms")  # noqa: T201


def make_history(targets: int) -> None:
    """Settled runs of a thousand targets each, on accounts of their own."""
    from django.db import connection

    from benchmarks.scratch import fire_everywhere

    fire_everywhere(accounts=4, targets=1_000, concurrency=3)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE fanout_runtarget SET status = 'sent', claimed_at = now(), settled_at = now()")
        cursor.execute("UPDATE fanout_run SET status = 'success', finished_at = now(), started_at = now()")
        cursor.execute("UPDATE fanout_lanestate SET due_at = NULL")
        columns = run_columns(cursor)
        cursor.execute(
            f"""
            INSERT INTO fanout_run ({columns}, scheduled_for, total, sent)
            SELECT {columns}, scheduled_for - n * interval '1 hour', 0, 0
              FROM fanout_run, generate_series(1, %s) n
            """,
            [max(1, targets // 4_000 - 1)],
        )
        cursor.execute(
            """
            INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent,
                                          attempts, claim_epoch, claimed_at, settled_at, provider_id,
                                          error_kind, error)
            SELECT r.id, r.account_id, p.id, row_number() OVER (PARTITION BY r.id), p.address, 'sent', 1, 1, 1,
                   r.scheduled_for, r.scheduled_for, '', '', ''
              FROM fanout_run r, reminders_recipient p WHERE r.total = 0
            """
        )
        cursor.execute("ANALYZE")


def run_columns(cursor: Any) -> str:
    """All that a copy of a run may share with it."""
    cursor.execute(
        "SELECT string_agg(column_name, ', ') FROM information_schema.columns WHERE table_name = 'fanout_run'"
        " AND is_identity = 'NO' AND NOT column_name IN ('scheduled_for', 'total', 'sent')"
    )
    (columns,) = cursor.fetchone()
    return str(columns)


def slowest_statements(pending: int) -> dict[str, float]:
    """A run of this size from its first delivery to the end of its window."""
    from django.db import connection
    from django.utils import timezone

    from fanout.models import Run
    from fanout.runs import controls, freezing

    run = fire_large(pending)
    while not freezing.prepare(run.pk, timezone.now()):
        pass
    slowest: dict[str, float] = defaultdict(float)
    asyncio.run(drive(slowest))
    # Outside its hours the run waits; then they open again.
    hour = timezone.now().hour
    closed = {"hours_start": (hour + 2) % 23, "hours_end": (hour + 2) % 23 + 1}
    for hours in (closed, {"hours_start": None, "hours_end": None}):
        type(run.account).objects.filter(pk=run.account_id).update(**hours)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE fanout_lanestate SET wake_count = wake_count + 1, due_at = now() WHERE due_at IS NOT NULL"
            )
        asyncio.run(drive(slowest))
    controls.pause(run, None, timezone.now())
    controls.resume(run, None, timezone.now())
    asyncio.run(drive(slowest))
    Run.objects.filter(pk=run.pk).update(window_closes_at=timezone.now())
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE fanout_lanestate SET wake_count = wake_count + 1, due_at = now() WHERE due_at IS NOT NULL"
        )
    asyncio.run(drive(slowest))
    run.refresh_from_db()
    assert run.status == Run.Status.PAUSED, run.status
    return dict(slowest)


def fire_large(pending: int) -> Run:
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.utils import timezone

    from accounts.models import Account
    from fanout.runs import controls
    from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget

    user = get_user_model().objects.get(username="benchmark")
    account = Account.objects.create(
        owner=user, label=f"large {pending}", channel="sandbox", address=f"large-{pending}"
    )
    Recipient.objects.bulk_create(
        (Recipient(owner=user, kind="group", address=f"{10**13 + n}@g.us") for n in range(pending)),
        ignore_conflicts=True,
        batch_size=10_000,
    )
    reminder = Reminder.objects.create(
        owner=user,
        title=f"large {pending}",
        account=account,
        delivery_window_start_hour=0,
        delivery_window_end_hour=24,
    )
    ReminderMessage.objects.create(reminder=reminder, text="A reminder")
    people = Recipient.objects.filter(address__gte=f"{10**13}").values_list("pk", flat=True)[:pending]
    ReminderTarget.objects.bulk_create(
        (ReminderTarget(reminder=reminder, recipient_id=pk, position=n) for n, pk in enumerate(people)),
        batch_size=10_000,
    )
    answer = controls.fire(reminder, None, timezone.now() - timedelta(seconds=1))
    assert answer.run is not None
    # On purpose without ANALYZE: statistics do not know a run that was frozen a moment ago.
    connection.close()
    return answer.run


async def drive(slowest: dict[str, float]) -> None:
    """One driver for a few seconds, with a stopwatch on the connection that holds the locks."""
    from django.conf import settings

    from accounts.channels import registry
    from accounts.channels.base import AccountConfig, Outcome, Part, Sent, Transport
    from fanout.database import conninfo
    from fanout.engine.clock import SystemClock
    from fanout.engine.commit import Call
    from fanout.engine.connection import AsyncLink, Row, by_key, prepare
    from fanout.engine.driver import Driver
    from fanout.engine.ledger import Ledger
    from fanout.engine.outbox import Outbox

    class AtOnce(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ready"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            return Sent(message_id)

    class TimedLink(AsyncLink):
        async def query(self, statement: str, parameters: Any = None) -> list[Row]:
            began = time.perf_counter()
            rows = await super().query(statement, parameters)
            name = " ".join(statement.split())[:50]
            slowest[name] = max(slowest[name], time.perf_counter() - began)
            return rows

        async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
            began = time.perf_counter()
            answers = await super().call(calls)
            slowest["a batch"] = max(slowest["a batch"], time.perf_counter() - began)
            return answers

    async def open_ledger(outbox: Outbox) -> Ledger:
        info = conninfo(settings.DATABASES["default"])
        locks = await prepare(await TimedLink.open(info, threshold=None))
        return Ledger(locks, await by_key(await AsyncLink.open(info)), outbox)

    def transport(config: AccountConfig) -> Transport:
        return AtOnce(config)

    await Driver(SystemClock(), open_ledger, transport, capacity=100, slice_seconds=SECONDS).run()


if __name__ == "__main__":
    main()
