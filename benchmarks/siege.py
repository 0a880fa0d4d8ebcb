"""Sending and pages while others are hostile, in one run on loopback: first calm, then besieged.

    python -m benchmarks.siege [--seconds 40] [--connections 300] [--silent 40] [--media-mb 4] [--json FILE]

A real web server, both clusters and the sandbox provider. In each phase one operator fires runs on four accounts and
looks at pages.
Then another operator and strangers besiege them (`benchmarks.besiegers`): connections with slow headers, slow bodies
and readers that stop reading a file, hostile texts in every form and as replies, and accounts on a server that accepts
and never answers.

Prints for both phases: sends per second of the first operator by the provider's book, the pages' 95th percentile, how
long a STOP takes, and the web server's memory. At the end everything that was recorded as sent must be in the book,
once. Ends with 1 where something was lost or doubled, sending fell below 95 % of calm, or the pages' 95th percentile
reached a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import django
import psutil

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

SENDERS, PER_MINUTE = 4, 60
KEY = "siege"
#: people who look at pages at the same time, and the seconds between two pages of one of them
READERS, BETWEEN_PAGES = 3, 0.3
STOPS = 3
#: messages through each account before the first phase, to see that everything runs
WARM_UP = 5
LONGEST_STOP = 60.0
START_PATIENCE = 120.0
SETTLE_PATIENCE = 60.0
KEPT, SLOWEST_PAGE = 0.95, 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=40, help="of each phase [40]")
    parser.add_argument("--connections", type=int, default=300, help="hostile ones [300]")
    parser.add_argument("--silent", type=int, default=40, help="accounts on a server that never answers [40]")
    parser.add_argument("--media-mb", type=int, default=4, help="file that readers stop reading [4]")
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    from django.core.management import call_command

    from benchmarks.scratch import scratch_database
    from tests.crier_processes import Web, clusters
    from tests.sandbox_server import SandboxServer

    with (
        scratch_database(),
        tempfile.TemporaryDirectory() as folder,
        SandboxServer(Path(folder), script={"*": {"latency_ms": [20, 80]}}) as sandbox,
    ):
        call_command("collectstatic", interactive=False, verbosity=0)
        scene = Scene(sandbox.url)
        with Web(Path(folder)) as web, clusters(Path(folder), "main", "drivers"):
            siege = Siege(options, scene, sandbox, web)
            try:
                return asyncio.run(siege.lay())
            finally:
                scene.remove_files()


# --- the two operators ------------------------------------------------------------------------------------


class Scene:
    """Mei, who sends and looks at pages, and Eve, who is hostile. Both are operators without a common team."""

    def __init__(self, provider: str) -> None:
        self.mei, self.eve = (_operator(name) for name in ("mei", "eve"))
        self.accounts = [_account(self.mei, f"v{n}", provider) for n in range(SENDERS)]
        self.runs: list[Any] = []
        self.fire(WARM_UP)
        self.hostile_account = _account(self.eve, "eve", provider)
        self.cookies = {user.username: _session(user) for user in (self.mei, self.eve)}
        self.stopped = 0
        self.files: list[Any] = []

    def fire(self, targets: int) -> None:
        """Fire a run on each of Mei's accounts, to recipients that no other run has."""
        from django.utils import timezone

        from fanout.runs import controls

        groups = _groups(self.mei, targets)
        for account in self.accounts:
            run = controls.fire(_reminder(account, groups), self.mei, timezone.now()).run
            assert run is not None
            self.runs.append(run)

    def pause(self) -> None:
        from django.utils import timezone

        from fanout.runs import controls

        for run in self.runs:
            controls.pause(run, self.mei, timezone.now())

    def pages(self) -> list[str]:
        from django.urls import reverse

        names = [
            "index",
            "fanout_run_changelist",
            "reminders_reminder_changelist",
            "accounts_account_changelist",
            "reminders_recipient_changelist",
            "reminders_reminder_add",
        ]
        run = reverse("admin:fanout_run_change", args=[self.runs[0].pk])
        return [*(reverse(f"admin:{name}") for name in names), run]

    def person(self) -> tuple[str, str]:
        """Return the address of a new recipient of Mei's, and the path of the webhook that gets their messages."""
        from reminders.models import Recipient

        self.stopped += 1
        person = Recipient.objects.create(owner=self.mei, kind="person", address=f"+4915112345{self.stopped:03d}")
        return person.address, hook(self.accounts[0])

    def has_stopped(self, address: str) -> bool:
        from reminders.models import Recipient

        return Recipient.objects.filter(address=address, status__in=Recipient.GETS_NOTHING).exists()

    def fire_silent_accounts(self, count: int, url: str) -> None:
        from django.utils import timezone

        from fanout.runs import controls

        groups = _groups(self.eve, 50)
        for n in range(count):
            account = _account(self.eve, f"silent{n}", url)
            controls.fire(_reminder(account, groups), self.eve, timezone.now())

    def file(self, megabytes: int) -> str:
        """Return the path of a file of Eve's."""
        from django.core.files.base import ContentFile
        from django.urls import reverse

        from reminders.models import MediaFile

        content = ContentFile(os.urandom(megabytes * 1024 * 1024), "siege.bin")
        media = MediaFile.objects.create(
            owner=self.eve, file=content, filename="siege.bin", mime="application/octet-stream"
        )
        self.files.append(media)
        return reverse("admin:media_file", args=[media.pk])

    def remove_files(self) -> None:
        for media in self.files:
            media.file.delete(save=False)

    def settle(self) -> dict[str, list[tuple[str, str]]]:
        """Wait for what Mei's runs have in flight, and return the (account, address) pairs by status."""
        from fanout.models import RunTarget

        mine = RunTarget.objects.filter(run__in=self.runs)
        ends = time.monotonic() + SETTLE_PATIENCE
        while mine.filter(status="sending").exists() and time.monotonic() < ends:
            time.sleep(0.2)
        rows: dict[str, list[tuple[str, str]]] = {}
        for status, account, address in mine.values_list("status", "account__address", "address"):
            rows.setdefault(status, []).append((account, address))
        return rows


