"""A leader and its standby, from the embedded server's binaries, for tests in which the leader dies.

with Pair(folder) as pair:
    ...                # DATABASE_URL=pair.url
    pair.kill_leader()
    pair.promote()
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil
import psycopg

from config.local.embedded_files import SOCKET_NAME, Layout, layout
from config.local.embedded_keeper import binary, prepare, start_server, stop_server

START_SECONDS = 60.0
STATE = "SELECT {} FROM pg_stat_replication WHERE application_name = 'standby'"


class Pair:
    """Both servers listen on a socket in their own directory; `url` names both, as a site's DATABASE_URL would."""

    def __init__(self, folder: Path, synchronous: bool = True) -> None:
        self.synchronous = synchronous
        self.leader, self.standby = layout(folder / "leader"), layout(folder / "standby")
        self.servers: dict[Layout, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        hosts = ",".join(quote(str(place.socket_dir), safe="") for place in (self.standby, self.leader))
        return f"postgresql://postgres@/crier?host={hosts}"

    def __enter__(self) -> Self:
        for place in (self.leader, self.standby):
            place.root.mkdir(parents=True, exist_ok=True)
            os.chmod(place.root, 0o755)
        self.owner = owner = prepare(self.leader)
        # Before its first start a copy is a complete backup.
        shutil.copytree(self.leader.data, self.standby.data)
        if owner is not None:
            for path in (self.standby.data, *self.standby.data.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        prepare(self.standby)
        if self.synchronous:
            configure(self.leader, synchronous_standby_names="standby")
        follow(self.standby, self.leader)
        for place in (self.leader, self.standby):
            self.servers[place] = start_server(place, owner)
        state = "sync" if self.synchronous else "async"
        wait_for(lambda: ask(self.leader, "SELECT sync_state FROM pg_stat_replication") == state)
        execute(self.leader, "CREATE DATABASE crier")
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self.servers.values():
            if server.poll() is None:
                stop_server(server)

    def kill_leader(self) -> None:
        self.kill(self.leader)

    def kill(self, place: Layout) -> None:
        """Kill a server with all its sessions, as a machine that loses its power does."""
        server = self.servers[place]
        if server.poll() is not None:
            return
        sessions = psutil.Process(server.pid).children(recursive=True)
        server.kill()
        for session in sessions:
            with suppress(psutil.NoSuchProcess):
                session.kill()
        server.wait()
        psutil.wait_procs(sessions, timeout=START_SECONDS)  # a server does not start beside sessions of the last one

    def hold_back(self) -> None:
        """Cut the standby off from the leader: later commits never reach it."""
        execute(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(self.standby, "SELECT pg_reload_conf()")
        wait_for(lambda: ask(self.leader, "SELECT count(*) FROM pg_stat_replication") == 0)

    def promote(self) -> None:
        execute(self.standby, "SELECT pg_promote(wait => true)")


class LastingPair(Pair):
    """A pair that is supervised, and gets a new standby after each fail-over.

    Until that one has caught up the leader works alone, as Patroni lets it, and there is no other fail-over.
    """

    def __enter__(self) -> Self:
        self.copying: threading.Thread | None = None
        self.is_whole = True
        self.restarts = 0
        super().__enter__()
        for place in (self.leader, self.standby):
            # Old segments are not to fill a small disk.
            execute(place, "ALTER SYSTEM SET max_wal_size = '96MB'")
            execute(place, "SELECT pg_reload_conf()")
        return self

    def __exit__(self, *exc: object) -> None:
        for place in self.servers:
            self.kill(place)  # also ends the copying
        if self.copying is not None:
            self.copying.join()

    def supervise(self) -> None:
        """Start a server again that ended by itself, as systemd does, and take steps towards a new standby."""
        for place, server in self.servers.items():
            if server.poll() is not None:
                self.restarts += 1
                self.servers[place] = start_server(place, self.owner)
        if not self.is_whole and (self.copying is None or not self.copying.is_alive()):
            self.is_whole = self._take_in_standby()

    def restart(self, place: Layout) -> None:
        """Kill a server and start it again where it is."""
        self.kill(place)
        self.servers[place] = start_server(place, self.owner)

    def is_synchronous(self) -> bool:
        return self.is_whole and ask(self.leader, STATE.format("sync_state")) == "sync"

    def fail_over(self, pause: float) -> None:
        """Kill the leader and promote the standby some seconds later. `supervise` makes a new standby."""
        self.kill_leader()
        del self.servers[self.leader]
        self.leader, self.standby = self.standby, self.leader
        self.is_whole = self.is_copied = False
        time.sleep(pause)
        execute(self.leader, "ALTER SYSTEM SET synchronous_standby_names = ''")
        execute(self.leader, "SELECT pg_reload_conf()")
        execute(self.leader, "SELECT pg_promote(wait => true)")

    def _take_in_standby(self) -> bool:
        """Take the next step: copy the leader (which may be killed meanwhile), start the copy, make it synchronous."""
        if not self.is_copied:
            self.copying = threading.Thread(target=self._copy)
            self.copying.start()
        elif self.standby not in self.servers:
            follow(self.standby, self.leader)
            self.servers[self.standby] = start_server(self.standby, self.owner)
        elif ask(self.leader, STATE.format("state")) == "streaming":
            with suppress(psycopg.Error):  # it was killed at this moment, or its disk is full
                execute(self.leader, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
                execute(self.leader, "SELECT pg_reload_conf()")
                return True
        return False

    def _copy(self) -> None:
        shutil.rmtree(self.standby.data, ignore_errors=True)
        make_private(self.standby.data, self.owner)
        copied = copy_server(self.leader, self.standby.data, self.owner).returncode == 0
        # The leader's socket is in its data directory, and the file that says whose it is was copied, too.
        (self.standby.data / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
        self.is_copied = copied


class Archived:
    """A server with a WAL archive, to be recovered to an earlier moment."""

    def __init__(self, folder: Path) -> None:
        self.place = layout(folder / "server")
        self.archive, self.backup = folder / "archive", folder / "backup"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/crier?host={quote(str(self.place.socket_dir), safe='')}"

    def __enter__(self) -> Self:
        self.place.root.mkdir(parents=True)
        os.chmod(self.place.root, 0o755)
        self.owner = prepare(self.place)
        for folder in (self.archive, self.backup):
            make_private(folder, self.owner)
        configure(self.place, archive_mode="on", archive_command=f"cp %p {self.archive}/%f")
        self.server = start_server(self.place, self.owner)
        wait_for(lambda: ask(self.place, "SELECT 1"))
        execute(self.place, "CREATE DATABASE crier")
        return self

    def __exit__(self, *exc: object) -> None:
        if self.server.poll() is None:
            stop_server(self.server)

    def back_up(self) -> None:
        copy_server(self.place, self.backup, self.owner).check_returncode()

    def recover(self, to: datetime) -> None:
        """Replace the server by the backup and the archived log up to this moment."""
        stop_server(self.server)
        shutil.rmtree(self.place.data)
        self.backup.rename(self.place.data)
        configure(
            self.place,
            restore_command=f"cp {self.archive}/%f %p",
            recovery_target_time=to.isoformat(),
            recovery_target_action="promote",
        )
        (self.place.data / "recovery.signal").touch()
        self.server = start_server(self.place, self.owner)
        wait_for(lambda: ask(self.place, "SELECT pg_is_in_recovery()") is False)


def configure(place: Layout, **settings: str) -> None:
    # Without fsync: the data survive a kill -9 all the same.
    with (place.data / "postgresql.auto.conf").open("a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in {"fsync": "off", **settings}.items())


def follow(standby: Layout, leader: Layout) -> None:
    """Make a copy of the leader's data its standby."""
    configure(standby, primary_conninfo=f"host={leader.socket_dir} user=postgres application_name=standby")
    (standby.data / "standby.signal").touch()


def make_private(folder: Path, owner: pwd.struct_passwd | None) -> None:
    folder.mkdir(mode=0o700)
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def copy_server(place: Layout, to: Path, owner: pwd.struct_passwd | None) -> subprocess.CompletedProcess[bytes]:
    command = [str(binary("pg_basebackup")), "--pgdata", str(to), "--host", str(place.socket_dir)]
    command += ["--username", "postgres", "--checkpoint=fast", "--no-sync"]
    return subprocess.run(command, check=False, user=owner.pw_uid if owner is not None else None, cwd="/")


def execute(place: Layout, statement: str) -> None:
    with connect(place) as server:
        server.execute(statement)


def ask(place: Layout, question: str) -> object:
    try:
        with connect(place) as server:
            row = server.execute(question).fetchone()
    except psycopg.OperationalError:
        return None  # it is starting
    return row[0] if row else None


def connect(place: Layout) -> psycopg.Connection:
    return psycopg.connect(f"host={place.socket_dir} user=postgres dbname=postgres connect_timeout=5", autocommit=True)


def wait_for(condition: object) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"the servers were not ready within {START_SECONDS:g} s"
        time.sleep(0.1)
