"""`up` and `cluster` where they cannot work: the reason in a sentence, first of all, and an exit code."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.config.test_env import ROOT, run
from tests.config.test_up import free_port
from tests.crier_processes import environment
from tests.engine.test_proxy import folder, pooled  # noqa: F401 - fixtures

pytestmark = pytest.mark.processes

PROXY = "A pooling proxy stands between Crier and PostgreSQL"


def said(*words: str, **variables: str) -> tuple[int, list[str]]:
    """Both streams together, in their order, from the tests' own database."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=environment() | variables,
        text=True,
        timeout=180,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        pytest.param(("--port", "70000"), 2, "--port takes a whole number from 1 to 65535.", id="port"),
        pytest.param(("--workers", "0"), 2, "--workers takes a whole number from 1 to 64.", id="workers"),
        pytest.param(("--host", "192.0.2.1"), 1, "'192.0.2.1' is not an address of this machine", id="host"),
        pytest.param(("--host", "nowhere.invalid"), 1, "'nowhere.invalid' is not an address", id="name"),
        pytest.param(("--host", "." * 300), 1, "is not an address of this machine", id="no name"),
    ],
)
def test_an_impossible_option_is_one_sentence(tmp_path, words, code, sentence):
    done = run("up", *words, CRIER_VAR=str(tmp_path))
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_cannot_be_written_is_one_sentence():
    # Nobody can create a file there, root neither.
    done = run("up", CRIER_VAR="/proc")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("CRIER_VAR='/proc' is not usable: it takes a directory that Crier may write to")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.django_db(transaction=True)
def test_too_many_lanes_for_the_servers_locks_are_refused_before_anything_starts(tmp_path):
    code, lines = said("up", "--port", str(free_port()), CRIER_VAR=str(tmp_path), BOT_FIRE_CONCURRENCY="100000")
    assert code == 1
    assert lines[0].startswith("200000 lanes need a lock each")
    assert "raise max_locks_per_transaction in postgresql.conf" in lines[0]
    assert lines[1:] == ["Stopping …", "Stopped."]
    code, lines = said("cluster", "drivers", BOT_FIRE_CONCURRENCY="100000", Q_CLUSTER_NAME="drivers")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("200000 lanes need a lock each")


@pytest.mark.django_db(transaction=True)
def test_workers_count_as_slots_of_the_locks(tmp_path):
    words = ("up", "--port", str(free_port()), "--workers", "64")
    code, lines = said(*words, CRIER_VAR=str(tmp_path), BOT_FIRE_CONCURRENCY="10000")
    assert (code, lines[0].split()[0]) == (1, "640000")


@pytest.mark.django_db(transaction=True)
def test_nothing_starts_behind_a_pooling_proxy(pooled: str, tmp_path: Path) -> None:  # noqa: F811
    words = conninfo_to_dict(pooled)
    url = f"postgresql://{words['user']}@127.0.0.1:{words['port']}/{words['dbname']}"
    wait_for(url)
    for command in (("cluster", "main"), ("cluster", "drivers")):
        code, lines = said(*command, DATABASE_URL=url)
        assert (code, len(lines)) == (1, 1), "\n".join(lines)
        assert lines[0].startswith(PROXY)
    code, lines = said("up", "--port", str(free_port()), DATABASE_URL=url, CRIER_VAR=str(tmp_path))
    assert code == 1
    assert lines[0].startswith(PROXY)
    assert lines[1:] == ["Stopping …", "Stopped."]
    code, lines = said("doctor", DATABASE_URL=url)
    assert (code, next(line for line in lines if PROXY in line)[0]) == (1, "✗")


def wait_for(url: str) -> None:
    """Until the proxy answers."""
    deadline = time.monotonic() + 90
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