def hook(account: Any) -> str:
    return f"/hooks/sandbox/{account.hook_token}"


def _operator(name: str) -> Any:
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group

    from accounts.access import OPERATORS

    user = get_user_model().objects.create_user(name, password="a long word of the siege", is_staff=True)
    user.groups.add(Group.objects.get(name=OPERATORS))
    return user


def _session(user: Any) -> dict[str, str]:
    from django.test import Client

    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return {"sessionid": client.cookies["sessionid"].value}


def _groups(owner: Any, count: int) -> list[Any]:
    from reminders.models import Recipient

    first = 10**12 + Recipient.objects.count()
    return Recipient.objects.bulk_create(
        Recipient(owner=owner, kind="group", address=f"{first + n}@g.us") for n in range(count)
    )


def _account(owner: Any, name: str, url: str) -> Any:
    from accounts.models import Account

    return Account.objects.create(
        owner=owner,
        label=name,
        channel="sandbox",
        address=name,
        config={"url": url},
        credentials={"key": KEY},
        max_send_per_minute=PER_MINUTE,
    )


def _reminder(account: Any, groups: list[Any]) -> Any:
    from reminders.models import Reminder, ReminderMessage, ReminderTarget

    hours = {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24}
    reminder = Reminder.objects.create(owner=account.owner, title=account.label, account=account, **hours)
    ReminderMessage.objects.create(reminder=reminder, text="A reminder")
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=group, position=n) for n, group in enumerate(groups)
    )
    return reminder


# --- the two phases ---------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What Mei's browser saw in one phase."""

    times: list[float] = field(default_factory=list)
    errors: int = 0
    stops: list[float] = field(default_factory=list)
    megabytes: float = 0.0


