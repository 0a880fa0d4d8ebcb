"""Each row of the table of certainties (docs/whatsapp.md), in neonize's own words."""

from __future__ import annotations

import pytest

from accounts.channels.base import Kind, NotSent, Unknown
from accounts.channels.whatsapp.bridge import conditions


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("server returned error 400", Kind.UNKNOWN),
        ("server returned error 404", Kind.RECIPIENT_GONE),
        ("server returned error 429", Kind.RATE_LIMITED),
        ("server returned error 463", Kind.NEW_CHATS_BLOCKED),
        ("server returned error 475", Kind.UNKNOWN),
        ("server returned error 479", Kind.UNKNOWN),
        ("server returned error 500", Kind.UNKNOWN),
        ("server returned error 503", Kind.UNAVAILABLE),
        ("failed to send message node: websocket not connected", Kind.UNAVAILABLE),
        ("failed to get device list: websocket not connected", Kind.UNAVAILABLE),
        ("the store doesn't contain a device JID", Kind.UNAVAILABLE),
        ("no LID found for 4915200000001@s.whatsapp.net from server", Kind.RECIPIENT_GONE),
        ("failed to get device list: info query returned status 429: rate-overlimit", Kind.RATE_LIMITED),
        ("failed to get device list: websocket disconnected before info query returned response", Kind.UNAVAILABLE),
        (
            "failed to get user info for 4915200000001@s.whatsapp.net to fill LID cache: info query timed out",
            Kind.UNAVAILABLE,
        ),
        (
            "failed to get user info for 4915200000001@s.whatsapp.net to fill LID cache: "
            "info query returned status 429: rate-overlimit",
            Kind.RATE_LIMITED,
        ),
        ("client is nil", Kind.UNAVAILABLE),
        ("failed to get group members: you're not participating in that group", Kind.NOT_WRITABLE),
        ("failed to get group members: that group does not exist", Kind.RECIPIENT_GONE),
        ("failed to get LID for PN 4915200000001@s.whatsapp.net: info query timed out", Kind.UNAVAILABLE),
        ("failed to get LID for PN 4915200000001@s.whatsapp.net: database is locked", Kind.UNAVAILABLE),
        ("failed to prefetch sessions: failed to prefetch sessions: disk I/O error", Kind.UNAVAILABLE),
        ("failed to encrypt group message to send 3EB0AA to 120363000001@g.us: no sender key", Kind.UNKNOWN),
        ("failed to encrypt group message to send 3EB0AA to 120363000001@g.us: database is locked", Kind.UNAVAILABLE),
        ("failed to create sender key distribution message to send 3EB0AA to 120363000001@g.us: EOF", Kind.UNKNOWN),
        ("failed to marshal message: string field contains invalid UTF-8", Kind.UNKNOWN),
    ],
)
def test_certain_that_nothing_went_out(words: str, kind: Kind) -> None:
    outcome = conditions.outcome_of_error(words)

    assert isinstance(outcome, NotSent)
    assert (outcome.kind, outcome.detail) == (kind, words)


@pytest.mark.parametrize(
    "words",
    [
        "timed out waiting for message send response",
        "websocket disconnected before message send returned response",
        "websocket disconnected before message send (retry) returned response",
        "websocket not connected",  # in the client's own second try
        "failed to encrypt message for retry: no sender key",  # of a message that a phone asks for again
        "something that nobody has seen yet",
        "",
    ],
)
def test_it_may_have_gone_out(words: str) -> None:
    assert conditions.outcome_of_error(words) == Unknown(words)


def test_an_offline_session_is_asked_again_soon() -> None:
    outcome = conditions.outcome_of_error("failed to send message node: websocket not connected")

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == conditions.RETRY_WHEN_OFFLINE


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("info query returned status 429: rate-overlimit", Kind.RATE_LIMITED),
        ("info query timed out", Kind.UNAVAILABLE),
        ("info query returned status 500", Kind.UNKNOWN),
    ],
)
def test_a_question_that_fails_sends_nothing(words: str, kind: Kind) -> None:
    assert conditions.question_failed(words).kind is kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("upload failed with status code 413", Kind.CONTENT_REJECTED),
        ("upload failed with status code 429", Kind.RATE_LIMITED),
        ("upload failed with status code 500", Kind.UNAVAILABLE),
        ("failed to refresh media connections: websocket not connected", Kind.UNAVAILABLE),
    ],
)
def test_an_upload_that_fails_is_no_recipients_fault(words: str, kind: Kind) -> None:
    assert conditions.upload_failed(words).kind is kind
