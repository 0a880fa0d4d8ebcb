"""How soon a paired WhatsApp number sends again after its bridge was killed, stopped, or hung while logging in.

    python -m benchmarks.recovery [--rounds 20] [--json FILE]

A real bridge under the parent of `manage.py up`, with a scripted WhatsApp, and a driver that sends 120 messages a
minute. `killed`: kill -9. `stopped`: SIGSTOP, as silent as an event loop that stands still. `hanging`: killed, and the
first login of the next bridge never ends. The last two mostly wait, so four sites, each with a database, a bridge and a
driver of its own, take turns; all rounds take about six minutes.

Prints in seconds, median and longest, when each step had happened after the accident: the parent noticed it, started
another bridge, that bridge listened, the number began to connect, logged in, and (by the scripted server's book) sent
its next message; and the CPU that the new bridge had used by then. At last, the messages that came twice or are called
sent and never came (0 is right), and the targets that are unconfirmed.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import django
import psutil

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

GROUPS = 1_000
PER_MINUTE = 120
PATIENCE = 120.0
CALM = 3  # messages between two accidents
#: sites that share the rounds, and the seconds between two accidents of one: their bridges start one after the other
SITES = {"killed": (1, 0.0), "stopped": (4, 20.0), "hanging": (4, 24.0)}
STEPS = ("noticed", "started", "listens", "connects", "login", "message")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    books: Counter[str] = Counter()
    for accident, (sites, _) in SITES.items():
        shares = [len(range(site, options.rounds, sites)) for site in range(sites)]
        shares = [rounds for rounds in shares if rounds]
        with ProcessPoolExecutor(len(shares), multiprocessing.get_context("spawn")) as pool:
            results = list(pool.map(play, [accident] * len(shares), shares, range(len(shares))))
        rounds = [one for measured, _ in results for one in measured]
        for _, counted in results:
            books.update(counted)
        figures = {name: spread([one[name] for one in rounds]) for name in (*STEPS, "cpu")}
        report({"after": accident, "rounds": len(rounds), **figures}, options.json)
    report(dict(books), options.json)


def play(accident: str, rounds: int, site: int) -> tuple[list[dict[str, float]], dict[str, int]]:
    """Play the rounds of one site; return what each measured, and the counts of its books."""
    django.setup()
    from benchmarks.scratch import scratch_database

    with scratch_database(), tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        try:
            scene.start()
            measured = []
            for _ in range(rounds):
                scene.calm_down()
                wait_for_turn(site, *SITES[accident])
                measured.append(scene.after(accident))
            return measured, scene.books()
        finally:
            scene.end()


def wait_for_turn(site: int, sites: int, every: float) -> None:
    if every:
        time.sleep((site * every / sites - time.time()) % every)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"median": round(ordered[len(ordered) // 2], 1), "longest": round(ordered[-1], 1)}


class Scene:
    def __init__(self, folder: Path) -> None:
        from django.conf import settings

        from accounts.channels.whatsapp.bridge.scripted import ScriptedBook
        from config.local import children
        from config.local.supervisor import Supervisor
        from tests.crier_processes import environment

        self.folder = folder
        settings.VAR_DIR, settings.WHATSAPP_SCRIPT = folder, str(folder / "script")
        (folder / "log").mkdir()
        self.book = ScriptedBook(folder / "script" / "book.jsonl")
        self.script()
        # Accidents come faster here than in life, where the next one finds a child that has run for a while.
        children.SETTLED_SECONDS = 1.0
        self.noticed = 0.0
        self.parent = Supervisor(self._notice, "127.0.0.1", 8000, sandbox=False, workers=None)
        self.parent.env |= environment() | {"WHATSAPP_SCRIPT": settings.WHATSAPP_SCRIPT}
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=work) for work in (self._watch, self._drive)]

    def script(self, **rules: Any) -> None:
        from accounts.channels.whatsapp.bridge.scripted import ScriptedRules

        (self.folder / "script").mkdir(exist_ok=True)
        ScriptedRules(self.folder / "script" / "script.json").replace({"groups": GROUPS, **rules})

    # -- the parts ----------------------------------------------------------------------------------------

    def start(self) -> None:
        run_of(paired_account(self.folder))
        self.parent._start_bridges()
        for thread in self.threads:
            thread.start()
        self.calm_down()

    def end(self) -> None:
        self.ending.set()
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()
        for child in self.parent.bridges.values():
            child.kill_all()
        self.parent.record.close()

    def _watch(self) -> None:
        """As `Supervisor.watch` does, for bridges only."""
        while not self.ending.wait(0.3):
            self.parent._restart_hung_bridges()
            for child in self.parent.bridges.values():
                self.parent._keep_alive(child)

    def _drive(self) -> None:
        from django.db import connection

        from accounts.channels.registry import transport_for
        from fanout.engine.clock import SystemClock
        from fanout.engine.driver import Driver
        from fanout.ops.tasks import open_ledger

        async def drive() -> None:
            driver = Driver(SystemClock(), open_ledger, transport_for, capacity=8, slice_seconds=7200)
            driving = asyncio.create_task(driver.run())
            await asyncio.to_thread(self.ending.wait)
            driver.stopping = True
            await driving

        asyncio.run(drive())
        connection.close()

    def _notice(self, words: str) -> None:
        self.noticed = time.time()

    # -- accidents ----------------------------------------------------------------------------------------

    def after(self, accident: str) -> dict[str, float]:
        """Cause the accident; return the seconds until each step, and the CPU that the next bridge used."""
        if accident == "hanging":
            self.script(connect={"hang": True, "times": 1})
        (child,) = self.parent.bridges.values()
        pid = child.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP if accident == "stopped" else signal.SIGKILL)
        at = time.time()
        self._wait(lambda: any(line["t"] > at for line in self.book.lines("login")[-1:]))
        login = self.book.lines("login")[-1]["t"]
        self._wait(lambda: self.book.lines()[-1]["t"] > login)
        cpu = psutil.Process(child.pid).cpu_times()
        self.script()
        moments = {
            "noticed": self.noticed,
            "started": child.started - time.monotonic() + time.time(),
            "listens": (self.folder / "whatsapp" / "bridge.url").stat().st_mtime,
            "connects": next(line["t"] for line in self.book.lines("connect") if line["t"] > at),
            "login": login,
            "message": next(line["t"] for line in self.book.lines() if line["t"] > login),
        }
        return {name: moment - at for name, moment in moments.items()} | {"cpu": cpu.user + cpu.system}

    def calm_down(self) -> None:
        seen = len(self.book.lines())
        self._wait(lambda: len(self.book.lines()) >= seen + CALM)

    def _wait(self, condition: Callable[[], object]) -> None:
        ends = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > ends:
                raise SystemExit("nothing was sent for two minutes")
            time.sleep(0.05)

    def books(self) -> dict[str, Any]:
        from fanout.models import RunTarget

        called_sent = set(RunTarget.objects.filter(status="sent").values_list("address", flat=True))
        sent = Counter(line["to"] for line in self.book.lines())
        return {
            "messages": sent.total(),
            "twice": sum(n > 1 for n in sent.values()),
            "lost": len(called_sent - sent.keys()),
            "unconfirmed": RunTarget.objects.filter(status="unconfirmed").count(),
        }


def paired_account(folder: Path) -> Any:
    """A number that was paired some time ago, so that its journal proves what happens."""
    from datetime import timedelta

    from django.contrib.auth import get_user_model
    from django.utils import timezone

    from accounts.channels.whatsapp.bridge.journal import JOURNAL_FILE, PAIRED_AS, SESSION_FILE, Journal
    from accounts.models import Account, PairedSession

    user = get_user_model().objects.create_user("benchmark")
    account = Account.objects.create(
        owner=user, label="number", channel="whatsapp", max_send_per_minute=PER_MINUTE, status="active"
    )
    own = folder / "whatsapp" / str(account.pk)
    own.mkdir(parents=True)
    (own / SESSION_FILE).write_text("number")
    journal = Journal(own / JOURNAL_FILE)
    journal.note(PAIRED_AS, f"49151{account.pk:08d}@s.whatsapp.net")
    since = timezone.now() - timedelta(days=1)
    PairedSession.objects.create(account=account, journal=journal.id(), journal_since=since, host="benchmark")
    journal.close()
    return account


def run_of(account: Any) -> None:
    from django.utils import timezone

    from accounts.channels.whatsapp.bridge.scripted import group_address
    from fanout.runs import controls
    from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget

    groups = Recipient.objects.bulk_create(
        Recipient(owner=account.owner, kind="group", address=group_address(str(account.pk), n)) for n in range(GROUPS)
    )
    window = {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24}
    reminder = Reminder.objects.create(owner=account.owner, title="benchmark", account=account, **window)
    ReminderMessage.objects.create(reminder=reminder, text="A reminder")
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=group, position=n) for n, group in enumerate(groups)
    )
    controls.fire(reminder, None, timezone.now())


if __name__ == "__main__":
    main()
