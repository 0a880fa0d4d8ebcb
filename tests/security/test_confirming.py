"""Sensitive changes ask again who one is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts import second_factor
from accounts.models import Account
from fanout.admin.login import CONFIRMED_FOR, SESSION_KEY
from fanout.models import TrailEntry
from tests.admin.conftest import login
from tests.factories import AccountFactory
from tests.security.conftest import PASSWORD, app_code

pytestmark = pytest.mark.django_db


def stale(user: User) -> Client:
    """A session whose person proved who they are too long ago."""
    client = login(user)
    session: Any = client.session
    session[SESSION_KEY] = (timezone.now() - CONFIRMED_FOR - timedelta(seconds=1)).timestamp()
    session.save()
    return client


@pytest.mark.parametrize(
    "page",
    [
        "auth_user_add",
        "auth_user_changelist",
        "auth_user_change",
        "auth_user_delete",
        "auth_user_password_change",
        "auth_group_add",
        "auth_group_changelist",
        "second_factor",
    ],
)
def test_pages_of_users_and_keys_ask(page, boss):
    args = [boss.pk] if page in ("auth_user_change", "auth_user_delete", "auth_user_password_change") else []
    path = reverse(f"admin:{page}", args=args)
    answer = stale(boss).get(path)
    assert answer.status_code == 302
    assert answer["Location"] == f"/admin/confirm/?next={path.replace('/', '%2F')}"
    asked = stale(boss).post(path, {"post": "yes", "first_name": "Kept", "password1": "Gone", "step": "begin"})
    assert asked.status_code == 200
    assert "<h1>Confirm that it is you</h1>" in asked.content.decode()
    assert "Kept" in asked.content.decode()
    assert "Gone" not in asked.content.decode()
    assert User.objects.get() == boss
    assert second_factor.begun(boss) is None
    assert login(boss).get(path).status_code == 200


def test_a_login_counts_for_a_quarter_of_an_hour(boss):
    client, page = login(boss), reverse("admin:auth_user_add")
    now = timezone.now()
    with time_machine.travel(now + timedelta(minutes=14), tick=False):
        assert client.get(page).status_code == 200
    with time_machine.travel(now + timedelta(minutes=16), tick=False):
        assert client.get(page).status_code == 302


def test_the_password_confirms(person):
    client = stale(person)
    answer = client.post("/admin/confirm/?next=/admin/second-factor/", {"proof": PASSWORD})
    assert answer["Location"] == "/admin/second-factor/"
    assert client.get("/admin/second-factor/").status_code == 200


def test_a_wrong_password_does_not_and_is_noted(person):
    client = stale(person)
    assert client.post("/admin/confirm/", {"proof": "wrong"}).status_code == 200
    assert client.get("/admin/second-factor/").status_code == 302
    assert TrailEntry.objects.filter(verb="confirmation failed", actor_id=person.pk).exists()


def test_guessing_is_locked_out_as_at_the_login(person):
    client = stale(person)
    for _ in range(5):
        client.post("/admin/confirm/", {"proof": "wrong"})
    assert client.post("/admin/confirm/", {"proof": PASSWORD}).status_code == 429
    assert client.get("/admin/second-factor/").status_code == 302


def test_a_code_of_the_app_confirms(person):
    client = login(person)
    client.post("/admin/second-factor/", {"step": "begin"})
    app = second_factor.begun(person)
    client.post("/admin/second-factor/", {"step": "finish", "code": app_code(app)})
    session: Any = client.session
    session[SESSION_KEY] = 0
    session.save()
    assert client.get("/admin/second-factor/").status_code == 302
    assert client.post("/admin/confirm/", {"proof": app_code(app, 1)})["Location"] == "/admin/"
    assert client.get("/admin/second-factor/").status_code == 200


def account_form(account: Account, **changes: Any) -> dict[str, Any]:
    plain = {
        "label": account.label,
        "channel": account.channel,
        "address": account.address,
        "timezone": account.timezone,
        "setting_account": "a",
        "warmup_floor": account.warmup_floor,
        "warmup_days": account.warmup_days,
    }
    return plain | changes


def test_new_credentials_ask(operator):
    account = AccountFactory.create(owner=operator, config={"account": "a"})
    path, data = reverse("admin:accounts_account_change", args=[account.pk]), account_form(account)
    client = stale(operator)
    assert b"Confirm that it is you: your password" in client.get(path).content
    for proof, says in (("", "Enter your password: a change of secrets needs it."), ("wrong", "That is not right.")):
        refused = client.post(path, data | {"secret_key": "abc", "proof": proof})
        assert says in refused.content.decode()
        assert "Enter it again: a secret is not sent back to the page." in refused.content.decode()
        assert not Account.objects.get(pk=account.pk).credentials
    assert TrailEntry.objects.filter(verb="confirmation failed", actor_id=operator.pk).count() == 1
    saved = client.post(path, data | {"label": "Renamed"})
    assert saved.status_code == 302, saved.context["errors"]
    assert Account.objects.get(pk=account.pk).label == "Renamed"


def test_new_credentials_and_the_password_are_sent_together(person):
    account = AccountFactory.create(owner=person, config={"account": "a"})
    path, client = reverse("admin:accounts_account_change", args=[account.pk]), stale(person)
    saved = client.post(path, account_form(account, label="Renamed", secret_key="abc", proof=PASSWORD))
    assert saved.status_code == 302, saved.context["errors"]
    account.refresh_from_db()
    assert (account.label, account.credentials) == ("Renamed", {"key": "abc"})
    # It counts for the next minutes, as everywhere.
    assert client.post(path, account_form(account, secret_key="abcd")).status_code == 302


def test_what_was_typed_survives_the_question(boss):
    boss.set_password(PASSWORD)
    boss.save()
    client, path = stale(boss), reverse("admin:auth_group_add")
    asked = client.post(path, {"name": "Choirs"})
    again = dict(asked.context["kept"])
    assert "That is not right." in client.post(path, again | {"proof": "wrong"}).content.decode()
    assert not Group.objects.filter(name="Choirs").exists()
    assert client.post(path, again | {"proof": PASSWORD}).status_code == 302
    assert Group.objects.filter(name="Choirs").exists()
