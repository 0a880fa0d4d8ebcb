"""What each channel is, said once more: caps, pace, abilities and settings, every one of them.

A description is data that the whole of Crier acts on, and nothing else would notice a wrong number in it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from accounts.channels import registry
from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CaptionedAudio,
    Channel,
    Group,
    Handle,
    KnownProvider,
    Media,
    NotSent,
    Part,
    UploadFailed,
)
from accounts.channels.base import Kind as Reason
from accounts.channels.gateway import Gateway
from accounts.channels.mail import MAIL
from accounts.channels.paired import PAIRED
from accounts.channels.settings import Field
from fanout.engine.dispatcher import SEND_LIMIT
from tests.channels.contract import TEXT, media
from tests.gateways.fake_gateway import SECRETS, SETTINGS

TOLD_APART = {
    "key",
    "label",
    "transport",
    "webhook",
    "webhook_hint",
    "fields",
    "providers",
    "defaults",
    "bridge_problem",
}
PLAIN = Channel(key="pigeon", label="Pigeon")

TIMEOUT = "number 0.05 to 3600, else 11.0, advanced"
MAIL_SETTINGS = {
    "from_name": "text",
    "reply_to": "mail address",
    "from_address": "mail address, advanced",
    "timeout": TIMEOUT,
}
UNIPILE_SETTINGS = {
    "url": "url at unipile.com, required, destination",
    "account_id": "text, required, destination",
    "api_key": "text, required, secret",
    "webhook_secret": "text, secret",
    "timeout": TIMEOUT,
}
UNIPILE_FILES = {"image": 15, "video": 15, "audio": 15, "document": 15}
MAILS: dict[str, Any] = {
    "kinds": {"mailbox"},
    "actions": ("email",),
    "capped": True,
    "knobs": {"group_concurrency": 1},
    "retries": (60.0, 300.0, 900.0),
    "needs_sender": True,
    "own_kind": "mailbox",
    "subject": True,
}
PAIRS: dict[str, Any] = {
    "knobs": {"max_send_per_minute": 20, "send_burst": 1, "group_concurrency": 1, "new_chats_per_day": 30},
    "delay": (2, 10),
    "captioned_audio": CaptionedAudio.AS_DOCUMENT,
    "receipts": True,
    "inbound": True,
    "lists_groups": True,
    "own_kind": "person",
}
#: What is not as in a plain channel, and the settings.
EXPECTED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "cloud": (
        {
            "uploads": True,
            "captioned_audio": CaptionedAudio.REFUSED,
            "file_mb": {"image": 5, "video": 16},
            "receipts": True,
            "inbound": True,
            "lists_groups": True,
            "lists_templates": True,
            "free_for": timedelta(hours=24),
            "own_kind": "person",
        },
        {
            "phone_number_id": "text, required, destination",
            "business_account_id": "text",
            "template": "text",
            "template_language": "text, else en",
            "access_token": "text, required, secret",
            "app_secret": "text, secret",
            "verify_token": "text, secret",
            "url": "url at facebook.com, else https://graph.facebook.com, destination, advanced",
            "version": "text, else v23.0, advanced",
            "timeout": TIMEOUT,
        },
    ),
    "evolution": (
        PAIRS,
        {
            "url": "url, required, destination",
            "instance": "text, required, destination",
            "api_key": "text, required, secret",
            "webhook_secret": "text, secret",
            "timeout": TIMEOUT,
        },
    ),
    "gmail": (
        MAILS
        | {
            "address_signs_in": True,
            "knobs": {"group_concurrency": 1, "max_send_per_minute": 150, "send_burst": 1},
            "daily_caps": {"email": 2000},
        },
        {
            "subject": "mail address, destination",
            "service_account": "JSON object, required, secret",
            **MAIL_SETTINGS,
            "base_url": "url at googleapis.com, else https://gmail.googleapis.com, destination, advanced",
            "token_url": "url at googleapis.com, destination, advanced",
        },
    ),
    "smtp": (
        MAILS | {"knobs": {"group_concurrency": 1, "max_send_per_minute": 300, "send_burst": 1}},
        {
            "host": "host, required, destination",
            "port": "whole number 1 to 65535, destination",
            "security": "choice of starttls or tls or plain, else starttls, destination",
            "username": "text, destination",
            "password": "text, secret",
            **MAIL_SETTINGS,
            "verify": "yes or no, else True, destination, advanced",
            "ca_pem": "certificates, destination, advanced",
            "helo": "host, advanced",
            "idle_seconds": "number 0 to 86400, else 60.0, advanced",
            "messages_per_connection": "whole number 0 to 1000000, else 100, advanced",
            "return_path": "mail address, advanced",
        },
    ),
    "unipile": (
        {
            "kinds": {"profile"},
            "actions": ("message", "connection_request", "inmail"),
            "capped": True,
            "knobs": {
                "max_send_per_minute": 1,
                "send_burst": 1,
                "group_concurrency": 1,
                "min_gap_seconds": 60,
                "max_gap_seconds": 300,
            },
            "receipts": True,
            "inbound": True,
            "file_mb": UNIPILE_FILES,
        },
        UNIPILE_SETTINGS | {"product": "choice of classic or sales_navigator or recruiter, else classic, advanced"},
    ),
    "unipile_mail": (
        {name: value for name, value in MAILS.items() if name != "needs_sender"}
        | {"inbound": True, "file_mb": UNIPILE_FILES},
        UNIPILE_SETTINGS,
    ),
    "waha": (
        PAIRS | {"lists_contacts": True, "own_ids": True, "uploads": True, "uploads_by_kind": True},
        {
            "url": "url, required, destination",
            "session": "text, else default, destination",
            "api_key": "text, required, secret",
            "hmac_key": "text, secret",
            "timeout": TIMEOUT,
        },
    ),
    "wassenger": (
        {name: value for name, value in PAIRS.items() if name != "captioned_audio"}
        | {
            "uploads": True,
            "knobs": PAIRS["knobs"] | {"batch_size": 75, "batch_pause_seconds": 30, "new_chats_per_day": math.inf},
        },
        {
            "device": "text, required, destination",
            "token": "text, required, secret",
            "webhook_secret": "text, secret",
            "url": "url at wassenger.com, else https://api.wassenger.com, destination, advanced",
            "timeout": TIMEOUT,
        },
    ),
}


def described(channel: Channel) -> dict[str, Any]:
    """What is not as in a plain channel."""
    names = [field.name for field in fields(Channel) if field.name not in TOLD_APART]
    return {name: getattr(channel, name) for name in names if getattr(channel, name) != getattr(PLAIN, name)}


def in_words(field: Field) -> str:
    bounded = (field.low, field.high) != (0, math.inf)
    words = [
        str(field.kind)
        + (f" {field.low:g} to {field.high:.15g}" if bounded else "")
        + (f" at {', '.join(field.hosts)}" if field.hosts else "")
        + (f" of {' or '.join(field.choices)}" if field.choices else "")
    ]
    words += [f"else {field.default}"] if field.default is not None else []
    return ", ".join([*words, *(n for n in ("required", "secret", "destination", "advanced") if getattr(field, n))])


def account(key: str) -> AccountConfig:
    settings = {"url": "https://gateway.example", **SETTINGS.get(key, {})} if key in SETTINGS else {}
    if key.startswith("unipile"):
        settings["url"] = "https://api8.unipile.com"
    if key in ("cloud", "wassenger"):
        del settings["url"]
    return AccountConfig(1, key, "Line", "office@example.com", settings, SECRETS.get(key, {}))


@pytest.mark.parametrize("key", EXPECTED)
def test_what_a_channel_is_and_what_it_asks_for(key: str) -> None:
    transport = registry.transport_for(account(key))
    particular, settings = EXPECTED[key]

    assert described(transport.channel) == particular
    assert {field.name: in_words(field) for field in transport.channel.fields} == settings
    assert transport.uploads_media is particular.get("uploads", False)
    if isinstance(transport, Gateway):
        # What it would send is made by the same description.
        assert asyncio.run(content_of(transport))


async def content_of(transport: Gateway) -> Any:
    try:
        return (await transport.message("linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv", TEXT, "m-1")).content
    finally:
        await transport.close()


@pytest.mark.parametrize(
    ("start", "particular", "asked_for", "key"),
    [(MAIL, MAILS, MAIL_SETTINGS, "gmail"), (PAIRED, PAIRS, {"timeout": TIMEOUT}, "waha")],
    ids=["mail", "paired numbers"],
)
def test_what_channels_start_from(
    start: Channel, particular: dict[str, Any], asked_for: dict[str, str], key: str
) -> None:
    transport = registry.transport_for(account(key))

    assert described(start) == particular
    assert {field.name: in_words(field) for field in start.fields} == asked_for
    assert set(start.fields) <= set(transport.channel.fields)
    if isinstance(transport, Gateway):
        assert transport.headers


def test_every_channel_of_a_provider_is_described_here() -> None:
    assert {*EXPECTED, "sandbox", "whatsapp"} == set(registry.channels())


def test_a_plain_channel_promises_little() -> None:
    plain = Channel(key="pigeon", label="Pigeon")
    said = {field.name: getattr(plain, field.name) for field in fields(Channel)}

    assert {name for name, value in said.items() if value is True} == {"media"}
    assert (plain.kinds, plain.actions, plain.captioned_audio) == ({"group", "person"}, ("message",), "as audio")
    assert (plain.defaults(), plain.bridge_problem(), plain.pairs) == ({}, "", False)
    assert [said[name] for name in ("daily_caps", "knobs", "file_mb")] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Group("1@g.us"), {"name": "", "size": None, "announce_only": False, "may_write": True}),
        (
            lambda: Field(name="x", label="X"),
            {"required": False, "secret": False, "destination": False, "advanced": False},
        ),
        (lambda: Field(name="x", label="X"), {"low": 0, "high": math.inf, "default": None}),
        (lambda: Part("1:0", 0, "text"), {"personal": False, "text": "", "media": None, "handle": None}),
        (lambda: AccountConfig(1, "waha", "Line", "", {}), {"concurrency": 1, "credentials": {}}),
        (lambda: NotSent(Reason.AUTH), {"detail": "", "retry_after": None, "until": None}),
        (lambda: Handle("h"), {"expires_at": None}),
        (lambda: KnownProvider("x", "X", {}), {"hint": ""}),
    ],
    ids=["group", "field", "number", "part", "account", "refusal", "handle", "provider"],
)
def test_what_nobody_says_is_the_careful_answer(make: Callable[[], Any], said: dict[str, Any]) -> None:
    made = make()

    assert {name: getattr(made, name) for name in said} == said


def test_an_account_on_its_own_has_no_links() -> None:
    plain = AccountConfig(1, "waha", "Line", "", {})

    assert (plain.unsubscribe_url("ann@example.org"), plain.media_url(media())) == (None, None)


def test_nothing_waits_longer_than_the_lane() -> None:
    assert LONGEST_TIMEOUT == 11 < SEND_LIMIT


# -- what a description answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "kind", "text", "sent_as", "uploaded_as"),
    [
        ("waha", "audio", "Listen", "document", "document"),
        ("waha", "audio", "", "audio", "audio"),
        ("waha", "image", "Look", "image", "image"),
        ("wassenger", "audio", "Listen", "audio", ""),
        ("whatsapp", "audio", "Listen", "document", "document"),
        ("whatsapp", "image", "Look", "image", "image"),
    ],
)
def test_as_what_a_part_reaches_people(key: str, kind: str, text: str, sent_as: str, uploaded_as: str) -> None:
    channel = registry.channel(key)

    assert (channel.sends_as(kind, text), channel.uploaded_as(kind, text)) == (sent_as, uploaded_as)


@pytest.mark.parametrize(
    ("key", "action", "counted"),
    [
        ("unipile", "connection_request", "connection_request"),
        ("unipile", "email", "message"),
        ("gmail", "message", "email"),
        ("gmail", "email", "email"),
    ],
)
def test_a_run_counts_in_each_channel_as_its_own(key: str, action: str, counted: str) -> None:
    channel = registry.channel(key)

    assert channel.counts(action) == counted
    assert type(channel.counts(action)) is type(channel.action) is str


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("smtp", "sends to mailboxes · sends files"),
        ("unipile_mail", "sends to mailboxes · sends files · replies"),
        ("unipile", "sends to LinkedIn profiles · sends files · delivery and read receipts · replies"),
        (
            "waha",
            "sends to people and groups · sends files · delivery and read receipts · replies · lists its groups",
        ),
    ],
)
def test_what_it_can_do_in_one_line(key: str, words: str) -> None:
    assert registry.channel(key).can() == words
    assert "sends files" not in replace(registry.channel(key), media=False).can()


@pytest.mark.parametrize(
    ("key", "config", "destination"),
    [
        ("gmail", {"subject": "a@b.org", "reply_to": "x"}, {"subject": "a@b.org", "address": "me@b.org"}),
        ("unipile", {"url": "u", "account_id": "a"}, {"url": "u", "account_id": "a"}),
    ],
)
def test_where_credentials_go(key: str, config: dict[str, Any], destination: dict[str, Any]) -> None:
    found = registry.channel(key).destination(config, "me@b.org")

    assert {name: value for name, value in found.items() if value is not None} == destination


def test_which_channels_are_paired() -> None:
    assert [key for key, channel in registry.channels().items() if channel.pairs] == ["whatsapp"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [(NotSent(Reason.AUTH, "Signed out"), "Signed out"), (NotSent(Reason.AUTH), "auth")],
    ids=["in words", "without words"],
)
def test_an_upload_that_failed_always_says_something(reason: NotSent, words: str) -> None:
    assert str(UploadFailed(reason)) == words


def test_a_file_is_found_again_by_what_it_is_and_as_what_it_was_sent() -> None:
    file = Media("0" * 64, "a.png", "image/png", 1, bytes)

    assert (file.key, replace(file, kind="image").key) == (("0" * 64, ""), ("0" * 64, "image"))


def test_settings_and_credentials_are_read_apart() -> None:
    waha = registry.channel("waha")

    assert waha.read_settings({"url": "https://w.example"}) == {
        "url": "https://w.example",
        "session": "default",
        "timeout": 11.0,
    }
    assert waha.read_credentials({"api_key": "k"}) == {"api_key": "k", "hmac_key": None}
    assert registry.channel("whatsapp").credential_problems({"key": "x"}) == [
        f"There is no credential “key”: {registry.channel('whatsapp').label} has none."
    ]
