"""The demo's own sandbox provider: one per checkout, recognised by its token, on whichever port is free."""

from __future__ import annotations

import json
import secrets
import sys
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from config import env
from config.local.children import Child, wait_until

START_PATIENCE = 20.0
#: What the demo's recipients do; the file in var/sandbox can be edited.
SCRIPT = {"*": {"reports": {"delivered": 0.97, "read": 0.6, "reply": 0.15, "delay_ms": [800, 8000]}}}


class Provider:
    """The sandbox provider as a child process; the demo's accounts find it at `url`."""

    def __init__(self, folder: Path, url: str, child: Child) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # one of an earlier version is open to all
        self.folder, self.url, self.child = folder, url, child
        self.port_file = folder / "port"
        self.token = env.kept(folder / "token", lambda: secrets.token_urlsafe(16))
        env.kept(folder / "script.json", lambda: json.dumps(SCRIPT))
        # It plays a stranger: it must not end with us, and without Django it does not keep our database up.
        child.ends_with_us = False

    def join(self) -> bool:
        """Adopt the provider that an earlier parent left; return False if there is none."""
        state = health(self.url)
        if state.get("token") != self.token:
            return False
        with suppress(psutil.NoSuchProcess):
            self.child.adopt(psutil.Process(state["pid"]))
            self._pin()
            return True
        return False

    def start(self, chosen: bool) -> bool:
        """Start it on the configured port, else on its earlier one or a free one."""
        if chosen or self.port_file.exists():
            return self._start_on(urlsplit(self.url).port or 80) or (not chosen and self._start_on(0))
        return self._start_on(0)

    def _start_on(self, port: int) -> bool:
        self.port_file.unlink(missing_ok=True)
        self.child.command = self._command(port)
        self.child.start()
        wait_until(lambda: self.port_file.exists() or not self.child.alive(), START_PATIENCE)
        if not self.port_file.exists():
            self.child.kill_all()
            return False
        if not port:
            self.url = f"http://{self._host}:{self.port_file.read_text()}"
        self._pin()
        return True

    def _pin(self) -> None:
        """Keep the port over restarts: the accounts have it in their settings."""
        self.child.command = self._command(urlsplit(self.url).port or 80)

    @property
    def _host(self) -> str:
        return urlsplit(self.url).hostname or "127.0.0.1"

    def _command(self, port: int) -> list[str]:
        options = {
            "host": self._host,
            "port": port,
            "book": self.folder / "book.jsonl",
            "script": self.folder / "script.json",
            "port-file": self.port_file,
            "token": self.token,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        return [sys.executable, "-m", "accounts.channels.sandbox.server", *words]


def set_hooks(url: str, hooks: dict[str, dict[str, str]]) -> None:
    """Tell the provider where to report to and with which key, by the accounts' names in its book."""
    _put(f"{url}/hooks", hooks)


def add_past(url: str, name: str, lines: list[dict[str, Any]]) -> None:
    """Give the provider lines for its book from before it was started; those of a name only once."""
    _put(f"{url}/past", {"name": name, "lines": lines})


def _put(url: str, body: Any) -> None:
    """Send it, if a provider is there."""
    request = Request(url, json.dumps(body).encode(), method="PUT")  # noqa: S310 - the site chose the address
    with suppress(OSError, HTTPException), build_opener(ProxyHandler({})).open(request, timeout=5):
        pass


def health(url: str) -> dict[str, Any]:
    """Return the health report of the sandbox provider at this address; empty if there is none."""
    try:
        # Directly: a proxy that the environment names does not reach this machine.
        with build_opener(ProxyHandler({})).open(f"{url}/healthz", timeout=2) as answer:
            state = json.load(answer)
    except (OSError, ValueError, HTTPException):
        return {}
    return state if isinstance(state, dict) and "token" in state else {}
