"""PostgreSQL 18 inside the checkout, used when DATABASE_URL is not set.

Every process that uses the server holds a shared lock on `postgres.users`, which the kernel drops however the process
ends. A keeper process (`config.local.embedded_keeper`) runs the server, restarts it when it dies, and stops it once the
lock is free. Only the wheel's binaries are used: its own server class keeps a list of pids, wrong after kill -9.
"""

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import errors

from config.local.embedded_files import Layout, could_lock, layout, open_lock, open_private, try_lock, wait_lock

DATABASE = "crier"
# Long enough for crash recovery after a kill -9 in the middle of a large run.
START_TIMEOUT = 120.0
# A keeper tries the server several times itself before it gives up.
MOST_KEEPERS = 2
LAUNCHED = 0
FULL = os.strerror(errno.ENOSPC)

_users_fd: dict[Path, int] = {}


class EmbeddedError(Exception):
    """The embedded server cannot be used; the message says why."""


def ensure_running(root: Path) -> str:
    """Start or join the server, keep it up while this process lives, and return its URL."""
    paths = layout(root)
    paths.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _register(paths)
    _await_server(paths)
    return url(paths)


def is_kept(root: Path) -> bool:
    """Return whether there is a keeper; without one the server is gone or about to end."""
    return _keeper_alive(layout(root))


def stop_and_wait(root: Path, timeout: float = 20.0) -> bool:
    """Stop using the server; return True when it is gone, False when others still use it or time is up."""
    paths = layout(root)
    fd = _users_fd.pop(paths.root, None)
    if fd is not None:
        # Closing and not unlocking: forked children share the lock and may still need it.
        os.close(fd)
    deadline = time.monotonic() + timeout
    seen_others = 0
    while _keeper_alive(paths) and time.monotonic() < deadline:
        seen_others = seen_others + 1 if _has_users(paths) else 0
        # The keeper's own look at the lock can pass for a user, but not three times running.
        if seen_others == 3:
            return False
        time.sleep(0.1)
    return not _keeper_alive(paths)


def url(paths: Layout, database: str = DATABASE) -> str:
    return f"postgresql://postgres@/{database}?host={quote(str(paths.socket_dir), safe='')}"


def _register(paths: Layout) -> None:
    if paths.root in _users_fd:
        return
    fd = open_lock(paths.users)
    # A keeper that is stopping the server holds the lock until it is done; then a new one starts.
    if not wait_lock(fd, fcntl.LOCK_SH, START_TIMEOUT):
        os.close(fd)
        raise _error(paths, "The embedded PostgreSQL is stuck while stopping.")
    _users_fd[paths.root] = fd


def _await_server(paths: Layout) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    keepers = 0
    while not _answers(paths):
        if time.monotonic() > deadline:
            raise _error(paths, f"The embedded PostgreSQL did not answer within {START_TIMEOUT:.0f} s.")
        if not _keeper_alive(paths):
            if keepers == MOST_KEEPERS:
                raise _error(paths, "The embedded PostgreSQL does not start.")
            keepers += _launch_keeper(paths)
        time.sleep(0.05)


def _answers(paths: Layout) -> bool:
    # Without a keeper the server is about to end, or is not ours.
    if not (_keeper_alive(paths) and paths.socket.exists()):
        return False
    try:
        psycopg.connect(url(paths), connect_timeout=5).close()
    except psycopg.OperationalError as problem:
        # A server whose connections are all taken is running; a later attempt may get one.
        busy = "too many clients" in str(problem) or "connection slots" in str(problem)
        return busy or ("does not exist" in str(problem) and _create_database(paths))
    return True


def _create_database(paths: Layout) -> bool:
    try:
        with psycopg.connect(url(paths, "postgres"), connect_timeout=5, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
    except (errors.DuplicateDatabase, errors.UniqueViolation):
        return True  # another process was quicker
    except psycopg.OperationalError:
        return False
    return True


def _launch_keeper(paths: Layout) -> bool:
    """Launch a keeper, which detaches itself; return whether ours became the keeper."""
    first_use = not paths.data.exists()
    with open(paths.log, "ab", opener=open_private) as log:
        done = subprocess.run(
            [sys.executable, "-m", "config.local.embedded_keeper", str(paths.root)],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    if done.returncode == LAUNCHED and first_use:
        sys.stderr.write(f"Setting up the embedded PostgreSQL in {paths.data} …\n")
    return done.returncode == LAUNCHED


def _keeper_alive(paths: Layout) -> bool:
    return not could_lock(paths.keeper, fcntl.LOCK_SH)


def _has_users(paths: Layout) -> bool:
    fd = open_lock(paths.users)
    try:
        # No shared lock to be had means that the keeper is stopping, which is not a user.
        return try_lock(fd, fcntl.LOCK_SH) and not try_lock(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def _error(paths: Layout, sentence: str) -> EmbeddedError:
    log = _tail(paths.log)
    if FULL in log:
        return EmbeddedError(f"The disk of {paths.root} is full: free some space, then try again.")
    return EmbeddedError(f"{sentence} Last lines of {paths.log}:\n{log}")


def _tail(path: Path, lines: int = 8) -> str:
    try:
        text = path.read_text(errors="replace")[-8000:]
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])
