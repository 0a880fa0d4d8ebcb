"""A database without Crier's tables: one sentence that says what to run, from every kind of command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import OperationalError, ProgrammingError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config import health, problems
from config.local.supervisor import StartError
from fanout.ops import diagnosis
from tests.config.test_env import ROOT, run
from tests.crier_processes import bare_environment

SENTENCE = "The database is not set up: run `manage.py migrate`, or `manage.py up`, which does it too."


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    """A database of its own on the tests' server."""
    name = f"empty_{os.getpid()}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield urlsplit(settings.DATABASE_URL)._replace(path=f"/{name}").geturl()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("runs",), id="ours"),
        pytest.param(("simulate", "--groups", "1"), id="the engine's connection"),
        pytest.param(
            ("shell", "--no-imports", "-c", "from fanout.models import Run; Run.objects.first()"), id="Django's"
        ),
    ],
)
def test_a_database_that_is_not_set_up_is_one_sentence(empty, words):
    done = run(*words, DATABASE_URL=empty)
    assert (done.returncode, done.stderr.strip(), done.stdout) == (1, SENTENCE, "")


@pytest.mark.processes
def test_scripts_get_it_as_json(empty):
    done = run("why", "--json", DATABASE_URL=empty)
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (1, "", {"error": SENTENCE})


@pytest.mark.processes
def test_simulate_works_before_the_first_up():
    # Short, for the socket, and reachable for the server's own user.
    var = Path(tempfile.mkdtemp(prefix="crier-first-"))
    env = bare_environment(CRIER_VAR=str(var))
    command = [sys.executable, "manage.py", "simulate", "--groups", "3", "--json"]
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["sent"] == 3
    finally:
        shutil.rmtree(var, ignore_errors=True)


@pytest.mark.django_db
def test_an_error_of_ours_keeps_its_traceback():
    assert problems.sentence(ProgrammingError("column oops does not exist")) == ""
    assert problems.sentence(KeyError("oops")) == ""


@pytest.mark.django_db
def test_migrations_that_are_left_are_counted(monkeypatch):
    monkeypatch.setattr(problems, "migrations_left", lambda: 2)
    assert problems.sentence(ProgrammingError("no such column")).startswith(
        "The database is not up to date, 2 migrations are not applied: run `manage.py migrate`"
    )


def test_a_directory_that_is_not_ours_is_named():
    refused = OSError(30, "Read-only file system", "/srv/media")
    assert problems.sentence(refused).startswith("/srv/media cannot be used: Read-only file system.")
    assert problems.sentence(OSError(2, "No such file or directory", "/srv/media")) == ""


def test_a_full_disk_is_named():
    full = OperationalError("could not extend file")
    full.__cause__ = psycopg.errors.DiskFull()
    for error in (OSError(28, "No space left on device"), full):
        assert problems.sentence(error).startswith("The disk is full: free some space")


@pytest.mark.django_db
def test_a_database_of_another_version_is_refused():
    assert diagnosis.migrations().state == diagnosis.OK
    MigrationRecorder(connection).record_applied("fanout", "0003_pressure")
    with pytest.raises(StartError, match="made by another version"):
        start_up()
    assert diagnosis.migrations().state == diagnosis.FAILED


@pytest.mark.django_db
def test_a_database_of_0_10_has_nothing_to_apply():
    under_old_names()
    assert (problems.version_problem(), problems.migrations_left()) == ("", 0)
    start_up()
    assert MigrationRecorder(connection).applied_migrations().keys() >= squashed().keys()


@pytest.mark.django_db
@pytest.mark.parametrize("app", problems.OUR_APPS)
def test_a_database_from_before_0_10_is_refused_before_anything_changes(app):
    """Django itself would find nothing to do."""
    under_old_names()
    MigrationRecorder(connection).record_unapplied(*squashed()[app, "0001_version_1_0"][-1])
    before = MigrationRecorder(connection).applied_migrations().keys()
    with pytest.raises(StartError, match=r"Upgrade to Crier 0\.10\.0 first"):
        start_up()
    with pytest.raises(SystemCheckError, match=r"Upgrade to Crier 0\.10\.0 first"):
        call_command("migrate", skip_checks=False)
    assert diagnosis.migrations().state == diagnosis.FAILED
    assert health.migrations() == problems.TOO_OLD
    assert problems.sentence(ProgrammingError("no such column")) == problems.TOO_OLD
    assert MigrationRecorder(connection).applied_migrations().keys() == before


def start_up() -> None:
    import_module("fanout.management.commands.up").Command().migrate()


def squashed() -> dict[tuple[str, str], Sequence[tuple[str, str]]]:
    """Return the migrations that replace others, with the names of those."""
    there = MigrationLoader(None).disk_migrations.items()
    return {key: m.replaces for key, m in there if key[0] in problems.OUR_APPS and m.replaces}


def under_old_names() -> None:
    """Note the migrations as 0.10 did."""
    recorder = MigrationRecorder(connection)
    for key, replaced in squashed().items():
        recorder.record_unapplied(*key)
        for old in replaced:
            recorder.record_applied(*old)
