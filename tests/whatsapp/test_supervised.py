"""`make up` starts the bridge once an account needs it and it can run here."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from config.local import supervisor
from config.local.children import Child, end
from config.local.supervisor import Supervisor
from fanout import bridge
from tests.commands.calling import bad_input, not_done
from tests.crier_processes import MANAGE, environment
from tests.factories import AccountFactory
from tests.whatsapp.running import wait_for, write_script

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    settings.VAR_DIR = tmp_path
    settings.WHATSAPP_SCRIPT = str(tmp_path / "script")
    monkeypatch.setattr(Child, "start", lambda child: None)
    parent = Supervisor(lambda line: None, "127.0.0.1", 8000, sandbox=False, workers=None)
    yield parent
    parent.record.close()


def test_without_an_account_there_is_none(parent: Supervisor) -> None:
    AccountFactory.create()
    parent._start_bridges()

    assert parent.bridges == {}


def test_the_first_account_starts_it_once(parent: Supervisor) -> None:
    AccountFactory.create(channel="whatsapp", config={})
    parent._start_bridges()
    first = parent.bridges["whatsapp"]
    parent._start_bridges()

    assert first.command[1:] == ["manage.py", "whatsapp_bridge"]
    assert parent.bridges == {"whatsapp": first}
    assert first in parent._children()


def test_where_the_extra_is_missing_nothing_is_started(
    parent: Supervisor, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WHATSAPP_SCRIPT = ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    AccountFactory.create(channel="whatsapp", config={})
    parent._start_bridges()

    assert parent.bridges == {}


def test_the_command_says_what_to_install(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WHATSAPP_SCRIPT = ""
    monkeypatch.setattr("fanout.management.commands.whatsapp_bridge.installed", lambda: False)

    assert "pip install -r requirements-whatsapp.lock" in not_done("whatsapp_bridge")


def test_an_address_that_postgresql_would_cut_is_refused() -> None:
    url = "http://ip-10-0-0-5.eu-central-1.compute.internal:8766"
    assert "takes at most 50 characters, this one has 53" in bad_input("whatsapp_bridge", "--public-url", url)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_bridge_that_hangs_is_started_again(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process is as silent as an event loop that stands still."""
    monkeypatch.setattr(supervisor, "RESTART_BRIDGE_AFTER", timedelta(seconds=8))
    monkeypatch.setattr(supervisor, "FIRST_BEAT_WITHIN", timedelta(seconds=120))
    settings.VAR_DIR = tmp_path
    settings.WHATSAPP_SCRIPT = str(tmp_path / "script")
    write_script(tmp_path)
    (tmp_path / "log").mkdir()
    AccountFactory.create(channel="whatsapp", config={})
    words: list[str] = []
    parent = Supervisor(words.append, "127.0.0.1", 8000, sandbox=False, workers=None)
    parent.env |= environment() | {"CRIER_VAR": str(tmp_path), "WHATSAPP_SCRIPT": settings.WHATSAPP_SCRIPT}
    parent._start_bridges()
    child = parent.bridges["whatsapp"]
    try:
        wait_for(lambda: child.silent_for() >= 0 and child.has_beaten())
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        wait_for(lambda: _look(parent, child) and child.alive() and child.pid != first)
        wait_for(lambda: child.silent_for() >= 0 and child.has_beaten())
    finally:
        end([child], 0)
        parent.record.close()
    assert words[0] == "whatsapp has no heartbeat; restarting it"


def _look(parent: Supervisor, child: Child) -> bool:
    """What the parent's step does with bridges."""
    parent._restart_hung_bridges()
    parent._keep_alive(child)
    time.sleep(0.2)
    return True


def test_a_beat_counts_from_when_it_was_noticed_and_not_by_the_wall_clock(tmp_path: Path) -> None:
    child = Child("bridge", [], tmp_path / "log", beat=tmp_path / "beat", started=time.monotonic() - 100)
    assert child.silent_for() >= 100
    assert not child.has_beaten()
    (tmp_path / "beat").touch()
    os.utime(tmp_path / "beat", (1, 1))  # the wall clock was set back
    assert child.silent_for() < 50
    assert child.has_beaten()


def test_a_harmless_error_of_the_library_is_not_logged() -> None:
    def line(words: str) -> logging.LogRecord:
        return logging.LogRecord("whatsmeow.Client", logging.ERROR, "", 0, words, (), None)

    assert not bridge.is_news(line("Failed to delete store after LoggedOut: sql: no rows"))
    assert bridge.is_news(line("Failed to send: websocket not connected"))


def test_a_bridge_that_ended_is_started_at_the_same_look(parent: Supervisor) -> None:
    """Its lanes wait: the first restart needs no second look."""
    AccountFactory.create(channel="whatsapp", config={})
    parent._start_bridges()
    child, starts = parent.bridges["whatsapp"], []
    child.start = lambda: starts.append(child.restart_at)  # type: ignore[method-assign]
    parent._keep_alive(child)

    assert len(starts) == 1


@pytest.mark.parametrize(
    ("started", "has_pages"),
    [
        ("import django; django.setup(); from fanout.management.commands import whatsapp_bridge", False),
        ("import django; django.setup(); from fanout.management.commands import cluster", False),
        ("import config.asgi", True),
    ],
)
def test_only_the_web_server_starts_with_the_pages(started: str, has_pages: bool) -> None:
    """They are half of the start-up time, and lanes wait for a bridge or driver that was killed."""
    found = subprocess.run(
        [sys.executable, "-c", f"{started}; import sys; print('fanout.admin.run_admin' in sys.modules)"],
        env=environment() | {"DJANGO_SETTINGS_MODULE": "config.settings"},
        cwd=MANAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert found == str(has_pages)
