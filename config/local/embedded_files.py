"""Where the embedded PostgreSQL keeps its files, and the two locks its processes meet at."""

import fcntl
import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SOCKET_NAME = ".s.PGSQL.5432"
# sun_path holds 108 bytes on Linux and 104 on the BSDs, with the closing NUL.
LONGEST_SOCKET_PATH = 103


@dataclass(frozen=True)
class Layout:
    """Every path derives from the checkout's `var`, so all its processes agree without talking."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "postgres"

    @property
    def new_data(self) -> Path:
        """initdb works here; the rename to `data` says that it finished."""
        return self.root / "postgres.new"

    @property
    def users(self) -> Path:
        """Locked shared by every process that uses the server, for as long as it lives."""
        return self.root / "postgres.users"

    @property
    def keeper(self) -> Path:
        """Locked exclusively by the one process that runs the server."""
        return self.root / "postgres.keeper"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def socket_dir(self) -> Path:
        if len(os.fsencode(self.data / SOCKET_NAME)) <= LONGEST_SOCKET_PATH:
            return self.data
        # /tmp and not $TMPDIR: that may differ between the processes of one checkout.
        temp = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
        return temp / f"crier-{hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]}"

    @property
    def socket(self) -> Path:
        return self.socket_dir / SOCKET_NAME


def layout(root: Path) -> Layout:
    return Layout(root.resolve())


def open_lock(path: Path) -> int:
    """An own open file description: its lock ends with the last process that holds a copy of it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_lock(fd: int, kind: int, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not try_lock(fd, kind):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def could_lock(path: Path, kind: int) -> bool:
    """Whether nobody stands in the way of this kind of lock right now."""
    fd = open_lock(path)
    try:
        return try_lock(fd, kind)
    finally:
        os.close(fd)
