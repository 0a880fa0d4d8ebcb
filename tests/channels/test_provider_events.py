"""What webhooks share: who is believed, what is a body, and when it was."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.provider_events import (
    HookRequest,
    Unreadable,
    json_object,
    milliseconds,
    moment,
    same_secret,
    signed,
)

BODY = b'{"a": 1}'
GOOD = hmac.new(b"k3y", BODY, hashlib.sha256).hexdigest()


def request(body: bytes = BODY) -> HookRequest:
    return HookRequest("POST", {}, {}, body)


@pytest.mark.parametrize(
    ("key", "signature", "believed"),
    [
        ("k3y", GOOD, True),
        ("k3y", f" {GOOD.upper()}\n", True),
        ("k3y", GOOD[:-1], False),
        ("other", GOOD, False),
        ("k3y", None, False),
        ("k3y", "", False),
        (None, GOOD, False),
        ("", hmac.new(b"", BODY, hashlib.sha256).hexdigest(), False),
    ],
    ids=["good", "in capitals", "cut", "another key", "none", "empty", "no key", "an empty key"],
)
def test_a_signature_fits_the_body_or_nothing_is_believed(
    key: str | None, signature: str | None, believed: bool
) -> None:
    assert signed(request(), key, signature) is believed


def test_a_signature_may_be_made_in_another_way() -> None:
    longer = hmac.new(b"k3y", BODY, hashlib.sha512).hexdigest()

    assert signed(request(), "k3y", longer, "sha512")
    assert not signed(request(), "k3y", longer)


@pytest.mark.parametrize(
    ("secret", "presented", "believed"),
    [
        ("k3y", "k3y", True),
        ("k3y", "key", False),
        ("k3y", "", False),
        ("k3y", None, False),
        ("", "", False),
        (None, "x", False),
    ],
)
def test_a_secret_is_the_same_or_nothing_is_believed(secret: Any, presented: Any, believed: bool) -> None:
    assert same_secret(secret, presented) is believed


def test_a_body_is_a_json_object() -> None:
    assert json_object(request()) == {"a": 1}


@pytest.mark.parametrize("body", [b"", b"x", b"[1]", b"7", b"null", b"[" * 100_000], ids=lambda body: str(body[:8]))
def test_any_other_body_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        json_object(request(body))


@pytest.mark.parametrize(
    ("seconds", "at"),
    [
        (1_780_000_000, datetime.fromtimestamp(1_780_000_000, UTC)),
        ("1780000000", datetime.fromtimestamp(1_780_000_000, UTC)),
        (10**18, None),
        ("x", None),
        (None, None),
    ],
)
def test_a_moment_from_seconds(seconds: Any, at: datetime | None) -> None:
    assert moment(seconds) == at


@pytest.mark.parametrize(
    ("value", "at"),
    [(1_780_000_000_500, datetime.fromtimestamp(1_780_000_000.5, UTC)), ("1780000000500", None), (None, None)],
)
def test_a_moment_from_milliseconds(value: Any, at: datetime | None) -> None:
    assert milliseconds(value) == at
