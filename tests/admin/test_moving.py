"""Stored credentials stay with the destination they were entered for: form, command and code alike."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from accounts.channels.registry import channels
from accounts.models import Account
from fanout.lanes.accounts import changing
from tests.admin.conftest import login, member
from tests.admin.forms import account_form
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db
SMTP = {"host": "mail.example.com", "username": "office"}


@pytest.fixture
def account() -> Account:
    return AccountFactory.create(
        owner=member("mei", "operators"),
        label="Office",
        channel="smtp",
        address="office@example.com",
        config=SMTP,
        credentials={"password": "s3cret"},
    )


def smtp_form(label: str, **settings: Any) -> dict[str, Any]:
    """As the page shows it, with these settings; a box that is not ticked is not sent."""
    boxes = {f"setting_{name}": value for name, value in ({"verify": True} | settings).items() if value is not False}
    return account_form(label=label, channel="smtp", address="office@example.com") | boxes


MOVES: dict[str, dict[str, Any]] = {
    "host": {"host": "evil.example"},
    "port": {"port": 2525},
    "security": {"security": "plain"},
    "certificate checks": {"verify": False},
    "user": {"username": "eve"},
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_form_that_moves_the_account_asks_for_them_again(account, move):
    url = reverse("admin:accounts_account_change", args=[account.pk])
    form = smtp_form(label="Office", **SMTP | move)
    answer = login(account.owner).post(url, form)
    assert answer.status_code == 200
    assert "the stored credentials are for the old destination" in answer.content.decode()
    account.refresh_from_db()
    assert account.config == SMTP
    assert login(account.owner).post(url, form | {"secret_password": "n3w"}).status_code == 302
    account.refresh_from_db()
    assert (account.config, account.credentials) == (SMTP | move, {"password": "n3w"})


def test_a_form_that_stays_keeps_them(account):
    url = reverse("admin:accounts_account_change", args=[account.pk])
    form = smtp_form(label="Office 2", **SMTP, from_name="The office")
    assert login(account.owner).post(url, form).status_code == 302
    account.refresh_from_db()
    assert (account.label, account.credentials) == ("Office 2", {"password": "s3cret"})


def test_none_can_be_entered_too(account):
    url = reverse("admin:accounts_account_change", args=[account.pk])
    form = smtp_form(label="Office", host="relay.example") | {"forget": "on"}
    assert login(account.owner).post(url, form).status_code == 302
    account.refresh_from_db()
    assert account.credentials == {}


def test_typed_credentials_do_not_come_back_with_an_error(account):
    url = reverse("admin:accounts_account_change", args=[account.pk])
    form = smtp_form(label="") | {"secret_password": "typed-w0rd"}
    answer = login(account.owner).post(url, form)
    assert answer.status_code == 200
    assert "typed-w0rd" not in answer.content.decode()


def test_the_command_asks_for_them_again(account):
    with pytest.raises(CommandError, match="the stored credentials are for the old destination"):
        call_command("account", "set", "Office", "--set", "host=evil.example")
    account.refresh_from_db()
    assert account.config == SMTP
    call_command("account", "set", "Office", "--set", "host=new.example", "--secret", "password=s3cret")
    account.refresh_from_db()
    assert (account.config["host"], account.credentials) == ("new.example", {"password": "s3cret"})


def test_credentials_not_entered_again_are_not_moved():
    """Entering one secret does not take another one along."""
    account = AccountFactory.create(
        channel="sandbox", config={"url": "http://a.example"}, credentials={"key": "s3cret"}
    )
    with changing(account, None, timezone.now()) as change:
        change.account.config = {"url": "http://evil.example"}
        change.enter({})
    account.refresh_from_db()
    assert account.credentials == {}


def test_code_that_forgets_the_rule_meets_it(account):
    def move() -> None:
        with changing(account, None, timezone.now()) as change:
            change.account.config = SMTP | {"host": "evil.example"}
            change.account.credentials = {**change.account.credentials, "password": "s3cret"}

    with pytest.raises(ValidationError):
        move()


@pytest.mark.parametrize("channel", ["gmail", "sandbox"])
def test_an_address_that_signs_in_is_a_destination(channel):
    described = channels()[channel]
    assert described.destination({}, "a@example.com") != described.destination({}, "b@example.com")


@pytest.mark.parametrize("described", channels().values(), ids=channels())
def test_every_channel_says_where_its_credentials_go(described):
    reaching = {f.name for f in described.settings if f.kind in ("host", "url")} - {"helo"}
    assert reaching <= {f.name for f in described.settings if f.destination}


def test_an_account_whose_key_is_lost_can_get_new_credentials(account, settings):
    settings.CREDENTIAL_KEYS = ["bG9zdC1sb3N0LWxvc3QtbG9zdC1sb3N0LWxvc3QtMTI="]
    call_command("account", "set", "Office", "--set", "timezone=Asia/Tokyo")
    with pytest.raises(CommandError, match="old destination"):
        call_command("account", "set", "Office", "--set", "host=evil.example")
    call_command("account", "set", "Office", "--set", "host=new.example", "--secret", "password=n3w")
    account.refresh_from_db()
    assert (account.timezone, account.credentials) == ("Asia/Tokyo", {"password": "n3w"})
