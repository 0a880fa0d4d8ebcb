"""An account's settings and credentials, as `clean()` takes them and as its transport gets them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError

from accounts.channels import registry
from accounts.channels.base import Kind, Transport
from accounts.channels.registry import config_of
from accounts.models import Account
from accounts.signin import sign_in
from tests.factories import AccountFactory

case = pytest.param
KEY = {"client_email": "crier@project.iam", "private_key": "-----BEGIN"}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        case({"channel": "pigeon"}, "channel", "choose one of cloud, evolution, gmail, sandbox", id="channel"),
        case({"config": []}, "config", "a JSON object", id="config"),
        case({"config": {"hots": 1}}, "config", "no setting “hots”: Sandbox has url, account", id="unknown"),
        case({"config": {"key": "s3cret"}}, "config", "“key” is a secret", id="secret-among-the-settings"),
        case({"config": {"timeout": "abc"}}, "config", "“timeout” is 'abc'", id="type"),
        case({"credentials": {"token": "s3cret"}}, NON_FIELD_ERRORS, "no credential “token”", id="credential"),
        case({"channel": "smtp", "address": "a@b.cd", "config": {}}, "config", "“host” is missing", id="host"),
        case({"channel": "smtp"}, "address", "its own mail address", id="sender"),
        case({"channel": "gmail", "address": "a@b.cd"}, NON_FIELD_ERRORS, "“service_account” is missing", id="key"),
    ],
)
def test_what_clean_refuses(fields: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AccountFactory.build(owner=None, **fields).clean()
    assert list(caught.value.message_dict) == [field]
    assert said in caught.value.message_dict[field][0]
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        case({}, id="sandbox"),
        case({"channel": "smtp", "address": "a@b.cd"}, id="smtp"),
        case({"channel": "smtp", "config": {"host": "h", "from_address": "a@b.cd"}}, id="sender-among-the-settings"),
        case({"channel": "gmail", "address": "a@b.cd", "credentials": {"service_account": KEY}}, id="gmail"),
    ],
)
def test_what_clean_accepts(fields: dict[str, Any]) -> None:
    AccountFactory.build(owner=None, **fields).clean()


@pytest.mark.django_db
def test_credentials_that_no_key_opens_are_no_obstacle(settings: Any) -> None:
    account = AccountFactory.create(credentials={"key": "s3cret"})
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]

    Account.objects.get(pk=account.pk).clean()


# -- one AccountConfig ------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("channel", registry.channels())
def test_a_row_and_an_instance_give_the_same(channel: str) -> None:
    account = AccountFactory.create(channel=channel, address="a@b.cd", credentials={"key": "s3cret"})
    row = Account.objects.filter(pk=account.pk).values().get()
    stored = Account.objects.get(pk=account.pk)

    assert config_of(row) == config_of(vars(stored)) == config_of(vars(account))
    assert config_of(row).credentials == {"key": "s3cret"}
    assert "s3cret" not in repr(config_of(row))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("config", "url"), [({}, "http://127.0.0.1:7"), ({"url": "http://own:8"}, "http://own:8")], ids=["site", "own"]
)
def test_a_channel_fills_in_what_the_site_knows(settings: Any, config: dict[str, str], url: str) -> None:
    settings.SANDBOX_URL = "http://127.0.0.1:7"

    assert config_of(vars(AccountFactory.create(config=config))).config["url"] == url
    assert "url" not in config_of(vars(AccountFactory.create(channel="smtp"))).config


def test_what_the_caller_adds() -> None:
    row = {"id": 1, "channel": "smtp", "label": "a", "address": "b", "config": {}, "credentials": ""}
    config = config_of(row, 4, lambda address: f"https://example.com/{address}")

    assert (config.concurrency, config.credentials) == (4, {})
    assert config.unsubscribe_url("x") == "https://example.com/x"


# -- signing in -------------------------------------------------------------------------------------------


class Odd(Transport):
    """One whose check does as it is told."""

    channel = registry.channel("sandbox")
    error: Exception | None = None
    closed = False

    async def check(self) -> str:
        if Odd.error is not None:
            raise Odd.error
        await asyncio.sleep(5)
        return "somebody"

    async def send(self, *args: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        Odd.closed = True


@pytest.mark.parametrize(
    ("error", "text", "kind"),
    [
        case(None, "no answer within 0.05 s", Kind.NETWORK, id="silence"),
        case(RuntimeError("s3cret"), "the transport failed with RuntimeError", Kind.UNKNOWN, id="bug"),
    ],
)
def test_every_failure_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, text: str, kind: Kind
) -> None:
    monkeypatch.setattr("accounts.signin.transport_for", Odd)
    monkeypatch.setattr("accounts.signin.SIGN_IN_SECONDS", 0.05)
    monkeypatch.setattr(Odd, "error", error)
    monkeypatch.setattr(Odd, "closed", False)

    result = asyncio.run(sign_in(AccountFactory.build(id=1, owner=None)))

    assert (result.ok, result.text, result.kind) == (False, text, kind.value)
    assert Odd.closed


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        case({"channel": "pigeon"}, "No transport for channel “pigeon”", id="channel"),
        case({"config": {"timeout": "abc"}}, "“timeout” is 'abc'; it must be a number", id="setting"),
        case({"channel": "smtp", "config": {}}, "“host” is missing", id="smtp-setting"),
    ],
)
def test_what_cannot_even_start(fields: dict[str, Any], text: str) -> None:
    result = asyncio.run(sign_in(AccountFactory.build(id=1, owner=None, **fields)))

    assert (result.ok, result.kind) == (False, "auth")
    assert text in result.text
