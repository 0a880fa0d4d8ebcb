"""Setting up a second factor, logging in with it, and losing the phone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_otp.plugins.otp_static.models import StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice

from accounts import second_factor
from fanout.models import TrailEntry
from tests.admin.conftest import login
from tests.security.conftest import PASSWORD, app_code

PAGE = "/admin/second-factor/"
CODE = "/admin/second-factor/code/"
pytestmark = pytest.mark.django_db


def enrol(client: Client, user: User) -> list[str]:
    """Through the pages, as the person does it; returns the recovery codes."""
    client.post(PAGE, {"step": "begin"})
    html = client.get(PAGE).content.decode()
    app = TOTPDevice.objects.get(user=user, confirmed=False)
    assert "<svg" in html
    assert "style=" not in html[html.index("<svg") : html.index("</svg>")]
    answer = client.post(PAGE, {"step": "finish", "code": app_code(app)})
    assert answer.context["app"] == app
    return list(answer.context["codes"])


def log_in(user: User) -> Client:
    client = Client()
    answer = client.post(reverse("admin:login"), {"username": user.username, "password": PASSWORD})
    assert answer.status_code == 302
    return client


@pytest.fixture
def codes(person: User) -> list[str]:
    return enrol(log_in(person), person)


def app_of(user: User) -> Any:
    return TOTPDevice.objects.get(user=user, confirmed=True)


def test_without_one_the_password_is_enough(person):
    assert log_in(person).get("/admin/").status_code == 200


def test_enrolling_keeps_the_session_and_shows_ten_codes(person):
    client = log_in(person)
    codes = enrol(client, person)
    assert len(set(codes)) == second_factor.RECOVERY_CODES
    assert client.get("/admin/").status_code == 200
    assert codes[0] not in client.get(PAGE).content.decode()


def test_a_wrong_code_turns_nothing_on(person):
    client = log_in(person)
    client.post(PAGE, {"step": "begin"})
    wrong = f"{(int(app_code(second_factor.begun(person))) + 500_000) % 1_000_000:06d}"
    assert b"not right" in client.post(PAGE, {"step": "finish", "code": wrong}).content
    assert second_factor.app_of(person) is None


def test_the_password_alone_opens_no_page(person, codes):
    client = log_in(person)
    for page in (
        "admin:index",
        "admin:fanout_run_changelist",
        "admin:live_stream",
        "admin:second_factor",
        "admin:password_change",
        "admin:bell_history",
        "admin:confirm",
    ):
        answer = client.get(reverse(page))
        assert answer.status_code == 302, page
        assert answer["Location"].startswith(CODE), page
    assert b'id="bell"' not in client.get(CODE).content


def test_the_code_of_the_app_opens_them(person, codes):
    client = log_in(person)
    answer = client.post(f"{CODE}?next=/admin/fanout/run/", {"code": app_code(app_of(person), 1)})
    assert answer["Location"] == "/admin/fanout/run/"
    assert client.get("/admin/").status_code == 200


def test_a_code_works_once(person, codes):
    code = app_code(app_of(person), 1)
    assert log_in(person).post(CODE, {"code": code}).status_code == 302
    again = log_in(person)
    assert again.post(CODE, {"code": code}).status_code == 200
    assert again.get("/admin/").status_code == 302


def test_a_recovery_code_works_once_in_any_spelling(person, codes):
    client = log_in(person)
    assert client.post(CODE, {"code": codes[0].upper().replace("-", " ")}).status_code == 302
    assert b"9 are left" in client.get("/admin/").content
    again = log_in(person)
    assert again.post(CODE, {"code": codes[0]}).status_code == 200
    assert again.get("/admin/").status_code == 302
    assert TrailEntry.objects.filter(verb="used a recovery code", actor_id=person.pk).count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["recovery", "app"])
def test_a_code_works_once_also_at_the_same_moment(kind):
    user = User.objects.create_user("mei", is_staff=True)
    app = second_factor.begin(user)
    app.confirmed = True
    app.save()
    code = second_factor.new_recovery_codes(user)[0] if kind == "recovery" else app_code(app)
    start = Barrier(8)

    def enter(_number: int) -> bool:
        start.wait()
        try:
            return second_factor.accepted(User.objects.get(pk=user.pk), code) is not None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(enter, range(8))) == [False] * 7 + [True]
    assert second_factor.recovery_codes_left(user) == (9 if kind == "recovery" else 0)


def test_recovery_codes_outlive_a_change_of_the_key(person, codes, settings):
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another key, long enough to be one"
    assert log_in(person).post(CODE, {"code": codes[0]}).status_code == 302
    settings.SECRET_KEY_FALLBACKS = []
    assert log_in(person).post(CODE, {"code": codes[1]}).status_code == 200


def test_recovery_codes_are_not_in_the_database(codes):
    kept = set(StaticToken.objects.values_list("token", flat=True))
    assert not kept & {code.replace("-", "") for code in codes}


def test_guessing_is_slowed_down(person, codes):
    client = log_in(person)
    right = app_code(app_of(person), 1)
    with time_machine.travel(timezone.now(), tick=False):  # on a busy machine a request takes longer than the pause
        client.post(CODE, {"code": f"{(int(right) + 500_000) % 1_000_000:06d}"})
        assert client.post(CODE, {"code": right}).status_code == 200  # too soon
    assert client.get("/admin/").status_code == 302


def test_another_persons_code_does_not_help(person, codes, boss):
    boss.set_password(PASSWORD)
    boss.save()
    enrol(log_in(boss), boss)
    client = log_in(person)
    assert client.post(CODE, {"code": app_code(app_of(boss), 1)}).status_code == 200
    assert client.get("/admin/").status_code == 302


def test_other_sessions_are_asked_once_it_is_on(person):
    other = log_in(person)
    enrol(log_in(person), person)
    assert other.get("/admin/")["Location"].startswith(CODE)


def test_an_app_can_be_replaced_and_the_old_one_is_gone(person):
    client = log_in(person)
    enrol(client, person)
    old = app_of(person)
    enrol(client, person)
    assert app_of(person) != old
    assert client.get("/admin/").status_code == 200


def test_turning_it_off(person):
    client = log_in(person)
    enrol(client, person)
    client.post(PAGE, {"step": "remove"})
    assert log_in(person).get("/admin/").status_code == 200
    assert not StaticToken.objects.exists()


def test_administrators_may_have_to_have_one(settings, boss, operator):
    settings.REQUIRE_SECOND_FACTOR = True
    client = login(boss)
    assert client.get("/admin/")["Location"].startswith(PAGE)
    assert b"Administrators need one" in client.get(PAGE).content
    enrol(client, boss)
    assert client.get("/admin/").status_code == 200
    assert login(operator).get("/admin/").status_code == 200


def test_an_administrator_turns_a_lost_one_off(person, codes, boss):
    data = {"action": "remove_second_factor", "_selected_action": [person.pk]}
    login(boss).post(reverse("admin:auth_user_changelist"), data)
    assert second_factor.app_of(person) is None
    entry = TrailEntry.objects.filter(verb="turned off the second factor").latest("pk")
    assert (entry.actor_name, entry.subject) == ("boss", "mei")


def test_nobody_reads_keys_in_the_admin(boss):
    client = login(boss)
    assert client.get("/admin/otp_totp/totpdevice/").status_code == 404
    assert client.get("/admin/otp_static/staticdevice/").status_code == 404


def test_next_leads_nowhere_else(person, codes):
    answer = log_in(person).post(f"{CODE}?next=https://evil.example/", {"code": app_code(app_of(person), 1)})
    assert answer["Location"] == "/admin/"
