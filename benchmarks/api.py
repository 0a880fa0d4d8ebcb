"""How fast the HTTP API reads over a full database, and how many single messages it takes beside a fan-out.

    python -m benchmarks.api [--targets 2000000] [--runs 20000] [--rounds 60]      reads
    python -m benchmarks.api --messages [--rate 200] [--seconds 20] [--clients 40] [--web 2]

Reads: fills a scratch database as `benchmarks.admin_pages` does and asks a real uvicorn for every list, with each
filter and deep cursors, one call after the other. Prints the median and the 95th percentile, the number of queries and
the CPU time of web server and PostgreSQL of each; the goal is 50 ms.

Messages: real uvicorn processes, the cluster `main`, and a driver with 100 accounts at 40 messages a minute. First the
fan-out alone, then `--rate` messages a second for 20 further accounts, each timed from the moment at which it was due.
Prints percentiles, CPU per message, what the fan-out achieved of its pace in both phases by the provider's notes, and
whether every accepted message reached the provider once. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import django
import psutil

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

ROOT = Path(__file__).resolve().parent.parent
GOAL_MS = 50.0
ACCOUNTS = 6_000
#: accounts of the fan-out with their pace, and those that single messages go through
FAN_OUT, PER_MINUTE, SENDERS = 100, 40, 20
#: share of its pace that the fan-out keeps, and the slowest answer to a message
KEPT, GOAL_ACCEPTED_MS = 0.95, 1000.0
SETTLE_PATIENCE = 300.0
CALLS = {"API_CALLS_PER_MINUTE": "1000000"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=60, help="calls of each kind [60]")
    parser.add_argument("--messages", action="store_true", help="measure single messages instead of reads")
    parser.add_argument("--rate", type=int, default=200, help="messages a second [200]")
    parser.add_argument("--seconds", type=int, default=20, help="of each phase [20]")
    parser.add_argument("--clients", type=int, default=40, help="connections that hand messages in [40]")
    parser.add_argument("--web", type=int, default=2, help="web server processes [2]")
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    from benchmarks.scratch import scratch_database

    with scratch_database(), tempfile.TemporaryDirectory() as folder:
        return (messages if options.messages else reads)(options, Path(folder))


def a_token(user: Any) -> str:
    from django.utils import timezone

    from accounts import tokens
    from accounts.models import ApiToken

    now = timezone.now()
    return tokens.issue(user, "benchmark", list(ApiToken.Scope.values), None, now + timedelta(days=1), now)[1]


def load() -> float:
    """Programs that wanted a core in the last minute: others share the machine."""
    return round(os.getloadavg()[0], 1)


# --- reads ------------------------------------------------------------------------------------------------


def reads(options: Any, folder: Path) -> int:
    from benchmarks.admin_pages import fill, plain_static_files
    from tests.crier_processes import Web

    plain_static_files()
    people = fill(options.runs, options.targets // options.runs, ACCOUNTS)
    token = a_token(people["operator"])
    missed = 0
    with Web(folder, **CALLS) as web:
        process = psutil.Process(web.child.pid)
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
        for name, path in calls().items():
            figures = measure(connection, process, path, token, options.rounds)
            late = figures["p95_ms"] > GOAL_MS
            missed += late
            report({"read": name, **figures, "load": load(), "goal_met": not late}, options.json)
    return int(missed > 0)


def calls() -> dict[str, str]:
    """By name: each list with its filters, the first and a deep page, and single things."""
    from django.db.models import Max

    from fanout.api.conventions import write_cursor
    from fanout.models import InboundEvent, Run, RunTarget
    from reminders.models import Recipient, Reminder

    big, largest = Run.objects.order_by("-total").values_list("pk", "total")[0]
    partial, running = (
        Run.objects.filter(status=one).values_list("pk", flat=True)[0] for one in ("partial", "running")
    )
    run = Run.objects.get(pk=partial)
    deep = RunTarget.objects.filter(run=big).order_by("-position").values_list("position", "pk")[largest // 10]
    address, person = RunTarget.objects.filter(run=partial).values_list("address", "recipient")[0]
    last = RunTarget.objects.filter(run=big).order_by("-position").values_list("recipient", flat=True)[0]

    def middle(model: Any) -> str:
        return write_cursor([model.objects.aggregate(last=Max("pk"))["last"] // 3])

    def asked(path: str, **words: Any) -> str:
        return f"{path}?{urlencode(words, doseq=True)}"

    days = {"since": str(run.scheduled_for.date()), "until": str((run.scheduled_for + timedelta(days=30)).date())}
    return {
        "runs": "/runs",
        "runs, deep": asked("/runs", cursor=middle(Run)),
        "runs, 200": asked("/runs", limit=200),
        "runs, paused": asked("/runs", status="paused"),
        "runs, partial": asked("/runs", status="partial"),
        "runs, partial, deep": asked("/runs", status="partial", cursor=middle(Run)),
        "runs, a status that none has": asked("/runs", status="canceled"),
        "runs, archived": asked("/runs", archived="true"),
        "runs, live": asked("/runs", live="true"),
        "runs, one account": asked("/runs", account=run.account_id),
        "runs, one reminder": asked("/runs", reminder=run.reminder_id),
        "run": f"/runs/{running}",
        "run, the largest": f"/runs/{big}",
        "run, why": f"/runs/{running}/why",
        "run, forecast": f"/runs/{running}/forecast",
        "run, timeline": f"/runs/{big}/timeline",
        "targets": f"/runs/{partial}/targets",
        "targets, the largest run": f"/runs/{big}/targets",
        "targets, deep": asked(f"/runs/{big}/targets", cursor=write_cursor(deep)),
        "targets, sent": asked(f"/runs/{big}/targets", status="sent"),
        "targets, pending, deep": asked(f"/runs/{big}/targets", status="pending", cursor=write_cursor(deep)),
        "targets, failed": asked(f"/runs/{partial}/targets", status="failed"),
        "replies": "/replies",
        "replies, deep": asked("/replies", cursor=middle(InboundEvent)),
        "replies, the largest run": asked("/replies", run=big),
        "replies, one run": asked("/replies", run=partial),
        "replies, one account": asked("/replies", account=run.account_id),
        "replies, one address": asked("/replies", address=address),
        "recipients": "/recipients",
        "recipients, deep": asked("/recipients", cursor=middle(Recipient)),
        "recipients, a tag": asked("/recipients", tag="tag 7"),
        "recipients, a tag that none has": asked("/recipients", tag="none"),
        "recipients, one address": asked("/recipients", address=address),
        "recipient": f"/recipients/{person}",
        "recipient, timeline": f"/recipients/{last}/timeline",
        "recipient, timeline of 20,000 messages": f"/recipients/{person}/timeline",
        "statistics, 7 days": "/statistics/days",
        "statistics, 31 days": asked("/statistics/days", **days),
        "statistics, one account": asked("/statistics/days", account=run.account_id),
        "reminders": "/reminders",
        "reminders, deep": asked("/reminders", cursor=middle(Reminder)),
        "reminder": f"/reminders/{run.reminder_id}",
        "reminder, preview": f"/reminders/{run.reminder_id}/preview",
        "reminder, forecast": f"/reminders/{run.reminder_id}/forecast",
        "accounts": "/accounts",
        "account, health": f"/accounts/{run.account_id}/health",
        "media": "/media",
        "messages": "/messages",
    }


def measure(
    connection: http.client.HTTPConnection, web: psutil.Process, path: str, token: str, rounds: int
) -> dict[str, Any]:
    from benchmarks.accounts import postgres_cpu

    ask(connection, path, token)  # plans and caches of the process
    times, python, database = [], cpu_of([web]), postgres_cpu()
    for _ in range(rounds):
        began = time.perf_counter()
        ask(connection, path, token)
        times.append((time.perf_counter() - began) * 1000)
    return {
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
        "web_cpu_ms": round(1000 * (cpu_of([web]) - python) / rounds, 1),
        "postgres_cpu_ms": round(1000 * (postgres_cpu() - database) / rounds, 1),
        "queries": queries_of(path, token),
    }


def ask(connection: http.client.HTTPConnection, path: str, token: str) -> None:
    connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{path} answered {answer.status}: {body[:300].decode()}")


def queries_of(path: str, token: str) -> int:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        Client().get(f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    return len(captured)


def cpu_of(processes: list[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


# --- single messages --------------------------------------------------------------------------------------


def messages(options: Any, folder: Path) -> int:
    from benchmarks.scratch import fire_everywhere
    from benchmarks.webhooks import BOOK
    from tests.crier_processes import Web, clusters

    book = folder / "book"
    book.touch()
    fire_everywhere(FAN_OUT, PER_MINUTE * (4 * options.seconds + 60) // 60, concurrency=3, per_minute=PER_MINUTE)
    scene = Scene()
    with ExitStack() as stack:
        webs = [stack.enter_context(Web(folder / f"web{n}", **CALLS)) for n in range(options.web)]
        stack.enter_context(clusters(folder, "main"))
        stack.enter_context(driver({BOOK: str(book)}, 4 * options.seconds + int(SETTLE_PATIENCE)))
        figures = asyncio.run(Trial(options, scene, webs, book).run())
    report(figures, options.json)
    return 0 if figures["goals_met"] else 1


class Scene:
    """The accounts that single messages go through, and the token."""

    def __init__(self) -> None:
        from django.contrib.auth import get_user_model
        from django.contrib.auth.models import Group

        from accounts.access import OPERATORS
        from accounts.models import Account

        user = get_user_model().objects.create_user("program", is_staff=True)
        user.groups.add(Group.objects.get(name=OPERATORS))
        self.accounts = [
            Account.objects.create(
                owner=user, label=f"messages {n}", channel="sandbox", address=f"m{n}", max_send_per_minute=0
            ).pk
            for n in range(SENDERS)
        ]
        self.token = a_token(user)


@contextmanager
def driver(variables: dict[str, str], seconds: int) -> Iterator[None]:
    """The fan-out of `benchmarks.webhooks`: a driver whose provider answers at once and notes each call."""
    from tests.crier_processes import environment

    words = ["-m", "benchmarks.webhooks", "--play", "fan-out", "--seconds", str(seconds)]
    process = subprocess.Popen([sys.executable, *words], env=environment() | variables, cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Trial:
    def __init__(self, options: Any, scene: Scene, webs: list[Any], book: Path) -> None:
        self.options, self.scene, self.book = options, scene, book
        self.urls = [web.url for web in webs]
        self.processes = [psutil.Process(web.child.pid) for web in webs]
        self.refused: Counter[int] = Counter()
        self.repeated = 0

    async def run(self) -> dict[str, Any]:
        from benchmarks.accounts import postgres_cpu

        await self._warm_up()
        calm = await self._phase(asyncio.sleep(self.options.seconds))
        python, database = cpu_of(self.processes), await asyncio.to_thread(postgres_cpu)
        times: list[float] = []
        beside = await self._phase(self._hand_in(times))
        python, database = cpu_of(self.processes) - python, await asyncio.to_thread(postgres_cpu) - database
        reached, settled = await asyncio.to_thread(self._settle, len(times))
        times.sort()
        p95 = times[int(len(times) * 0.95)]
        doubled = sum(reached.values()) - len(reached)
        kept = beside / calm if calm else 0.0
        whole = not self.refused and len(reached) == len(times) and not doubled
        return {
            "messages_per_second": self.options.rate,
            "accepted": len(times),
            "refused": dict(self.refused),
            "repeated_calls": self.repeated,
            "p50_ms": round(times[len(times) // 2], 1),
            "p95_ms": round(p95, 1),
            "longest_ms": round(times[-1], 1),
            "web_cpu_ms_each": round(1000 * python / len(times), 2),
            "postgres_cpu_ms_each": round(1000 * database / len(times), 2),
            "fan_out_calm_per_second": round(calm, 1),
            "fan_out_beside_per_second": round(beside, 1),
            "fan_out_permitted_per_second": round(FAN_OUT * PER_MINUTE / 60, 1),
            "reached_the_provider": len(reached),
            "doubled": doubled,
            "all_sent_after_s": round(settled, 1),
            "load": load(),
            "goals_met": whole and kept >= KEPT and p95 < GOAL_ACCEPTED_MS,
        }

    async def _warm_up(self) -> None:
        """Wait for the fan-out's first calls, and make one call to each web process."""
        ends = time.monotonic() + 120
        while not self._called("@g.us"):
            if time.monotonic() > ends:
                raise SystemExit("the fan-out did not start")
            await asyncio.sleep(0.5)
        async with aiohttp.ClientSession(headers=self._headers()) as session:
            for url in self.urls:
                async with session.get(f"{url}/api/v1/messages") as answer:
                    answer.raise_for_status()
        await asyncio.sleep(5)  # the first burst of each account

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.scene.token}"}

    async def _phase(self, work: Any) -> float:
        """Do the work; return the fan-out's calls per second meanwhile."""
        began, before = time.monotonic(), len(self._called("@g.us"))
        await work
        return (len(self._called("@g.us")) - before) / (time.monotonic() - began)

    def _called(self, part: str) -> list[str]:
        return [words[0] for line in self.book.read_text().splitlines() if part in (words := line.split(" "))[0]]

    async def _hand_in(self, times: list[float]) -> None:
        count, began, waiting = self.options.rate * self.options.seconds, time.perf_counter(), asyncio.Queue[int]()
        each = aiohttp.TCPConnector(limit=self.options.clients)
        async with aiohttp.ClientSession(headers=self._headers(), connector=each) as session:

            async def client() -> None:
                while (number := await waiting.get()) >= 0:
                    await self._message(session, number)
                    times.append(1000 * (time.perf_counter() - began - number / self.options.rate))

            clients = [asyncio.create_task(client()) for _ in range(self.options.clients)]
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / self.options.rate - time.perf_counter()))
                waiting.put_nowait(number)
            for _ in clients:
                waiting.put_nowait(-1)
            await asyncio.gather(*clients)

    async def _message(self, session: aiohttp.ClientSession, number: int) -> None:
        wish = {
            "account": self.scene.accounts[number % SENDERS],
            "address": f"+49151{number:08d}",
            "text": f"Your visit is at {number}.",
        }
        url = f"{self.urls[number % len(self.urls)]}/api/v1/messages"
        while True:
            try:
                async with session.post(url, json=wish, headers={"Idempotency-Key": f"visit-{number}"}) as answer:
                    await answer.read()
                    if answer.status != 202:
                        self.refused[answer.status] += 1
                    return
            except aiohttp.ClientConnectionError:
                self.repeated += 1  # an idle connection was closed just then: the key makes a second call harmless

    def _settle(self, count: int) -> tuple[Counter[str], float]:
        """Wait until every accepted message was sent; return how often each person was called for, and the wait."""
        began = time.monotonic()
        wanted = count - sum(self.refused.values())
        while len(found := self._called("+49151")) < wanted and time.monotonic() - began < SETTLE_PATIENCE:
            time.sleep(0.5)
        return Counter(found), time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
