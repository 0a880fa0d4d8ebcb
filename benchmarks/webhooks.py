"""How long a provider waits for the answer of a webhook, and a person for Message 2, beside a running fan-out.

    python -m benchmarks.webhooks [--rate 200] [--seconds 20] [--burst 10000] [--replies 20]

A real uvicorn, a driver with 100 accounts at 40 messages a minute each, and a worker that works on what comes in, all
on one scratch database. Receipts come at a steady rate, each timed from the moment at which it was due; then a burst at
once. Prints percentiles and what was stored; the goal is a 99th percentile below 100 ms, and none lost.

Then people reply to a message that 20 further accounts, which are not slowed down by their pace, have sent them:
`--replies` of them in a second, and then as many as the burst at once. Prints how long it took from the answer of the
webhook, when the reply is stored, to the provider's call for Message 2, by the provider's own notes; the goal is a 99th
percentile below 3 s. `--replies 0` leaves this out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import django
import psutil

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

ROOT = Path(__file__).resolve().parent.parent
KEY = "benchmark"
PORT = 8797
CONNECTIONS = 200
REPLY_ACCOUNTS = 20
#: where the provider notes its calls
BOOK = "BENCHMARK_BOOK"
PATIENCE = 600.0  # seconds for the last Message 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--replies", type=int, default=20, help="per second; 0: none [20]")
    parser.add_argument("--play", choices=["fan-out", "worker"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    django.setup()
    if options.play:
        {"fan-out": fan_out, "worker": worker}[options.play](options.seconds)
        return
    from benchmarks.scratch import fire_everywhere, scratch_database

    with scratch_database(), tempfile.NamedTemporaryFile() as book:
        os.environ[BOOK] = book.name
        fire_everywhere(accounts=100, targets=400, concurrency=3, per_minute=40)
        steady = options.replies * options.seconds
        people = write_to(steady + options.burst) if options.replies else []
        with processes(options.seconds) as web:
            asyncio.run(measure(hook(), psutil.Process(web), options.rate, options.seconds, options.burst))
            if people:
                asyncio.run(measure_replies(people[:steady], options.replies))
                asyncio.run(measure_replies(people[steady:], 0))


def hook() -> str:
    from accounts.models import Account

    account = Account.objects.earliest("pk")
    account.credentials = {"key": KEY}
    account.save(update_fields=["credentials"])
    return hook_of(account)


def hook_of(account: Any) -> str:
    return f"http://127.0.0.1:{PORT}/hooks/sandbox/{account.hook_token}"


def write_to(people: int) -> list[tuple[str, str]]:
    """Message 1 has been sent to so many; gives the address of each and where its replies come in."""
    from django.utils import timezone

    from accounts.models import Account
    from fanout.models import Run, RunTarget
    from fanout.runs import controls
    from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget, ReplyPart

    owner = Account.objects.earliest("pk").owner
    listed = Recipient.objects.bulk_create(
        Recipient(owner=owner, kind="person", address=f"+49151{n:08d}") for n in range(people)
    )
    hours = {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24}
    hooks = []
    for n in range(REPLY_ACCOUNTS):
        account = Account.objects.create(
            owner=owner,
            label=f"replies {n}",
            channel="sandbox",
            address=f"r{n}",
            credentials={"key": KEY},
            max_send_per_minute=0,
        )
        reminder = Reminder.objects.create(owner=owner, title=f"replies {n}", account=account, **hours)
        ReminderMessage.objects.create(reminder=reminder, text="A reminder")
        ReplyPart.objects.create(reminder=reminder, position=0, text="Thank you!")
        mine = listed[n::REPLY_ACCOUNTS]
        ReminderTarget.objects.bulk_create(
            ReminderTarget(reminder=reminder, recipient=one, position=i) for i, one in enumerate(mine)
        )
        now = timezone.now()
        controls.fire(reminder, None, now)
        RunTarget.objects.filter(run__reminder=reminder).update(
            status="sent", parts_sent=1, claimed_at=now, settled_at=now
        )
        Run.objects.filter(reminder=reminder).update(status="success", finished_at=now)
        hooks.append(hook_of(account))
    return [(one.address, hooks[i % REPLY_ACCOUNTS]) for i, one in enumerate(listed)]


@contextmanager
def processes(seconds: int) -> Iterator[int]:
    """All of them; gives the web server's process id."""
    from django.conf import settings
    from django.db import connection

    url = urlsplit(settings.DATABASE_URL)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    secrets = {"SECRET_KEY": settings.SECRET_KEY, "CREDENTIAL_KEYS": ",".join(settings.CREDENTIAL_KEYS)}
    env = os.environ | secrets | {"DATABASE_URL": url, "HTTPS": "no", "ALLOW_PRIVATE_NETWORKS": "yes", "SANDBOX": "yes"}
    web = ["uvicorn", "config.asgi:application", "--port", str(PORT), "--lifespan", "off"]
    plays = [["benchmarks.webhooks", "--play", what, "--seconds", str(seconds + 600)] for what in ("fan-out", "worker")]
    started = [subprocess.Popen([sys.executable, "-m", *words], env=env, cwd=ROOT) for words in (web, *plays)]
    try:
        yield started[0].pid
    finally:
        for process in started:
            process.terminate()
            process.wait()


