"""A campaign of kill -9 against real processes: drivers, whole clusters and PostgreSQL, at seeded moments.

    python -m tests.engine.chaos --kills 50 --seed 1

It has a PostgreSQL, a sandbox provider and a cluster of its own under a temporary directory, sends a run of two
parts through them, and judges by the provider's book: no part twice, nothing lost, the pace held. Prints one JSON
object and exits with 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--rate", type=int, default=900)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crier-chaos-") as folder:
        os.chmod(folder, 0o755)
        os.environ |= {
            "CRIER_VAR": folder, "DJANGO_SETTINGS_MODULE": "config.settings", "DRIVER_SLICE_SECONDS": "6",
            "BOT_FIRE_CONCURRENCY": "50", "LOG_LEVEL": "WARNING",
        }  # fmt: skip
        os.environ.pop("DATABASE_URL", None)
        import django

        django.setup()
        report = Campaign(Path(folder), given).run()
    print(json.dumps(report, indent=1))  # noqa: T201
    sys.exit(0 if not report["broken"] else 1)


class Campaign:
    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder = folder
        self.kills = given.kills
        self.rate = given.rate
        # Enough to last for all kills: about a second between two.
        self.groups = given.groups or max(60, given.kills * self.rate // 60 // 2)
        self.rng = random.Random(given.seed)
        self.killed: dict[str, int] = {}
        self.cluster: subprocess.Popen[bytes] | None = None

    def run(self) -> dict[str, Any]:
        from tests.sandbox_server import SandboxServer

        call("migrate", "-v0")
        with SandboxServer(self.folder, script={"*": {"latency_ms": [20, 120]}}) as sandbox:
            os.environ["SANDBOX_URL"] = sandbox.url
            runs = self.scene(sandbox.url)
            began = time.monotonic()
            self.start_cluster()
            try:
                self.torment()
                finished = wait(lambda: self.supervise() and all(settled(run) for run in runs))
                gaps = time.monotonic() - began
            finally:
                self.stop_cluster()
            return self.judge(runs, sandbox.book(), finished, gaps)

    def scene(self, url: str) -> list[Any]:
        from django.contrib.auth import get_user_model
        from django.utils import timezone

        from accounts.models import Account
        from fanout.runs import controls
        from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget

        user = get_user_model().objects.create_user("operator")
        runs = []
        for n in range(2):
            account = Account.objects.create(
                owner=user, label=f"account {n}", channel="sandbox", address=f"a{n}", max_send_per_minute=self.rate,
                part_jitter_min_ms=50, part_jitter_max_ms=100, config={"url": url, "recognises_repeats": False},
            )  # fmt: skip
            reminder = Reminder.objects.create(
                owner=user, title=f"chaos {n}", account=account, delivery_window_start_hour=0,
                delivery_window_end_hour=24,
            )  # fmt: skip
            for position in range(2):
                ReminderMessage.objects.create(reminder=reminder, position=position, text=f"part {position}")
            people = Recipient.objects.bulk_create(
                Recipient(owner=user, kind="group", address=f"{(n + 1) * 10**12 + i}@g.us") for i in range(self.groups)
            )
            ReminderTarget.objects.bulk_create(
                ReminderTarget(reminder=reminder, recipient=person, position=i) for i, person in enumerate(people)
            )
            runs.append(controls.fire(reminder, user, timezone.now()).run)
        return runs

    # --- killing ----------------------------------------------------------------------------------------

    def torment(self) -> None:
        wait(lambda: bool(driver_pids()))
        for _ in range(self.kills):
            time.sleep(self.rng.uniform(0.2, 1.6))
            victim = self.rng.choices(["worker", "cluster", "postgres"], [6, 2, 2])[0]
            getattr(self, f"kill_{victim}")()
            self.killed[victim] = self.killed.get(victim, 0) + 1

    def supervise(self) -> bool:
        """What `manage.py up` does: a cluster that ended is started again."""
        assert self.cluster is not None
        if self.cluster.poll() is not None:
            self.start_cluster()
        return True

    def kill_worker(self) -> None:
        pids = wait(lambda: self.supervise() and driver_pids())
        if pids:
            kill(self.rng.choice(sorted(pids)))

    def kill_cluster(self) -> None:
        assert self.cluster is not None
        self.supervise()
        tree = [self.cluster.pid, *(child.pid for child in psutil.Process(self.cluster.pid).children(recursive=True))]
        self.rng.shuffle(tree)
        for pid in tree:
            kill(pid)
        self.cluster.wait()
        self.start_cluster()

    def kill_postgres(self) -> None:
        pid = int((self.folder / "postgres" / "postmaster.pid").read_text().split()[0])
        for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            kill(process.pid)
        wait(database_answers)

    def start_cluster(self) -> None:
        log = (self.folder / "cluster.log").open("ab")
        self.cluster = subprocess.Popen(
            [sys.executable, "manage.py", "cluster", "drivers"], cwd=ROOT, stdout=log, stderr=log,
            env=os.environ | {"Q_CLUSTER_NAME": "drivers"},
        )  # fmt: skip

    def stop_cluster(self) -> None:
        self.supervise()
        assert self.cluster is not None
        children = psutil.Process(self.cluster.pid).children(recursive=True)
        for pid in [self.cluster.pid, *(child.pid for child in children)]:
            kill(pid)
        self.cluster.wait()

    # --- judging ----------------------------------------------------------------------------------------

    def judge(self, runs: list[Any], book: Any, finished: bool, seconds: float) -> dict[str, Any]:
        broken = [] if finished else ["a run did not end"]
        duplicates = book.duplicates("to", "part")
        if duplicates:
            broken.append(f"parts delivered twice: {duplicates}")
        heard = {(delivery.to, delivery.part) for delivery in book.deliveries()}
        counts: dict[str, int] = {}
        for run in runs:
            broken += judge_run(run, heard, counts)
        peaks = {f"a{n}": book.peak(f"a{n}") for n in range(len(runs))}
        if max(peaks.values(), default=0) > self.rate + 3:
            broken.append(f"more than {self.rate + 3} messages in 60 s: {peaks}")
        return {
            "broken": broken, "kills": self.killed, "targets": counts, "deliveries": len(book.deliveries()),
            "peaks": peaks, "seconds": round(seconds, 1),
        }  # fmt: skip


def judge_run(run: Any, heard: set[tuple[str, int]], counts: dict[str, int]) -> list[str]:
    broken = []
    run.refresh_from_db()
    for target in run.targets.all():
        counts[target.status] = counts.get(target.status, 0) + 1
        told = [part for part in range(2) if (target.address, part) in heard]
        if target.status == "sent" and told != [0, 1]:
            broken.append(f"{target.address} is sent, but the provider has parts {told}")
        certain = list(range(target.parts_sent))
        if target.status == "unconfirmed" and told not in (certain, [*certain, target.parts_sent]):
            broken.append(f"{target.address} is unconfirmed at part {target.parts_sent}, the provider has {told}")
        if target.status not in ("sent", "unconfirmed"):
            broken.append(f"{target.address} is {target.status}: {target.error}")
    total = run.sent + run.unconfirmed + run.failed + run.skipped + run.pending + run.sending
    if total != run.total:
        broken.append(f"the books of run {run.pk} do not balance")
    if run.pending or run.sending:
        account = run.account
        broken = [
            f"run {run.pk} is {run.status} with {run.pending} pending; account {account.status} {account.status_reason}"
        ]
    return broken


def settled(run: Any) -> bool:
    run.refresh_from_db()
    return run.pending == 0 and run.sending == 0


def driver_pids() -> set[int]:
    from datetime import timedelta

    from django.utils import timezone

    from fanout.models import Driver

    since = timezone.now() - timedelta(seconds=2)
    pids = Driver.objects.filter(beat_at__gte=since, ended_at__isnull=True).values_list("pid", flat=True)
    return {pid for pid in pids if psutil.pid_exists(pid)}


def database_answers() -> bool:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


def wait(ask: Callable[[], T]) -> T:
    """Ask until the answer is true, through restarts of the database."""
    from django.db import DatabaseError, InterfaceError, connection

    until = time.monotonic() + PATIENCE
    answer: Any = False
    while time.monotonic() < until:
        try:
            answer = ask()
        except (DatabaseError, InterfaceError):
            connection.close()
            answer = False
        if answer:
            break
        time.sleep(0.1)
    return answer


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def call(*command: str) -> None:
    subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, check=True, env=os.environ)


if __name__ == "__main__":
    main()