class Siege:
    def __init__(self, options: Any, scene: Scene, sandbox: Any, web: Any) -> None:
        self.options, self.scene, self.sandbox, self.web = options, scene, sandbox, web
        self.process = psutil.Process(web.child.pid)

    async def lay(self) -> int:
        from benchmarks.besiegers import Besiegers

        await until(self._all_sending, START_PATIENCE, "the first messages did not go out")
        calm = await self._phase("calm")
        path = await asyncio.to_thread(self.scene.file, self.options.media_mb)
        async with Besiegers(self.web.port, self.options.connections, self.scene.cookies["eve"], path) as besiegers:
            await asyncio.to_thread(self.scene.fire_silent_accounts, self.options.silent, besiegers.silent_url)
            besiegers.start(hook(self.scene.hostile_account), KEY)
            await asyncio.sleep(5)
            besieged = await self._phase("besieged")
            report({"besiegers": besiegers.figures()}, self.options.json)
        return await self._judge(calm, besieged)

    def _all_sending(self) -> bool:
        return {d.account for d in self.sandbox.book().deliveries()} >= {a.address for a in self.scene.accounts}

    async def _phase(self, name: str) -> dict[str, Any]:
        """Fire new runs, measure from then on, and print the figures."""
        seen, began, cpu = Seen(), time.time(), self._web_cpu()
        await asyncio.to_thread(self.scene.fire, PER_MINUTE * self.options.seconds // 30)
        ends = time.monotonic() + self.options.seconds
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(self.web.url, cookies=self.scene.cookies["mei"], timeout=timeout) as browser:
            stopping = asyncio.create_task(self._stops(browser, seen, ends))
            await asyncio.gather(*(self._read(browser, seen, ends, n) for n in range(READERS)))
            until_now = time.time()
            await asyncio.to_thread(self.scene.pause)
            await stopping
        times = sorted(seen.times)
        figures = {
            "phase": name,
            "sends_per_second": round(self._sent(began, until_now) / (until_now - began), 2),
            "permitted": SENDERS * PER_MINUTE / 60,
            "pages": len(times),
            "page_p50": round(times[len(times) // 2], 3),
            "page_p95": round(times[int(len(times) * 0.95)], 3),
            "page_longest": round(times[-1], 3),
            "page_errors": seen.errors,
            "stop_longest": round(max(seen.stops), 2),
            "web_cpu": round((self._web_cpu() - cpu) / (time.time() - began), 2),
            "web_mb": round(seen.megabytes),
        }
        report(figures, self.options.json)
        return figures

    def _web_cpu(self) -> float:
        return float(sum(self.process.cpu_times()[:2]))

    def _sent(self, since: float, until_then: float) -> int:
        mine = {account.address for account in self.scene.accounts}
        return sum(d.account in mine and since <= d.t < until_then for d in self.sandbox.book().deliveries())

    async def _read(self, browser: aiohttp.ClientSession, seen: Seen, ends: float, first: int) -> None:
        pages = self.scene.pages()
        number = first
        while time.monotonic() < ends:
            began = time.monotonic()
            try:
                async with browser.get(pages[number % len(pages)], allow_redirects=False) as answer:
                    await answer.read()
                    seen.errors += answer.status != 200
            except (aiohttp.ClientError, TimeoutError):
                seen.errors += 1
            seen.times.append(time.monotonic() - began)
            seen.megabytes = max(seen.megabytes, self.process.memory_info().rss / 1024 / 1024)
            number += 1
            await asyncio.sleep(BETWEEN_PAGES)

    async def _stops(self, browser: aiohttp.ClientSession, seen: Seen, ends: float) -> None:
        """Let some people opt out, one after the other."""
        from accounts.channels.sandbox.webhook import SIGNATURE_HEADER, signature

        pause = max(0.0, ends - time.monotonic()) / (STOPS + 1)
        for _ in range(STOPS):
            await asyncio.sleep(pause)
            address, path = await asyncio.to_thread(self.scene.person)
            event = {"id": f"stop {address}", "kind": "reply", "at": time.time(), "from": address, "text": "STOP"}
            body, began = json.dumps({"events": [event]}).encode(), time.monotonic()
            async with browser.post(path, data=body, headers={SIGNATURE_HEADER: signature(KEY, body)}) as answer:
                assert answer.status == 200, answer.status
            while not await asyncio.to_thread(self.scene.has_stopped, address):
                if time.monotonic() - began > LONGEST_STOP:
                    break
                await asyncio.sleep(0.1)
            seen.stops.append(time.monotonic() - began)

    async def _judge(self, calm: dict[str, Any], besieged: dict[str, Any]) -> int:
        """Compare what was recorded with the provider's book, print the verdict and return the exit code."""
        rows = await asyncio.to_thread(self.scene.settle)
        book, mine = self.sandbox.book(), {account.address for account in self.scene.accounts}
        delivered = [(d.account, d.to) for d in book.deliveries() if d.account in mine]
        recorded = rows.pop("sent", [])
        rows.pop("pending", None)
        kept = besieged["sends_per_second"] / calm["sends_per_second"]
        verdict = {
            "recorded": len(recorded),
            "lost": len(set(recorded) - set(delivered)),
            "not_recorded": len(set(delivered) - set(recorded)),
            "doubled": len(delivered) - len(set(delivered)),
            "other_outcomes": {status: len(pairs) for status, pairs in rows.items()},
            "kept_of_calm": round(kept, 3),
            "page_p95": besieged["page_p95"],
        }
        trouble = verdict["lost"] or verdict["not_recorded"] or verdict["doubled"] or rows
        met = not trouble and kept >= KEPT and besieged["page_p95"] < SLOWEST_PAGE
        report(verdict | {"goals_met": met}, self.options.json)
        return 0 if met else 1


async def until(condition: Callable[[], bool], patience: float, otherwise: str) -> None:
    ends = time.monotonic() + patience
    while not condition():
        if time.monotonic() > ends:
            raise SystemExit(otherwise)
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
