"""Typed settings and credentials: the values they take, and the sentence for the others."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.channels import registry
from accounts.channels.settings import BadSetting, Field, FieldKind, certificates
from accounts.channels.smtp.channel import CHANNEL
from accounts.channels.smtp.connection import tls_context
from tests.channels.mail_server import certificate

case = pytest.param
PORT = Field(name="port", label="Port", kind=FieldKind.WHOLE, low=1, high=65535)
TIMEOUT = Field(name="timeout", label="Time-out", kind=FieldKind.NUMBER, low=0.05, default=11.0)
SECURITY = Field(name="security", label="Security", kind=FieldKind.CHOICE, choices=("starttls", "tls"))
HOST = Field(name="host", label="Server", kind=FieldKind.HOST, required=True)
VERIFY = Field(name="verify", label="Verify", kind=FieldKind.YES_NO, default=True)
ADDRESS = Field(name="url", label="Address", kind=FieldKind.URL)
SENDER = Field(name="reply_to", label="Reply to", kind=FieldKind.MAILBOX)
NAME = Field(name="username", label="User name")
KEY = Field(name="key_file", label="Key file", kind=FieldKind.OBJECT, secret=True, required=True)


GOOGLE = Field(name="url", label="Address", kind=FieldKind.URL, hosts=("example.net", "example.org"))


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        case(PORT, 587, 587, id="whole"),
        case(PORT, 1, 1, id="the lowest"),
        case(PORT, 65535, 65535, id="the highest"),
        case(PORT, 25.0, 25, id="whole-after-all"),
        case(NAME, 1.5, "1.5", id="a-number-is-text"),
        case(ADDRESS, "https://example.com:8443/x", "https://example.com:8443/x", id="url"),
        case(GOOGLE, "https://example.org", "https://example.org", id="their-own-host"),
        case(GOOGLE, "https://api.example.org", "https://api.example.org", id="below-their-host"),
        case(PORT, "587", 587, id="whole-as-text"),
        case(PORT, None, None, id="empty"),
        case(TIMEOUT, "2.5", 2.5, id="number-as-text"),
        case(TIMEOUT, "", 11.0, id="empty-is-the-default"),
        case(SECURITY, "tls", "tls", id="choice"),
        case(HOST, "mail.example.com", "mail.example.com", id="host"),
        case(HOST, "::1", "::1", id="ip"),
        case(SENDER, "Office@Example.com", "office@example.com", id="mail-address"),
        case(VERIFY, False, False, id="no"),
        case(VERIFY, None, True, id="no-answer"),
        case(NAME, 12345, "12345", id="digits-are-text"),
        case(KEY, {"a": 1}, {"a": 1}, id="object"),
        case(KEY, '{"a": 1}', {"a": 1}, id="object-as-text"),
    ],
)
def test_a_value_is_read_in_its_own_type(field: Field, value: Any, read: Any) -> None:
    assert field.read(value) == read
    assert type(field.read(value)) is type(read)
    assert field.problem(value) == ""


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        case(PORT, "http", "“port” is 'http'; it must be a whole number from 1 to 65535.", id="no-number"),
        case(PORT, 0, "“port” is 0; it must be a whole number from 1 to 65535.", id="too-small"),
        case(PORT, 65536, "“port” is 65536; it must be a whole number from 1 to 65535.", id="too-large"),
        case(TIMEOUT, 0.049, "“timeout” is 0.049; it must be a number of at least 0.05.", id="just-too-small"),
        case(HOST, 7, "“host” is 7; it must be a host name such as mail.example.com.", id="no-host"),
        case(NAME, True, "“username” is True; it must be text.", id="yes-is-no-text"),
        case(KEY, ["x"], "“key_file” must be a JSON object.", id="a-list-is-no-object"),
        case(KEY, "[1]", "“key_file” must be a JSON object.", id="a-list-as-text"),
        *(
            case(ADDRESS, value, f"“url” is {value!r}; it must be an address such as https://example.com.", id=name)
            for name, value in {
                "no-text": 7,
                "no-scheme": "example.com",
                "port-0": "https://example.com:0",
                "a-port-beyond": "https://example.com:65536",
                "a-password": "https://me:pw@example.com",
                "no-host": "https://:8443",
            }.items()
        ),
        *(
            case(GOOGLE, value, f"“url” is {value!r}; it must be an address such as https://example.net.", id=name)
            for name, value in {
                "another-host": "https://example.com",
                "a-host-that-ends-like-it": "https://badexample.org",
                "not-this-machine": "https://10.0.0.1",
            }.items()
        ),
        case(
            SECURITY,
            "x" * 99,
            f"“security” is '{'x' * 59}…; it must be starttls or tls.",
            id="too-long-to-show",
        ),
        case(SECURITY, "x" * 98, f"“security” is '{'x' * 98}'; it must be starttls or tls.", id="just-shown"),
        case(PORT, 1.5, "“port” is 1.5; it must be a whole number from 1 to 65535.", id="broken"),
        case(TIMEOUT, "abc", "“timeout” is 'abc'; it must be a number of at least 0.05.", id="text"),
        case(TIMEOUT, "nan", "“timeout” is 'nan'; it must be a number of at least 0.05.", id="nan"),
        case(TIMEOUT, True, "“timeout” is True; it must be a number of at least 0.05.", id="yes-is-no-number"),
        case(TIMEOUT, [1], "“timeout” is [1]; it must be a number of at least 0.05.", id="list"),
        case(SECURITY, "maybe", "“security” is 'maybe'; it must be starttls or tls.", id="choice"),
        case(HOST, "", "“host” is missing.", id="required"),
        case(HOST, "two words", "“host” is 'two words'; it must be a host name such as mail.example.com.", id="host"),
        case(
            HOST,
            "mail.example.com:587",
            "“host” is 'mail.example.com:587'; it must be a host name such as mail.example.com.",
            id="host-with-port",
        ),
        case(
            SENDER,
            "office",
            "“reply_to” is 'office'; it must be a mail address such as office@example.com.",
            id="mail-address",
        ),
        case(KEY, "[" * 100_000, "“key_file” must be a JSON object.", id="too-deep"),
        case(VERIFY, "no", "“verify” is 'no'; it must be true or false.", id="yes-or-no"),
        case(ADDRESS, "u", "“url” is 'u'; it must be an address such as https://example.com.", id="url"),
        case(NAME, {"a": 1}, "“username” is {'a': 1}; it must be text.", id="no-text"),
        case(KEY, "s3cret {", "“key_file” must be a JSON object.", id="a-secret-is-not-shown"),
        case(KEY, None, "“key_file” is missing.", id="secret-required"),
    ],
)
def test_anything_else_is_one_sentence(field: Field, value: Any, problem: str) -> None:
    with pytest.raises(BadSetting) as caught:
        field.read(value)
    assert str(caught.value) == field.problem(value) == problem


@pytest.mark.parametrize(
    ("key", "config", "said"),
    [
        case("smtp", {"host": "h", "hots": "h"}, "There is no setting “hots”: SMTP has host, port, ", id="unknown"),
        case("smtp", {"host": "h", "password": "s3cret"}, "“password” is a secret: put it among", id="secret"),
        case("smtp", {}, "“host” is missing.", id="required"),
        case("smtp", {"host": "h", "timeout": "abc"}, "“timeout” is 'abc'; it must be a number", id="type"),
        case("gmail", {"base_url": "x"}, "“base_url” is 'x'; it must be an address", id="url"),
        case("sandbox", {"recognises_repeats": 3}, "“recognises_repeats” is 3; it must be true or", id="yes-no"),
    ],
)
def test_a_channel_refuses_settings(key: str, config: dict[str, Any], said: str) -> None:
    (problem,) = registry.channel(key).setting_problems(config)

    assert problem.startswith(said)
    assert "s3cret" not in problem


def test_credentials_are_refused_without_showing_them() -> None:
    problems = registry.channel("smtp").credential_problems(
        {"host": "s3cret", "token": "s3cret", "password": ["s3cret"]}
    )

    assert problems == [
        "There is no credential “token”: SMTP has password.",
        "“host” is not a secret: put it among the settings.",
        "“password” must be text.",
    ]


@pytest.mark.parametrize(
    ("key", "config", "credentials"),
    [
        case("sandbox", {}, {}, id="sandbox"),
        case(
            "sandbox",
            {"url": "http://h:1", "account": "a", "timeout": 5, "recognises_repeats": True},
            {"key": "k"},
            id="sandbox-all",
        ),
        case(
            "smtp",
            {"host": "127.0.0.1", "port": 25, "security": "plain", "username": "me"},
            {"password": "p"},
            id="smtp",
        ),
        case(
            "smtp",
            {
                "host": "h",
                "verify": False,
                "helo": "me.example",
                "idle_seconds": 0,
                "messages_per_connection": 0,
                "from_name": "Me",
                "reply_to": "a@b.cd",
                "timeout": 60,
            },
            {},
            id="smtp-all",
        ),
        case(
            "gmail",
            {"subject": "a@b.cd", "base_url": "http://127.0.0.1:1", "token_url": "http://127.0.0.1:1/t"},
            {"service_account": {"client_email": "x"}},
            id="gmail",
        ),
    ],
)
def test_what_accounts_use_is_accepted(key: str, config: dict[str, Any], credentials: dict[str, Any]) -> None:
    channel = registry.channel(key)

    assert channel.setting_problems(config) == []
    assert channel.credential_problems(credentials) == []


@pytest.mark.parametrize(
    ("url", "demo", "taken"),
    [
        ("http://localhost:8765", True, True),
        ("http://127.0.0.1:8765", True, True),
        ("http://[::1]:8765", True, True),
        ("http://10.0.0.1:8765", True, False),
        ("http://elsewhere:8765", True, False),
        ("http://localhost:8765", False, False),
        ("http://127.0.0.1:8765", False, False),
    ],
)
def test_a_stand_in_is_on_this_machine_and_only_in_the_demo(settings: Any, url: str, demo: bool, taken: bool) -> None:
    settings.SANDBOX = demo

    assert (GOOGLE.problem(url) == "") is taken


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (PORT, "a whole number from 1 to 65535"),
        (TIMEOUT, "a number of at least 0.05"),
        (ADDRESS, "an address such as https://example.com"),
        (GOOGLE, "an address such as https://example.net"),
        (NAME, "text"),
    ],
)
def test_which_values_it_takes_in_words(field: Field, words: str) -> None:
    assert field.takes() == words


# -- certificates as people paste them --------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path):
    text = certificate(tmp_path).read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    return text[start:].strip() + "\n"


@pytest.mark.parametrize("line_end", ["\n", " ", "\r\n", ""], ids=["lines", "spaces", "windows", "nothing"])
def test_however_the_lines_came_they_are_read(authority, line_end):
    assert tls_context(True, certificates(authority.replace("\n", line_end) * 2)).get_ca_certs()


BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


@pytest.mark.parametrize("text", ["/etc/passwd", BROKEN, "-" * 200_000], ids=["path", "broken", "long"])
def test_anything_else_is_refused_when_it_is_saved(text):
    (problem,) = CHANNEL.setting_problems({"host": "mail.example.com", "ca_pem": text})
    assert "must be one or more certificates" in problem
    assert len(problem) < 300


def test_a_path_on_the_server_is_no_setting():
    problems = CHANNEL.setting_problems({"host": "mail.example.com", "ca_file": "/run/crier.pipe"})
    assert "There is no setting “ca_file”" in problems[0]
