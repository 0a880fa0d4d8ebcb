"""The two clusters and the web server as real processes on the tests' database."""

from __future__ import annotations

import http.client
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from config.local.children import Child, wait_until
from tests.channels.mail_server import free_port

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"


def database_url() -> str:
    """The tests' database, in the words of the environment."""
    return urlsplit(settings.DATABASE_URL)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def bare_environment(**variables: str) -> dict[str, str]:
    """The environment of a process that gets none of Crier's variables but the given ones, and reads no `.env`.

    LD_PRELOAD and FAKETIME come along: the suite also runs under libfaketime.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith(("LD_", "LANG", "FAKETIME"))}
    kept |= {name: os.environ[name] for name in ("PATH", "HOME", "TZ") if name in os.environ}
    return kept | {"CRIER_ENV_FILE": os.devnull} | variables


def environment() -> dict[str, str]:
    """The environment of a process of Crier that works on the tests' database."""
    return bare_environment() | {
        "DATABASE_URL": database_url(),
        "SECRET_KEY": settings.SECRET_KEY,
        "CREDENTIAL_KEYS": ",".join(settings.CREDENTIAL_KEYS),
        "CRIER_VAR": str(settings.VAR_DIR),
        "HTTPS": "no",
        "ALLOW_PRIVATE_NETWORKS": "yes",
        "SANDBOX": "yes",
    }


@contextmanager
def clusters(logs: Path, *names: str, **variables: str) -> Iterator[dict[str, Child]]:
    """Started, and ended however the test ends."""
    children = {
        name: Child(
            name,
            [sys.executable, str(MANAGE), "cluster", name],
            logs / f"{name}.log",
            environment() | {"Q_CLUSTER_NAME": name} | variables,
        )
        for name in names
    }
    try:
        for child in children.values():
            child.start()
        yield children
    finally:
        # Not asked: a driver would first finish its slice.
        for child in children.values():
            child.kill_all()


class Web:
    """uvicorn as `manage.py up` starts it."""

    def __init__(self, place: Path, **variables: str) -> None:
        self.port, self.log = free_port(), place / "log" / "web.log"
        command = [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", str(self.port)]
        options = ["--lifespan", "off", "--no-proxy-headers"]
        self.child = Child("web", [*command, *options], self.log, environment() | variables)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Web:
        self.child.start()
        assert wait_until(self.answers, 180), self.child.tail()
        return self

    def __exit__(self, *args: object) -> None:
        self.child.kill_all()

    def ask(self, method: str, path: str, **options: Any) -> Any:
        return ask(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), method, path, **options)


def ask(connection: http.client.HTTPConnection, method: str, path: str, **options: Any) -> Any:
    """The answer, with all of its body as `content`."""
    with closing(connection):
        connection.request(method, path, **options)
        answer: Any = connection.getresponse()
        answer.content = answer.read()
        return answer
