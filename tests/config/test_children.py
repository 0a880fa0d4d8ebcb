"""Supervised processes: backoff, logs, and an end that leaves nothing behind."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from config import env
from config.local import children
from config.local.children import Child, end, session_members
from config.local.supervisor import Record, StartError, Supervisor

FOREVER = "import time; time.sleep(600)"
# Forks a child that would outlive it, as the workers of a killed sentinel do.
WITH_ORPHAN = "import os, time; os.fork(); time.sleep(600)"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def make_child(tmp_path: Path, code: str) -> Child:
    return Child("one", [sys.executable, "-c", code], tmp_path / "log" / "one.log")


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    opened = Record(tmp_path / "up.pid")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("deaths", "delay"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (20, 30)], ids=lambda value: str(value)
)
def test_the_wait_before_a_restart_grows_up_to_half_a_minute(tmp_path, deaths, delay):
    child = make_child(tmp_path, "")
    child.started = time.monotonic()
    assert [child.plan_restart() for _ in range(deaths)][-1] == delay


def test_a_child_that_had_settled_starts_counting_anew(tmp_path):
    child = make_child(tmp_path, "")
    child.failures = 5
    child.started = time.monotonic() - children.SETTLED_SECONDS - 1
    assert child.plan_restart() == 1


def test_the_heartbeat_of_an_earlier_child_does_not_count(tmp_path):
    child = make_child(tmp_path, FOREVER)
    child.beat = tmp_path / "beat"
    child.beat.touch()
    child.start()
    try:
        child.silent_for()
        assert not child.has_beaten()
        os.utime(child.beat, ns=(1, 1))
        child.silent_for()
        assert child.has_beaten()
    finally:
        child.kill_all()


def test_a_large_log_is_moved_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(children, "MOST_LOG_BYTES", 3)
    log = tmp_path / "log" / "one.log"
    children.rotate(log)
    log.write_text("long")
    children.rotate(log)
    assert log.read_text() == ""
    assert log.with_name("one.log.1").read_text() == "long"


WRITES = "import time\nfor n in range(100000):\n    print(f'line {n}', flush=True)\n    time.sleep(0.001)"


@pytest.mark.processes
def test_the_log_of_a_running_child_is_rotated(settings, tmp_path, monkeypatch):
    settings.VAR_DIR = tmp_path
    monkeypatch.setattr(children, "MOST_LOG_BYTES", 2_000)
    parent = Supervisor(lambda line: None, "127.0.0.1", 8000, sandbox=False, workers=None)
    parent.web.command = [sys.executable, "-c", WRITES]
    parent.web.start()
    try:
        old = parent.web.log.with_name("web.log.1")
        assert children.wait_until(lambda: parent.web.log.stat().st_size > 2_000, 20)
        parent._rotate_logs()
        assert parent.web.log.stat().st_size < old.stat().st_size
        # It goes on at the beginning of the emptied file, and a second time.
        assert children.wait_until(lambda: parent.web.log.stat().st_size > 2_000, 20)
        assert parent.web.log.read_text().startswith("line ")
        parent._rotate_logs()
        assert "line 0\n" not in old.read_text()
        assert old.stat().st_mode & 0o077 == 0
    finally:
        parent.web.kill_all()
        parent.record.close()


@pytest.mark.processes
def test_the_end_takes_orphans_along(tmp_path):
    child = make_child(tmp_path, WITH_ORPHAN)
    child.start()
    assert children.wait_until(lambda: len(list(session_members(child.pid or 0))) == 2, 20)
    end([child], patience=5)
    assert not child.alive()
    assert not list(session_members(child.pid or 0))


@pytest.mark.processes
def test_a_child_that_ignores_the_signal_is_killed(tmp_path):
    child = make_child(tmp_path, DEAF)
    child.start()
    assert children.wait_until(lambda: "deaf" in child.tail(), 20)
    end([child], patience=0.3)
    assert child.code == -9


@pytest.mark.processes
def test_a_child_ends_with_a_parent_that_was_killed(tmp_path):
    code = (
        "from pathlib import Path; import sys, time; from config.local.children import Child\n"
        f"child = Child('one', [sys.executable, '-c', {FOREVER!r}], Path(sys.argv[1]))\n"
        "child.start(); print(child.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "one.log")],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    assert children.wait_until(lambda: not children.is_alive(child), 20)


def test_the_record_remembers_what_a_killed_parent_started(tmp_path, record):
    me = psutil.Process()
    assert record.take() == {}
    record.write({"web": me})
    record.close()  # the kernel does this for a killed parent
    after = Record(tmp_path / "up.pid")
    assert after.take() == {"web": me.pid}
    after.close()


def test_a_record_that_cannot_be_written_stops_nothing(record, monkeypatch, caplog):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    record.write({})
    assert "up.pid was not written: No space left on device" in caplog.text


def test_a_pid_that_went_to_another_process_is_not_ours(record):
    record.file.write(f'{{"parent": 1, "children": {{"web": [{os.getpid()}, 1.0]}}}}')
    record.file.flush()
    assert record.take() == {}


def test_a_second_parent_is_told_who_the_first_is(tmp_path, record):
    record.take()
    record.write({})
    with pytest.raises(StartError, match=f"already running in this checkout \\(pid {os.getpid()}\\)"):
        Record(tmp_path / "up.pid").take()


def test_a_busy_port_is_told_with_the_way_out(tmp_path, settings):
    settings.VAR_DIR = tmp_path
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        parent = Supervisor(lambda line: None, "127.0.0.1", port, sandbox=False, workers=None)
        with pytest.raises(StartError, match=f"Port {port} is in use .* PORT={port + 1}"):
            parent.claim()
    parent.record.close()


@pytest.mark.parametrize(("host", "site"), [("127.0.0.1", "http://127.0.0.1:8000"), ("::1", "http://[::1]:8000")])
def test_links_start_with_where_the_server_listens(settings, tmp_path, monkeypatch, host, site):
    monkeypatch.delenv("SITE_URL", raising=False)
    settings.VAR_DIR = tmp_path
    parent = Supervisor(lambda line: None, host, 8000, sandbox=False, workers=None)
    parent.record.close()
    assert parent.env["SITE_URL"] == site


def test_the_address_of_the_web_server_is_known_to_other_shells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any
) -> None:
    """`manage.py account hook` prints it."""
    monkeypatch.delenv("SITE_URL", raising=False)
    monkeypatch.setattr(env, "VAR_DIR", tmp_path)
    settings.VAR_DIR = tmp_path
    assert env.last_site() == ""
    Supervisor(lambda line: None, "127.0.0.1", 8123, sandbox=False, workers=None).record.close()
    assert env.last_site() == "http://127.0.0.1:8123"
