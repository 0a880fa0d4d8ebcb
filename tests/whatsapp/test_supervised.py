"""`make up` starts the bridge once an account needs it and it can run here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.local.children import Child
from config.local.supervisor import Supervisor
from tests.commands.calling import not_done
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    settings.VAR_DIR = tmp_path
    settings.WHATSAPP_SCRIPT = str(tmp_path / "script")
    monkeypatch.setattr(Child, "start", lambda child: None)
    supervisor = Supervisor(lambda line: None, "127.0.0.1", 8000, sandbox=False, workers=None)
    yield supervisor
    supervisor.record.close()


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
