"""One 20 KB message to many recipients through unlimited SMTP accounts, to Debian's smtp-sink.

Side by side in one run: a bare aiosmtplib loop with the same number of reused connections and a message that
was encoded beforehand, Crier's engine on a scratch database, and django-post_office and django-mailer where
they can be imported. The bare loop runs before and after, because a busy machine changes its mind.

    .venv/bin/python -m benchmarks.smtp_fanout [--recipients 20000] [--connections 10] [--accounts 1]

Several accounts send side by side and share the recipients and the connections.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosmtplib

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
TEXT = ("One line of a newsletter that is long enough to look like one.\n" * 320)[:20_000]
SENDER = "mailer@example.com"
PEERS = {"post_office": "django-post_office", "mailer": "django-mailer"}


def main() -> int:
    options = arguments()
    peers = [name for name in PEERS if importlib.util.find_spec(name)]
    set_up_django(peers)
    from benchmarks.scratch import scratch_database
    from tests.channels.mail_server import SMTP_SINK, Sink

    if SMTP_SINK is None:
        say("smtp-sink is missing: apt-get install postfix")
        return 1
    with scratch_database(), Sink() as sink:
        compare(options.recipients, options.connections, options.accounts, sink.port, options.json)
        for name in PEERS:
            compare_peer(name, options.peer_recipients, sink.port, name in peers)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recipients", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=10, help="of all accounts together")
    parser.add_argument("--accounts", type=int, default=1)
    parser.add_argument("--peer-recipients", type=int, default=2_000, help="fewer, because peers are slower")
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    return parser.parse_args()


def compare(recipients: int, connections: int, accounts: int, port: int, kept: Path | None) -> None:
    before = bare(recipients // 2, connections, port)
    say(f"{recipients:,} recipients, {connections} connections, accounts: {accounts}; the loop alone: {before:,.0f}/s")
    engine = measured(lambda: crier(recipients, connections, accounts, port), recipients)
    after = bare(recipients // 2, connections, port)
    loop = (before + after) / 2
    row("bare aiosmtplib loop", loop, f"{before:,.0f} before, {after:,.0f} after")
    row("Crier's engine", engine, f"{engine / loop:.0%} of the loop")
    report(
        {"mails": recipients, "connections": connections, "accounts": accounts, "ratio": round(engine / loop, 2)}, kept
    )


def compare_peer(name: str, recipients: int, port: int, installed: bool) -> None:
    if installed:
        row(PEERS[name], peer_rate(name, recipients, port), f"{recipients:,} recipients")
    else:
        say(f"{PEERS[name]:24} not installed")


def row(label: str, rate: float, remark: str) -> None:
    say(f"{label:24} {rate:8,.0f}/s   {remark}")


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def measured(work: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    seconds = work()
    return count / (seconds if isinstance(seconds, float) else time.perf_counter() - began)


# -- the bare loop ----------------------------------------------------------------------------------------


def bare(recipients: int, connections: int, port: int) -> float:
    message = encoded_once()

    async def worker(todo: list[str]) -> None:
        smtp = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=False)
        await smtp.connect()
        while todo:
            await smtp.sendmail(SENDER, [todo.pop()], message)
        await smtp.quit()

    async def everyone() -> None:
        todo = [f"u{n}@example.org" for n in range(recipients)]
        await asyncio.gather(*(worker(todo) for _ in range(connections)))

    return measured(lambda: asyncio.run(everyone()), recipients)


def encoded_once() -> bytes:
    from accounts.channels.base import AccountConfig, Part
    from accounts.channels.mail import Envelope, encode

    account = AccountConfig(1, "smtp", "bench", SENDER, {})
    part = encode(account, SENDER, Part("1:0", 0, "text", TEXT, "Newsletter"))
    return part.fixed + Envelope(account).headers("u@example.org", "crier-1-0") + b"\r\n" + part.body


# -- Crier ------------------------------------------------------------------------------------------------


def crier(recipients: int, connections: int, accounts: int, port: int) -> float:
    """Seconds from the driver's start to the end of the last run."""
    from fanout.models import Run

    make_runs(recipients // accounts, connections // accounts, accounts, port)
    seconds = asyncio.run(drive())
    for run in Run.objects.all():
        if (run.status, run.sent) != ("success", recipients // accounts):
            raise SystemExit(f"{run.sent} of {recipients // accounts} sent, {run.status}: {run.error_summary}")
    return seconds


def make_runs(recipients: int, connections: int, accounts: int, port: int) -> None:
    from django.contrib.auth import get_user_model
    from django.db import connection

    from reminders.models import Recipient

    owner = get_user_model().objects.create_user("bench", is_staff=True, is_superuser=True)
    people = Recipient.objects.bulk_create(
        Recipient(owner=owner, kind="mailbox", address=f"u{n}@example.org") for n in range(recipients * accounts)
    )
    for n in range(accounts):
        make_run(owner, f"bench {n}", people[n * recipients : (n + 1) * recipients], connections, port)
    with connection.cursor() as cursor:
        # A site's tables have been analysed long ago; a fresh one's plans would be guesses.
        cursor.execute("ANALYZE")


def make_run(owner: Any, label: str, people: list[Any], connections: int, port: int) -> None:
    from django.utils import timezone

    from accounts.models import Account, DailyLimit
    from fanout.runs import controls
    from reminders.models import Reminder, ReminderMessage, ReminderTarget

    config = {"host": "127.0.0.1", "port": port, "security": "plain", "messages_per_connection": 0}
    account = Account.objects.create(
        owner=owner,
        label=label,
        channel="smtp",
        address=SENDER,
        config=config,
        max_send_per_minute=0,
        group_concurrency=connections,
    )
    DailyLimit.objects.create(account=account, action="email", limit=None)
    reminder = Reminder.objects.create(
        owner=owner,
        account=account,
        title=f"Newsletter of {label}",
        subject="Newsletter",
        action="email",
        delivery_window_start_hour=0,
        delivery_window_end_hour=24,
    )
    ReminderMessage.objects.create(reminder=reminder, text=TEXT)
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    done = controls.fire(reminder, owner, timezone.now())
    if done.run is None:
        raise SystemExit(done.text)


async def drive() -> float:
    from django.conf import settings

    from accounts.channels.registry import transport_for
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.ops.tasks import open_ledger, rare_garbage_collection

    driver = Driver(
        SystemClock(),
        open_ledger,
        transport_for,
        capacity=settings.BOT_FIRE_CONCURRENCY,
        slice_seconds=3600,
    )
    with rare_garbage_collection():
        began = time.perf_counter()
        driving = asyncio.create_task(driver.run())
        seconds = await finished() - began
        driver.stopping = True
        await driving
    return seconds


async def finished() -> float:
    from django.db import connection

    from fanout.database import conninfo
    from fanout.engine.connection import AsyncLink

    link = await AsyncLink.open(conninfo(connection.settings_dict))
    try:
        while True:
            if not await link.query("SELECT 1 FROM fanout_run WHERE status IN ('queued', 'running', 'waiting')"):
                return time.perf_counter()
            await asyncio.sleep(0.05)
    finally:
        await link.close()


# -- peers ------------------------------------------------------------------------------------------------


def peer_rate(name: str, recipients: int, port: int) -> float:
    from django.conf import settings

    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    settings.EMAIL_BACKEND = settings.MAILER_EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    return (post_office if name == "post_office" else mailer)(recipients)


def post_office(recipients: int) -> float:
    from post_office import mail  # type: ignore[import-not-found]

    mail.send_many(
        [
            {"sender": SENDER, "recipients": [f"u{n}@example.org"], "subject": "Newsletter", "message": TEXT}
            for n in range(recipients)
        ]
    )
    return measured(lambda: mail.send_queued_mail_until_done(processes=1), recipients)


def mailer(recipients: int) -> float:
    import mailer as package  # type: ignore[import-not-found]
    from mailer import engine

    for n in range(recipients):
        package.send_mail("Newsletter", TEXT, SENDER, [f"u{n}@example.org"])
    return measured(engine.send_all, recipients)


# -- Django -----------------------------------------------------------------------------------------------


def set_up_django(peers: list[str]) -> None:
    import django
    from django.conf import settings

    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, *peers]
    settings.POST_OFFICE = {"MAX_RETRIES": 0, "THREADS_PER_PROCESS": 10, "BATCH_SIZE": 2000}
    django.setup()
    logging.disable(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
