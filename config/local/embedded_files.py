"""File paths of the embedded PostgreSQL, the two file locks that its processes share, and private logs."""

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
    """Paths derived from the checkout's `var`, so that all its processes agree."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "postgres"

    @property
    def new_data(self) -> Path:
        """Return the directory in which initdb works; it is renamed to `data` when it has finished."""
        return self.root / "postgres.new"

    @property
    def users(self) -> Path:
        """Return the file that every process using the server locks, shared, while it lives."""
        return self.root / "postgres.users"

    @property
    def keeper(self) -> Path:
        """Return the file that the one process running the server locks exclusively."""
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
    """Open a lock file. The lock ends with the last process that has a copy of the descriptor."""
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
    """Return whether this kind of lock is free right now."""
    fd = open_lock(path)
    try:
        return try_lock(fd, kind)
    finally:
        os.close(fd)


def open_private(path: str, flags: int) -> int:
    """Open a log for this user only: it holds shortened addresses, and values of statements."""
    handle = os.open(path, flags, 0o600)
    os.fchmod(handle, 0o600)  # one of an earlier version is open to all
    return handle
