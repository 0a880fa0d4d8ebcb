"""Sessions that end, wrong passwords that lock out, and the passwords of the demo."""

from __future__ import annotations

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from io import StringIO
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from axes.models import AccessAttempt
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.test import Client
from django.utils import timezone

from config import logins
from config.local.supervisor import StartError
from config.logins import DEMO_LOGINS
from fanout.management.commands import up
from fanout.models import TrailEntry
from fanout.ops import diagnosis
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def test_demo_data_wants_the_embedded_database(settings):
    settings.EMBEDDED_DATABASE = False
    with pytest.raises(CommandError, match="unset DATABASE_URL"):
        call_command("demo_data")
    assert not User.objects.exists()


def test_a_demo_leaves_another_database_as_it_is(settings, monkeypatch, tmp_path):
    """It is refused before its migrations run."""
    settings.EMBEDDED_DATABASE, settings.VAR_DIR = False, tmp_path
    monkeypatch.setattr(up.Command, "prepare", lambda *args: pytest.fail("the database was migrated"))
    with pytest.raises(CommandError, match="unset DATABASE_URL"):
        call_command("up", "--demo")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "crier.example.com"])
def test_the_demo_is_for_this_machine(host):
    with pytest.raises(CommandError, match="this machine only"):
        call_command("up", "--demo", "--host", host)


def test_a_server_with_a_demo_password_fails_the_check(settings):
    user = User.objects.create_user(DEMO_LOGINS[0][0], password=DEMO_LOGINS[0][1])
    settings.EMBEDDED_DATABASE = False
    with pytest.raises(SystemCheckError, match="Demo passwords work: admin"):
        call_command("check", "--deploy", "--fail-level", "ERROR")
    verdict = diagnosis.configuration()
    assert verdict.state == diagnosis.FAILED
    assert "Demo passwords work: admin" in verdict.text
    user.set_password("my own words, longer")
    user.save()
    assert logins.demo_logins() == []


def test_doctor_warns_about_demo_passwords_on_a_developers_machine(settings):
    User.objects.create_user(DEMO_LOGINS[0][0], password=DEMO_LOGINS[0][1])
    settings.EMBEDDED_DATABASE = True
    verdict = diagnosis.configuration()
    assert verdict.state == diagnosis.WARNING
    assert "Demo passwords work: admin" in verdict.text


@pytest.mark.parametrize(("host", "refused"), [("0.0.0.0", True), ("192.168.1.5", True), ("127.0.0.1", False)])
def test_what_a_demo_left_behind_stays_on_this_machine(host, refused, monkeypatch):
    """The database of a demo, started again without --demo."""
    User.objects.create_user(DEMO_LOGINS[0][0], password=DEMO_LOGINS[0][1])
    command = up.Command(stdout=StringIO())
    monkeypatch.setattr(command, "collect_static", lambda: None)
    monkeypatch.setattr(up, "connections", SimpleNamespace(close_all=lambda: None))
    parent: Any = SimpleNamespace(host=host)
    with pytest.raises(StartError, match="Demo passwords work: admin") if refused else nullcontext():
        command.prepare(parent, demo=False, workers=None)


def guess(name: str, address: str) -> int:
    form = {"username": name, "password": "wrong"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address, HTTP_X_FORWARDED_FOR="8.8.8.8").status_code


@pytest.mark.django_db
def test_five_failures_lock_one_name_from_one_address_only():
    UserFactory.create(username="mei")
    assert [guess("mei", "203.0.113.1") for _ in range(6)] == [200] * 4 + [429] * 2
    assert guess("mei", "203.0.113.2") == 200
    assert guess("noor", "203.0.113.1") == 200


@pytest.mark.django_db
def test_an_address_does_not_try_names_for_ever():
    statuses = [guess(f"name{n}", "203.0.113.1") for n in range(27)]
    assert statuses == [200] * 24 + [429] * 3
    assert guess("name0", "203.0.113.2") == 200


@pytest.mark.django_db
def test_a_name_is_not_tried_from_everywhere_for_ever():
    assert [guess("mei", f"203.0.113.{n}") for n in range(26)] == [200] * 24 + [429] * 2
    assert guess("noor", "203.0.113.1") == 200


def log_in(name: str, address: str) -> int:
    form = {"username": name, "password": "horse-battery-9-staple"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address).status_code


def person(name: str) -> None:
    user = UserFactory.create(username=name, is_staff=True)
    user.set_password("horse-battery-9-staple")
    user.save()


@pytest.mark.django_db
def test_a_login_of_ones_own_does_not_buy_more_guesses_at_another_name():
    person("jonas")
    UserFactory.create(username="mei")
    assert [guess("mei", "203.0.113.1") for _ in range(4)] == [200] * 4
    assert log_in("jonas", "203.0.113.1") == 302
    assert guess("mei", "203.0.113.1") == 429


@pytest.mark.django_db
def test_a_login_of_ones_own_does_not_buy_more_names_from_one_address():
    person("jonas")
    statuses = []
    for n in range(25):
        statuses.append(guess(f"name{n}", "203.0.113.1"))
        if n % 4 == 3:
            log_in("jonas", "203.0.113.1")
    assert statuses == [200] * 24 + [429]


