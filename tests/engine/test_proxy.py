"""Session locks are only ours on a direct connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fanout.database import conninfo
from fanout.engine.connection import AsyncLink, ProxyRefused

pytestmark = [pytest.mark.processes, pytest.mark.django_db]

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the server's own user can reach, which pytest's are not."""
    path = Path(tempfile.mkdtemp(prefix="crier-proxy-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def pooled(folder: Path) -> Iterator[str]:
    """The test database behind PgBouncer, which pools by transaction."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed (Debian package pgbouncer)")
    direct = conninfo_to_dict(conninfo(connection.settings_dict))
    port = free_port()
    (folder / "users.txt").write_text(f'"{direct["user"]}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={direct['host']} user={direct['user']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"auth_file = {folder / 'users.txt'}\npool_mode = transaction\nlogfile = {folder / 'log'}\n"
        f"ignore_startup_parameters = extra_float_digits\n"
    )
    for file in folder.iterdir():
        file.chmod(0o644)  # with any umask
    # PgBouncer refuses root as PostgreSQL does, and must reach the server's socket.
    as_user = {"user": "pgserver", "group": "pgserver", "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen([PGBOUNCER, str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL, **as_user)  # type: ignore[call-overload]
    try:
        yield make_conninfo("", dbname=direct["dbname"], user=direct["user"], host="127.0.0.1", port=port)
    finally:
        process.terminate()
        process.wait()


def open_and_close(info: str) -> list[dict[str, Any]]:
    """A link that answers as the test says."""

    async def go() -> list[dict[str, Any]]:
        link = await AsyncLink.open(info)
        try:
            return await link.query("SELECT 1 AS one")
        finally:
            await link.close()

    return asyncio.run(go())


def test_a_pooling_proxy_is_refused_with_a_sentence(pooled: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            with pytest.raises(ProxyRefused, match="Point DATABASE_URL at PostgreSQL itself"):
                open_and_close(pooled)
        except psycopg.OperationalError:  # it is still starting
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def test_a_direct_connection_is_taken() -> None:
    assert open_and_close(conninfo(connection.settings_dict)) == [{"one": 1}]
