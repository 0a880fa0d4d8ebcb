"""Settings of the test suite: the product's own, with an environment, a data directory and a PostgreSQL of this run.

A developer's `.env`, the variables of their shell and the data of `make demo` never reach a test, and two runs side by
side share nothing. `TEST_DATABASE_URL` runs the suite on another PostgreSQL server, as a superuser: emptying tables
leaves triggers out. Under pytest-xdist the controller comes here first and the workers inherit its environment.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path

import psycopg
from cryptography.fernet import Fernet

PREFIX = "crier-tests-"
IN_USE = "in-use"
EXAMPLE = Path(__file__).resolve().parent.parent / ".env.example"


def isolate() -> None:
    """Clear Crier's and libpq's variables from the environment, then choose this run's directory and server."""
    ours = re.findall(r"^#([A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE)
    for name in {*ours, *(name for name in os.environ if name.startswith("PG"))}:
        os.environ.pop(name, None)
    remove_directories_of_dead_runs()
    directory = new_directory()
    os.environ |= {"CRIER_TEST_RUN": str(directory), "CRIER_VAR": str(directory), "CRIER_ENV_FILE": os.devnull}
    os.environ["DATABASE_IDLE_SECONDS"] = "900"  # a test may stand still in its transaction on a busy machine
    server = os.environ.get("TEST_DATABASE_URL", "")
    if server:
        os.environ |= {"DATABASE_URL": server, "HTTPS": "no", "SECRET_KEY": "tests", "SANDBOX": "yes"}
        os.environ |= {"CREDENTIAL_KEYS": Fernet.generate_key().decode(), "ALLOW_PRIVATE_NETWORKS": "yes"}
    atexit.register(clean_up, directory, os.getpid())


def new_directory() -> Path:
    """Create this run's directory; it gets its final name when it is locked, so that no other run removes it."""
    unlocked = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}"))
    fcntl.flock(os.open(unlocked / IN_USE, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    return unlocked.rename(unlocked.with_name(unlocked.name.removeprefix("new-")))


def remove_directories_of_dead_runs() -> None:
    """Remove what runs left behind that were killed; a living run holds the lock on its file."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError), (directory / IN_USE).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)


def template_name(directory: Path) -> str:
    """Return the name of the database that a run migrates once and copies for each worker."""
    return f"template_{directory.name.replace('-', '_').lower()}"


def clean_up(directory: Path, pid: int) -> None:
    """Stop this run's server and remove its directory; a forked child of the run does nothing."""
    from config.local import embedded

    if os.getpid() == pid:
        if server := os.environ.get("TEST_DATABASE_URL", ""):
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {template_name(directory)} WITH (FORCE)")
        embedded.stop_and_wait(directory)
        shutil.rmtree(directory, ignore_errors=True)


def without_fsync() -> None:
    """Speed up the run's own server: its data need not survive a power cut (they survive kill -9 all the same)."""
    with psycopg.connect(DATABASE_URL, autocommit=True) as server:
        server.execute("ALTER SYSTEM SET fsync = off")
        server.execute("SELECT pg_reload_conf()")


IS_FIRST_PROCESS = "CRIER_TEST_RUN" not in os.environ
if IS_FIRST_PROCESS:
    isolate()

from config.settings import *  # noqa: E402, F403
from config.settings import DATABASE_URL, EMBEDDED_DATABASE, STORAGES, VAR_DIR  # noqa: E402

if IS_FIRST_PROCESS and EMBEDDED_DATABASE:
    without_fsync()

MEDIA_ROOT = VAR_DIR / f"media-{os.getpid()}"  # of this worker
# A real hash takes half a second by design, and the suite logs in thousands of times.
PASSWORD_HASHERS = ["tests.hashing.OneRound"]
# Tests talk to servers on this machine, whatever the environment says.
ALLOW_PRIVATE_NETWORKS = [ip_network("0.0.0.0/0"), ip_network("::/0")]
SANDBOX = True
# The manifest exists only after collectstatic.
STORAGES = STORAGES | {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}

# Processes that a test starts use the product's settings, with this run's environment.
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