@pytest.mark.django_db
def test_a_login_forgets_ones_own_typing_errors_from_there_only():
    person("jonas")
    assert [guess("jonas", "203.0.113.2") for _ in range(4)] == [200] * 4
    assert [guess("jonas", "203.0.113.1") for _ in range(4)] == [200] * 4
    assert log_in("jonas", "203.0.113.1") == 302
    assert guess("jonas", "203.0.113.1") == 200
    assert guess("jonas", "203.0.113.2") == 429


@pytest.fixture
def hashed(monkeypatch: Any) -> list[str]:
    """The passwords that were hashed, each of which takes a while."""
    passwords: list[str] = []
    really = ModelBackend.authenticate

    def hashing(self: Any, request: Any, username: Any = None, password: Any = None, **kwargs: Any) -> Any:
        passwords.append(password)
        if "wrong" in password:
            time.sleep(0.3)  # hashes of tests have one round
        return really(self, request, username, password, **kwargs)

    monkeypatch.setattr(ModelBackend, "authenticate", hashing)
    return passwords


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_guesses_at_the_same_moment_get_no_more_than_the_limit(hashed):
    person("jonas")
    start = Barrier(12)

    def try_it(number: int) -> int:
        start.wait()
        try:
            form = {"username": "jonas", "password": f"wrong {number}"}
            return Client().post("/admin/login/", form, REMOTE_ADDR="203.0.113.1").status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(12) as threads:
        statuses = Counter(threads.map(try_it, range(12)))
    assert len(hashed) == 5
    assert statuses[429] >= 7
    assert log_in("jonas", "203.0.113.1") == 429
    assert log_in("jonas", "203.0.113.2") == 302


@pytest.mark.django_db
def test_a_right_password_leaves_no_guess_behind():
    person("jonas")
    assert guess("jonas", "203.0.113.1") == 200
    client, form = Client(), {"username": "jonas", "password": "horse-battery-9-staple"}
    assert client.post("/admin/login/", form, REMOTE_ADDR="203.0.113.1").status_code == 302
    for _ in range(7):
        # Proves who one is without a login, which would forget what was counted.
        answer = client.post("/admin/confirm/", {"proof": form["password"]}, REMOTE_ADDR="203.0.113.1")
        assert answer.status_code == 302
    assert not AccessAttempt.objects.exists()


@pytest.mark.django_db
def test_a_right_password_takes_back_only_its_own_guess():
    person("jonas")
    client, right = Client(), "horse-battery-9-staple"
    client.post("/admin/login/", {"username": "jonas", "password": right}, REMOTE_ADDR="203.0.113.1")
    for proof in "wrong", "wrong too", right, right:
        client.post("/admin/confirm/", {"proof": proof}, REMOTE_ADDR="203.0.113.1")
    assert AccessAttempt.objects.get().failures_since_start == 2


@pytest.mark.django_db
def test_a_name_that_no_user_can_have_is_counted_and_not_hashed(hashed):
    statuses = [guess(f"{n:03}" + "x" * 150 * (n % 3 + 1), "203.0.113.1") for n in range(27)]
    assert statuses == [200] * 24 + [429] * 3
    assert hashed == []


@pytest.mark.django_db
def test_the_old_password_cannot_be_guessed_on_the_page_that_changes_it():
    person("jonas")
    client = Client()
    client.force_login(User.objects.get(username="jonas"), backend="django.contrib.auth.backends.ModelBackend")

    def change(old: str) -> int:
        form = {"old_password": old, "new_password1": "a new horse 7 words", "new_password2": "a new horse 7 words"}
        return client.post("/admin/password_change/", form, REMOTE_ADDR="203.0.113.1").status_code

    assert [change(f"wrong {n}") for n in range(6)] == [200] * 4 + [429] * 2
    assert change("horse-battery-9-staple") == 429
    assert TrailEntry.objects.filter(verb="password change failed", actor_name="jonas").count() == 7
    with time_machine.travel(timezone.now() + timedelta(minutes=16)):
        assert change("horse-battery-9-staple") == 302
    assert TrailEntry.objects.filter(verb="changed the password", subject="jonas").exists()
    assert User.objects.get(username="jonas").check_password("a new horse 7 words")


pytestmark = pytest.mark.django_db


def visits(*hours: float) -> list[int]:
    """The statuses of visits after so many hours each."""
    client, start = Client(), timezone.now()
    client.force_login(UserFactory.create(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    statuses = []
    for hour in hours:
        with time_machine.travel(start + timedelta(hours=hour), tick=False):
            statuses.append(client.get("/admin/bell/").status_code)
    return statuses


def test_a_session_lasts_while_pages_are_visited():
    assert visits(0, 11, 22, 33) == [200] * 4
    assert visits(0, 13) == [200, 302]


def test_a_made_up_cookie_makes_no_session():
    client = Client()
    client.cookies["sessionid"] = "made-up"
    client.get("/metrics")
    assert not Session.objects.exists()


def test_no_two_kinds_of_advisory_locks_share_a_namespace():
    """A visitor chooses the name that a login locks: it must not be an account's lane."""
    sources = [path for folder in ("accounts", "config", "fanout", "reminders") for path in Path(folder).rglob("*.py")]
    spaces = [space for path in sources for space in re.findall(r"= (0x4352[0-9A-F]{2})\b", path.read_text())]
    assert len(spaces) == len(set(spaces)) >= 6
