"""The sandbox provider as a real process, for tests that judge deliveries by its book.

with SandboxServer(tmp_path) as server:
    server.set_script({"*": {"latency_ms": [5, 20]}})
    ...
    assert not server.book().duplicates()
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

import pytest

from accounts.channels.sandbox.book import Book

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 180.0


class SandboxServer:
    """Starts on a free port and keeps it over restarts; the book lies in `directory`."""

    def __init__(self, directory: Path, script: dict[str, Any] | None = None) -> None:
        self.directory = directory
        self.book_path = directory / "book.jsonl"
        self.port = 0
        self._script = script
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        port_file = self.directory / "sandbox.port"
        port_file.unlink(missing_ok=True)
        with (self.directory / "sandbox.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command(), "--port-file", str(port_file)], cwd=ROOT, stdout=log, stderr=log
            )
        self.port = self._wait_for(port_file)
        if self._script is not None:
            self.set_script(self._script)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, as tests of crashes need it."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Back on the same port and the same book, with the same script."""
        self.stop()
        self.start()

    def book(self) -> Book:
        return Book.read(self.book_path)

    def set_script(self, script: dict[str, Any]) -> None:
        self._script = script
        request = Request(f"{self.url}/script", json.dumps(script).encode(), method="PUT")
        with urlopen(request, timeout=60) as response:
            assert response.status == 200

    def get(self, path: str) -> Any:
        with urlopen(f"{self.url}{path}", timeout=60) as response:
            return json.load(response)

    def _command(self) -> list[str]:
        module = [sys.executable, "-m", "accounts.channels.sandbox.server"]
        return [*module, "--port", str(self.port), "--book", str(self.book_path), "--seed", "1"]

    def _wait_for(self, port_file: Path) -> int:
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("no sandbox provider: " + (self.directory / "sandbox.log").read_text())
            time.sleep(0.02)
        return int(port_file.read_text())

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def sandbox_server(tmp_path: Path) -> Iterator[SandboxServer]:
    with SandboxServer(tmp_path) as server:
        yield server
