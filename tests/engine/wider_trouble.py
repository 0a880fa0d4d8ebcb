"""Trouble for the campaign in which everything goes wrong at once: disks that are really full, and processes that stand
still.

The databases and the claim journal each have a small file system of their own (tmpfs, so it needs root). Filled up, it
answers with ENOSPC: PostgreSQL then refuses rows, or stops when it cannot extend its log; a driver cannot note claims.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.engine.trouble import Trouble

DATABASE_SIZE, JOURNAL_SIZE = "500m", "48m"
BALLAST = "ballast"


class Disks:
    """Small disks below a folder, for the two servers and the claim journal of the data directory `data_directory`."""

    def __init__(self, folder: Path) -> None:
        self.data_directory = folder / "var"
        self.sizes = {
            folder / "leader": DATABASE_SIZE,
            folder / "standby": DATABASE_SIZE,
            self.data_directory / "claims": JOURNAL_SIZE,
        }

    def __enter__(self) -> Self:
        for place, size in self.sizes.items():
            place.mkdir(parents=True)
            mode = "0700" if size == JOURNAL_SIZE else "0755"
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode={mode}", "tmpfs", place], check=True)
        return self

    def __exit__(self, *exc: object) -> None:
        for place in self.sizes:
            subprocess.run(["umount", "--lazy", place], check=True)


def cannot_mount() -> str:
    """Return why small disks cannot be made here; empty if they can."""
    if os.geteuid() == 0 and shutil.which("unshare"):
        command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return ""
    return "small disks need the right to mount them"


def fill(disk: Path) -> None:
    """Write until there is no room for another byte."""
    file = os.open(disk / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while os.write(file, bytes(size)) == size:
                    pass
    finally:
        os.close(file)


def make_room(disk: Path) -> None:
    (disk / BALLAST).unlink(missing_ok=True)


class WiderTrouble(Trouble):
    """`processes` returns those that may be stopped, by what they are."""

    kinds = ("stuck_client", "stuck_client", "full_disk", "stopped_process", "stopped_process", "stopped_provider")

    def __init__(
        self,
        rng: Any,
        user: Any,
        disks: list[Path],
        provider: int,
        processes: Callable[[], dict[str, list[psutil.Process]]],
    ) -> None:
        super().__init__(rng, [], user)
        self.disks = disks
        self.full: dict[Path, float] = {}
        self.provider = psutil.Process(provider)
        self.processes = processes
        self.stopped: list[tuple[float, psutil.Process]] = []

    def stuck_client(self) -> None:
        from fanout.models import Run

        self.runs = list(Run.objects.filter(finished_at=None, pending__gt=0))
        if self.runs:
            super().stuck_client()

    def full_disk(self) -> None:
        disk = self.rng.choice([disk for disk in self.disks if disk not in self.full] or [None])
        if disk is not None:
            fill(disk)
            self.full[disk] = time.monotonic() + self.rng.uniform(2, 8)
            self.seen[f"full_disk: {disk.name}"] += 1

    def stopped_process(self) -> None:
        candidates = self.processes()
        if not candidates:
            return
        what = self.rng.choice(sorted(candidates))
        self._stop(self.rng.choice(candidates[what]), self.rng.uniform(2, 15))
        self.seen[f"stopped_process: {what}"] += 1

    def stopped_provider(self) -> None:
        """The provider accepts connections and does not answer; half of the time for longer than drivers wait."""
        if self.provider not in [process for _, process in self.stopped]:
            self._stop(self.provider, self.rng.uniform(2, 20))

    def _stop(self, process: psutil.Process, seconds: float) -> None:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
            self.stopped.append((time.monotonic() + seconds, process))

    def end_due(self, everything: bool = False) -> bool:
        now = time.monotonic()
        for disk in [disk for disk, until in self.full.items() if everything or now >= until]:
            make_room(disk)
            del self.full[disk]
        for until, process in self.stopped:
            if everything or now >= until:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)
        self.stopped = [one for one in self.stopped if not everything and one[0] > now]
        return super().end_due(everything) and not self.full and not self.stopped