def fan_out(seconds: int) -> None:
    from accounts.channels import registry
    from accounts.channels.base import Outcome, Part, Sent, Transport
    from fanout.engine.clock import SystemClock
    from fanout.engine.driver import Driver
    from fanout.ops.tasks import open_ledger

    class AtOnce(Transport):
        channel = registry.channel("sandbox")

        async def check(self) -> str:
            return "ok"

        async def send(self, address: str, part: Part, message_id: str) -> Outcome:
            book.write(f"{address} {time.time()}\n")
            return Sent(message_id)

    capacity = 100 + REPLY_ACCOUNTS
    with Path(os.environ[BOOK]).open("a", buffering=1) as book:
        asyncio.run(Driver(SystemClock(), open_ledger, AtOnce, capacity=capacity, slice_seconds=seconds).run())


def worker(seconds: int) -> None:
    from fanout.inbound import worker

    worker.run(seconds, lambda: False)


# --- the provider's side ----------------------------------------------------------------------------------


async def measure(url: str, web: psutil.Process, rate: int, seconds: int, burst: int) -> None:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:
        await until_ready(session, url)
        before = sum(web.cpu_times()[:2])
        steady = await send_steadily(session, url, rate, seconds)
        report(f"{rate}/s for {seconds} s", steady)
        began = time.perf_counter()
        together = await asyncio.gather(*(send(session, url, f"burst-{n}") for n in range(burst)))
        taken = time.perf_counter() - began
        report(f"{burst} at once, {CONNECTIONS} connections, {burst / taken:,.0f}/s", list(together))
        spent = sum(web.cpu_times()[:2]) - before
        print(f"{1000 * spent / (len(steady) + burst):.2f} ms of the web server's CPU each")  # noqa: T201
    await asyncio.to_thread(count, len(steady) + burst)


async def until_ready(session: aiohttp.ClientSession, url: str) -> None:
    for _ in range(300):
        try:
            async with session.get(url):
                await asyncio.sleep(5)  # the driver and the worker start, too
                return
        except aiohttp.ClientError:
            await asyncio.sleep(0.2)
    raise SystemExit("the web server did not start")


async def send_steadily(session: aiohttp.ClientSession, url: str, rate: int, seconds: int) -> list[float]:
    began, tasks = time.perf_counter(), []
    for n in range(rate * seconds):
        due = began + n / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(send(session, url, f"steady-{n}", due)))
    return list(await asyncio.gather(*tasks))


async def send(session: aiohttp.ClientSession, url: str, key: str, due: float | None = None) -> float:
    """Milliseconds until the answer, from the moment at which it was due."""
    due = due or time.perf_counter()
    event = {"id": key, "kind": "delivered", "at": time.time(), "message_id": f"crier-{hash(key) % 40_000 + 1}-0"}
    await post(session, url, event)
    return 1000 * (time.perf_counter() - due)


async def post(session: aiohttp.ClientSession, url: str, event: dict[str, Any]) -> None:
    """Until it is taken."""
    from accounts.channels.sandbox.webhook import SIGNATURE_HEADER, signature

    body = json.dumps({"events": [event]}).encode()
    while not await taken(session, url, body, {SIGNATURE_HEADER: signature(KEY, body)}):
        pass


async def taken(session: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str]) -> bool:
    """False: the connection was closed just then because it had been idle, and a provider would try again."""
    try:
        async with session.post(url, data=body, headers=headers) as response:
            assert response.status == 200, response.status
    except aiohttp.ServerDisconnectedError:
        return False
    return True


async def measure_replies(people: list[tuple[str, str]], rate: int) -> None:
    """`rate` in a second; 0: all at once."""
    stored_at: dict[str, float] = {}
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def reply(address: str, url: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            event = {"id": f"reply {address}", "kind": "reply", "at": time.time(), "from": address, "text": "yes"}
            await post(session, url, event)
            stored_at[address] = time.time()

        later = (n / rate if rate else 0.0 for n in range(len(people)))
        await asyncio.gather(*(reply(*one, seconds) for one, seconds in zip(people, later)))
    called_at = await asyncio.to_thread(called, set(stored_at))
    waits = [1000 * (called_at[address] - stored_at[address]) for address in called_at]
    what = f"{rate} replies/s" if rate else f"{len(people)} replies at once"
    report(f"{what}, stored → the provider called for Message 2", waits)
    print(f"{len(people)} replied, {len(called_at)} got Message 2")  # noqa: T201


def called(wanted: set[str]) -> dict[str, float]:
    """When the provider was called for each of them, once all have been or nobody waits any longer."""
    ends = time.perf_counter() + PATIENCE
    while True:
        lines = (line.split() for line in Path(os.environ[BOOK]).read_text().splitlines())
        found = {address: float(at) for address, at in lines if address in wanted}
        if len(found) == len(wanted) or time.perf_counter() > ends:
            return found
        time.sleep(0.5)


def report(what: str, times: list[float]) -> None:
    times = sorted(times)
    p50, p99 = (times[int(len(times) * share)] for share in (0.5, 0.99))
    print(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {times[-1]:.1f} ms")  # noqa: T201


def count(sent: int) -> None:
    from fanout.models import InboundEvent, Run

    stored = InboundEvent.objects.count()
    print(f"{sent} sent, {stored} stored, {sent - stored} lost")  # noqa: T201
    waited = time.perf_counter()
    while InboundEvent.objects.filter(state="new", attempts=0).exists() and time.perf_counter() - waited < 60:
        time.sleep(0.1)
    print(f"all looked at {time.perf_counter() - waited:.1f} s later")  # noqa: T201
    print(f"{sum(Run.objects.values_list('sent', flat=True))} messages were sent beside it")  # noqa: T201


if __name__ == "__main__":
    main()
