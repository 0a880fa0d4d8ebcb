"""A supervised process: start, log, restart with growing patience, and an end that leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from config.local.embedded_files import open_private

PR_SET_PDEATHSIG = 1
ENDS_WITH_PARENT = sys.platform.startswith("linux")
MOST_LOG_BYTES = 10 * 1024 * 1024
LONGEST_BACKOFF = 30.0
# A child that lived this long starts with a clean record.
SETTLED_SECONDS = 60.0


@dataclass
class Child:
    name: str
    command: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    # Whether the kernel ends it when we are killed -9.
    ends_with_us: bool = True
    # A file that it touches while it works; None: it has no such sign of life.
    beat: Path | None = None
    # Seconds until its first restart after a while.
    first_delay: float = 1.0

    process: psutil.Process | None = None
    popen: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    restart_at: float | None = None
    beat_stamp: int = 0
    beat_noticed: float = 0.0

    def start(self) -> None:
        rotate(self.log)
        stamp = self._stamp()
        with open(self.log, "ab", opener=open_private) as log:
            self.popen = subprocess.Popen(
                self.command,
                env=os.environ | self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: Ctrl-C in the terminal reaches only us, and orphans can be found.
                start_new_session=True,
                preexec_fn=end_with_parent(signal.SIGTERM) if self.ends_with_us else None,
            )
        self.process = psutil.Process(self.popen.pid)
        self.started = time.monotonic()
        self.restart_at = None
        self.beat_stamp = stamp  # of the one before: no sign of life of this one

    def adopt(self, process: psutil.Process) -> None:
        self.process = process
        self.started = time.monotonic()

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def alive(self) -> bool:
        if self.popen is not None:
            return self.popen.poll() is None
        return self.process is not None and is_alive(self.process)

    def silent_for(self) -> float:
        """Return the seconds since its last heartbeat or start, by a monotonic clock: the wall clock may be set."""
        stamp = self._stamp()
        if stamp != self.beat_stamp:
            self.beat_stamp, self.beat_noticed = stamp, time.monotonic()
        return time.monotonic() - max(self.beat_noticed, self.started)

    def _stamp(self) -> int:
        with suppress(OSError):
            return self.beat.stat().st_mtime_ns if self.beat else self.beat_stamp
        return self.beat_stamp  # there is none, or it cannot be read: no news

    def has_beaten(self) -> bool:
        """Return whether it has written a heartbeat since its start."""
        return self.beat_noticed > self.started

    @property
    def code(self) -> int | None:
        return self.popen.returncode if self.popen else None

    def plan_restart(self) -> float:
        """Schedule a restart after 1, 2, 4 … 30 s; a child that ran for a while starts at 1 again. Return the delay."""
        self.failures = 1 if self.age > SETTLED_SECONDS else self.failures + 1
        delay = min(2.0 ** (self.failures - 1), LONGEST_BACKOFF) if self.failures > 1 else self.first_delay
        self.restart_at = time.monotonic() + delay
        return delay

    def ask_to_end(self) -> None:
        """Signal its main process only: a cluster whose workers get the signal too hangs."""
        if self.process is not None:
            with suppress(psutil.NoSuchProcess):
                self.process.send_signal(signal.SIGTERM)

    def kill_all(self) -> None:
        """Kill everything that is left of it, including orphans."""
        if self.pid is not None:
            kill_session(self.pid)
        if self.popen is not None:
            self.popen.wait()

    def tail(self, lines: int = 5) -> str:
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace")[-4000:].splitlines()[-lines:])
        return ""


def end(children: Iterable[Child], patience: float) -> None:
    """Ask all to end, wait for all, then kill what is left."""
    asked = list(children)
    for child in asked:
        child.ask_to_end()
    wait_until(lambda: not any(child.alive() for child in asked), patience)
    for child in asked:
        child.kill_all()


def wait_until(condition: Callable[[], bool], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def is_alive(process: psutil.Process) -> bool:
    try:
        # is_running also compares the creation time: a pid that went to another process is not ours.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def session_members(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def kill_session(session: int) -> None:
    wait_until(lambda: not _kill_members(session), patience=5)


def _kill_members(session: int) -> bool:
    """Kill the members; return whether there were any. It is called again, because one may fork meanwhile.

    Zombies do not count. Do not wait here: psutil would take the exit code from Popen.
    """
    members = list(session_members(session))
    for process in members:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return bool(members)


def rotate(log: Path) -> None:
    """Move a log that is too large to `….log.1`, also while a process writes to it.

    The process keeps its file open, so the content is copied and the file emptied. It appends, so it goes on at the
    beginning. What it writes between the two steps is lost: a line or two in ten megabytes.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if log.stat().st_size > MOST_LOG_BYTES:
            with open(log, "rb") as full, open(log.with_name(f"{log.name}.1"), "wb", opener=open_private) as kept:
                shutil.copyfileobj(full, kept)
            os.truncate(log, 0)


def end_with_parent(sign: signal.Signals) -> Callable[[], None] | None:
    """Return a `preexec_fn` that has the kernel send this signal to the child when its parent is killed -9. None: the
    system has no such feature."""
    if not ENDS_WITH_PARENT:
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, sign)
