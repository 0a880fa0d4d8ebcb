"""A leader and its standby, from the embedded server's binaries, for tests in which the leader dies.

with Pair(folder) as pair:
    ...                # DATABASE_URL=pair.url
    pair.kill_leader()
    pair.promote()
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil
import psycopg

from config.local.embedded_files import Layout, layout
from config.local.embedded_keeper import binary, prepare, start_server, stop_server

START_SECONDS = 60.0


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
            place.root.mkdir(parents=True)
            os.chmod(place.root, 0o755)
        owner = prepare(self.leader)
        # Before its first start a copy is a complete backup.
        shutil.copytree(self.leader.data, self.standby.data)
        if owner is not None:
            for path in (self.standby.data, *self.standby.data.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        prepare(self.standby)
        if self.synchronous:
            configure(self.leader, synchronous_standby_names="standby")
        configure(
            self.standby,
            primary_conninfo=f"host={self.leader.socket_dir} user=postgres application_name=standby",
        )
        (self.standby.data / "standby.signal").touch()
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
        """Kill the leader with all its sessions, as a machine that loses its power does."""
        server = self.servers[self.leader]
        sessions = psutil.Process(server.pid).children(recursive=True)
        server.kill()
        for session in sessions:
            with suppress(psutil.NoSuchProcess):
                session.kill()
        server.wait()

    def hold_back(self) -> None:
        """Cut the standby off from the leader: later commits never reach it."""
        execute(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(self.standby, "SELECT pg_reload_conf()")
        wait_for(lambda: ask(self.leader, "SELECT count(*) FROM pg_stat_replication") == 0)

    def promote(self) -> None:
        execute(self.standby, "SELECT pg_promote(wait => true)")


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
            folder.mkdir(mode=0o700)
            if self.owner is not None:
                os.chown(folder, self.owner.pw_uid, self.owner.pw_gid)
        configure(self.place, archive_mode="on", archive_command=f"cp %p {self.archive}/%f")
        self.server = start_server(self.place, self.owner)
        wait_for(lambda: ask(self.place, "SELECT 1"))
        execute(self.place, "CREATE DATABASE crier")
        return self

    def __exit__(self, *exc: object) -> None:
        if self.server.poll() is None:
            stop_server(self.server)

    def back_up(self) -> None:
        places = ["--pgdata", str(self.backup), "--host", str(self.place.socket_dir)]
        command = [str(binary("pg_basebackup")), *places, "--username", "postgres", "--checkpoint=fast"]
        user = self.owner.pw_uid if self.owner is not None else None
        subprocess.run(command, check=True, user=user, cwd="/")

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
    return psycopg.connect(f"host={place.socket_dir} user=postgres dbname=postgres", autocommit=True)


def wait_for(condition: object) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, f"the servers were not ready within {START_SECONDS:g} s"
        time.sleep(0.1)
