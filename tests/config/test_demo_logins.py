"""The demo's well-known passwords stay on a machine of one's own."""

from __future__ import annotations

from contextlib import nullcontext
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError

from config import checks
from config.demo_logins import LOGINS
from config.local.supervisor import StartError
from fanout.management.commands import up
from fanout.ops import diagnosis

pytestmark = pytest.mark.django_db


def test_demo_data_wants_the_embedded_database(settings):
    settings.EMBEDDED_DATABASE = False
    with pytest.raises(CommandError, match="unset DATABASE_URL"):
        call_command("demo_data")
    assert not User.objects.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "crier.example.com"])
def test_the_demo_is_for_this_machine(host):
    with pytest.raises(CommandError, match="this machine only"):
        call_command("up", "--demo", "--host", host)


def test_a_server_with_a_demo_password_is_not_fit(settings):
    user = User.objects.create_user(LOGINS[0][0], password=LOGINS[0][1])
    settings.EMBEDDED_DATABASE = False
    with pytest.raises(SystemCheckError, match="Demo passwords work: admin"):
        call_command("check", "--deploy", "--fail-level", "ERROR")
    verdict = diagnosis.configuration()
    assert verdict.state == diagnosis.FAILED
    assert "Demo passwords work: admin" in verdict.text
    user.set_password("my own words, longer")
    user.save()
    assert checks.demo_logins() == []


def test_doctor_says_so_on_a_machine_of_ones_own(settings):
    User.objects.create_user(LOGINS[0][0], password=LOGINS[0][1])
    settings.EMBEDDED_DATABASE = True
    verdict = diagnosis.configuration()
    assert verdict.state == diagnosis.WARNING
    assert "Demo passwords work: admin" in verdict.text


@pytest.mark.parametrize(("host", "refused"), [("0.0.0.0", True), ("192.168.1.5", True), ("127.0.0.1", False)])
def test_what_a_demo_left_behind_stays_on_this_machine(host, refused, monkeypatch):
    """The database of a demo, started again without --demo."""
    User.objects.create_user(LOGINS[0][0], password=LOGINS[0][1])
    command = up.Command(stdout=StringIO())
    monkeypatch.setattr(command, "collect_static", lambda: None)
    monkeypatch.setattr(up, "connections", SimpleNamespace(close_all=lambda: None))
    parent: Any = SimpleNamespace(host=host)
    with pytest.raises(StartError, match="Demo passwords work: admin") if refused else nullcontext():
        command.prepare(parent, demo=False, workers=None)
