"""`manage.py up --demo` as a newcomer meets it: everything starts, survives kill -9 of its parent, and goes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.crier_processes import bare_environment

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Up:
    """A parent with a var/ directory, a database and ports of its own."""

    def __init__(self, place: Path) -> None:
        self.var = place / "var"
        self.said = place / "said"
        self.port = free_port()
        self.env = bare_environment(CRIER_VAR=str(self.var))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--demo", "--port", str(self.port)],
                cwd=ROOT,
                env=self.env,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def stop(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def shows(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def delivered(self) -> int:
        book = self.var / "sandbox" / "book.jsonl"
        return book.read_text().count("\n") - book.read_text().count('"past"') if book.exists() else 0

    def children(self) -> list[psutil.Process]:
        """Return the processes that still run for this directory, by their environment."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            return alive and process.environ().get("CRIER_VAR") == str(self.var)
        return False


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    parent = Up(tmp_path)
    yield parent
    if parent.process is not None and parent.process.poll() is None:
        parent.stop(signal.SIGTERM)
    for process in parent.children():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


def test_the_demo_starts_delivers_survives_and_goes(up):
    up.start()
    wait_for(up.ready)
    wait_for(lambda: up.delivered() > 2)
    (style,) = set(re.findall(r"/static/crier/crier\.[^\"]+\.css", up.shows("/admin/login/")))
    assert "--primary" in up.shows(style)  # collected by this start
    said = up.said.read_text()
    assert f"Crier is running: http://127.0.0.1:{up.port}/" in said
    assert "log in as mei with the password" in said

    up.stop(signal.SIGKILL)
    before = up.delivered()
    up.start()
    # What the first one left may answer for a while, so its own word counts.
    wait_for(lambda: up.ready() and up.said.read_text().count("Crier is running") == 2)
    wait_for(lambda: up.delivered() > before + 2)
    assert "still going out" in up.said.read_text()
    lines = [json.loads(line) for line in (up.var / "sandbox" / "book.jsonl").read_text().splitlines()]
    parts = [(line["to"], line["part"]) for line in lines if "to" in line and "past" not in line]
    assert len(parts) == len(set(parts))

    assert up.stop(signal.SIGTERM) == 0
    assert "Stopped." in up.said.read_text()
    wait_for(lambda: not up.children())
