"""The two clusters as real processes on the tests' database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from config.local.children import Child

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"


def database_url() -> str:
    """The tests' database, in the words of the environment."""
    return urlsplit(settings.DATABASE_URL)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def environment() -> dict[str, str]:
    return {
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
