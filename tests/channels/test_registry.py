"""Which channels there are, and what each folder must have."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounts import channels as folder
from accounts import crypto
from accounts.actions import Action
from accounts.addresses import KINDS
from accounts.channels import registry
from accounts.channels.base import AccountConfig, Channel
from accounts.channels.provider_events import HookRequest
from accounts.channels.registry import config_of
from accounts.channels.whatsapp.wire import ask
from accounts.knobs import KNOBS
from tests.channels.contract import TransportContract, media

KEYS = ("cloud", "evolution", "gmail", "sandbox", "smtp", "unipile", "unipile_mail", "waha", "wassenger", "whatsapp")
every_channel = pytest.mark.parametrize("key", registry.channels())


def account(channel: str) -> AccountConfig:
    return AccountConfig(1, channel, "Line", "line", {})


def test_every_folder_with_a_description_is_a_channel() -> None:
    described = {path.parent.name for path in Path(folder.__path__[0]).glob("*/channel.py")}

    assert set(registry.channels()) == described == set(KEYS)


def test_a_new_folder_is_found_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pigeon").mkdir()
    (tmp_path / "pigeon" / "__init__.py").touch()
    source = 'from accounts.channels.base import Channel\n\nCHANNEL = Channel(key="pigeon", label="Pigeon")\n'
    (tmp_path / "pigeon" / "channel.py").write_text(source)
    (tmp_path / "no_channel").mkdir()
    (tmp_path / "no_channel" / "__init__.py").touch()
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])

    assert set(registry.channels.__wrapped__()) == {*registry.channels(), "pigeon"}


@every_channel
def test_a_description_is_sound(key: str) -> None:
    channel = registry.channel(key)
    names = [field.name for field in channel.fields]

    assert type(registry.transport_class(key)) is not None
    assert registry.transport_class(key).channel is channel
    assert channel.transport.startswith(f"accounts.channels.{key}.")
    assert channel.label
    assert channel.kinds <= set(KINDS)
    assert not channel.own_kind or KINDS[channel.own_kind].own_label
    assert {*channel.actions, *channel.daily_caps} <= set(Action.values)
    assert channel.knobs.keys() <= KNOBS.keys()
    assert len(set(names)) == len(names)
    assert all(field.problem(field.default) == "" for field in channel.fields if not field.required)
    assert channel.defaults().keys() <= set(names)


@every_channel
def test_it_keeps_the_contract(key: str) -> None:
    """A channel's tests are in tests/channels/test_<key>.py, with a rig for the contract."""
    tests = vars(importlib.import_module(f"tests.channels.test_{key}")).values()
    kept = [t for t in tests if isinstance(t, type) and issubclass(t, TransportContract) and t is not TransportContract]

    assert kept, f"{key} has no rig: subclass TransportContract in tests/channels/test_{key}.py."


def test_descriptions_import_no_provider_package() -> None:
    code = (
        "import sys, accounts.channels.registry as r; r.channels();"
        "sys.exit(', '.join({'aiohttp', 'aiosmtplib', 'google.auth'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_channel_is_named_with_the_known_ones() -> None:
    with pytest.raises(registry.UnknownChannel, match=f"“pigeon”. Known: {', '.join(KEYS)}"):
        registry.transport_for(account("pigeon"))


def test_an_account_of_a_channel_that_is_gone_can_still_be_described() -> None:
    pigeon = registry.channel("pigeon")

    assert (pigeon.label, pigeon.retries, pigeon.defaults()) == ("pigeon", (), {})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pigeon = Channel(key="pigeon", label="Pigeon", transport="no_such_package.pigeons:Pigeon")
    monkeypatch.setitem(registry.channels(), "pigeon", pigeon)

    with pytest.raises(registry.ChannelUnavailable, match="pip install no_such_package"):
        registry.transport_for(account("pigeon"))


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("cloud", "CloudWebhook"),
        ("evolution", "EvolutionWebhook"),
        ("unipile", "UnipileWebhook"),
        ("unipile_mail", "UnipileWebhook"),
        ("waha", "WahaWebhook"),
        ("wassenger", "WassengerWebhook"),
        ("sandbox", "SandboxWebhook"),
        ("smtp", None),
        ("gmail", None),
        ("pigeon", None),
    ],
)
def test_whose_provider_calls_us(key: str, named: str | None) -> None:
    found = registry.webhook(key)

    assert (type(found).__name__ if found else None) == named
    assert found is None or found.greeting(HookRequest("GET", {}, {}, b""), account(key)) is None


def test_sessions_are_asked_about_where_the_description_says() -> None:
    assert registry.pairing("whatsapp") is ask


def test_a_package_that_is_missing_is_named_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(module: str) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr(importlib, "import_module", gone)
    with pytest.raises(registry.ChannelUnavailable, match="pip install pigeons"):
        registry._imported("pigeon", "pigeons:Pigeon")


# -- an account as its transport sees it ------------------------------------------------------------------


def row(**more: Any) -> dict[str, Any]:
    plain = {"id": 7, "channel": "sandbox", "label": "Line", "address": "a@b.org", "config": {}, "credentials": ""}
    return {**plain, **more}


def test_an_account_has_the_channels_defaults_below_its_own_settings(settings: Any) -> None:
    settings.SANDBOX_URL = "http://127.0.0.1:9999"

    made = config_of(row())
    assert (made.id, made.channel, made.label, made.address) == (7, "sandbox", "Line", "a@b.org")
    assert (made.config["url"], made.credentials, made.concurrency) == ("http://127.0.0.1:9999", {}, 1)
    assert (made.unsubscribe_url("a@b.org"), made.media_url(media())) == (None, None)
    assert config_of(row(config={"url": "http://127.0.0.1:1"}), 5).config["url"] == "http://127.0.0.1:1"
    assert config_of(row(), 5).concurrency == 5


@pytest.mark.parametrize("credentials", [{"key": "k"}, crypto.encrypt({"key": "k"})], ids=["open", "sealed"])
def test_credentials_come_sealed_or_open(credentials: Any) -> None:
    assert config_of(row(credentials=credentials)).credentials == {"key": "k"}


# -- what a description says in words ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "takes", "unreachable"),
    [
        ("smtp", "mailboxes", {"group", "person", "profile"}),
        ("gmail", "mailboxes", {"group", "person", "profile"}),
        ("sandbox", "people, groups and mailboxes", {"profile"}),
        ("waha", "people and groups", {"mailbox", "profile"}),
        ("unipile", "LinkedIn profiles", {"group", "person", "mailbox"}),
    ],
)
def test_whom_it_reaches(key: str, takes: str, unreachable: set[str]) -> None:
    channel = registry.channel(key)

    assert channel.takes() == takes
    assert {kind for kind in KINDS if not channel.reaches(kind)} == unreachable


def test_a_messaging_channel_reaches_numbers_and_groups() -> None:
    plain = replace(registry.channel("sandbox"), kinds=Channel(key="x", label="x").kinds)

    assert plain.takes() == "people and groups"
    assert not plain.reaches("mailbox")
