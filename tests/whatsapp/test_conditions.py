"""Each row of the table of certainties (docs/whatsapp.md), in neonize's own words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from accounts.channels.base import Kind, NotSent, Unknown
from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.stand_ins import EVENTS
from fanout.inbound import event_store as inbound
from fanout.inbound import worker
from tests.factories import AccountFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


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


# -- the end of a session ---------------------------------------------------------------------------------

REMOVED, ENDED = "The device was removed on the phone: pair the number again.", conditions.ENDED_BY_WHATSAPP
LOCKED, BANNED = "WhatsApp has locked this account.", "WhatsApp has banned this number. Ask for a review"
#: neonize's reasons (ConnectFailureReason): the account's status, and its reason while connected and while logging in.
ENDS = {
    1: ("generic", "unpaired", REMOVED, ENDED),
    2: ("logged out", "unpaired", REMOVED, ENDED),
    3: ("banned for a while", "suspended", *["WhatsApp has banned this number for a while. Wait until"] * 2),
    4: ("main device gone", "suspended", LOCKED, LOCKED),
    5: ("unknown log-out", "suspended", BANNED, BANNED),
    6: ("client outdated", "unpaired", REMOVED, ENDED),
    7: ("bad user agent", "unpaired", REMOVED, ENDED),
    8: ("internal server error", "unpaired", REMOVED, ENDED),
    9: ("experimental", "unpaired", REMOVED, ENDED),
    10: ("service unavailable", "unpaired", REMOVED, ENDED),
    99: ("a new one", "unpaired", REMOVED, ENDED),
}


@pytest.mark.django_db
@pytest.mark.parametrize("reason", ENDS, ids=[name for name, *_ in ENDS.values()])
def test_every_log_out_stops_the_account_and_says_what_to_do(reason: int) -> None:
    _, status, connected, logging_in = ENDS[reason]
    for on_connect, words in ((False, connected), (True, logging_in)):
        account = AccountFactory.create(channel="whatsapp", config={})
        event = EVENTS["LoggedOut"](OnConnect=on_connect, Reason=reason)
        condition = conditions.condition_after("LoggedOut", event, NOW)
        assert condition is not None
        report = conditions.event_of(condition)
        assert report is not None
        inbound.store(account.pk, [report], NOW)
        worker.step(NOW)
        account.refresh_from_db()

        assert account.status == status
        assert account.status_reason.startswith(words)
        assert "pair the number" in account.status_reason
        assert conditions.refusal(condition) is not None
        assert condition.state is conditions.State.UNPAIRED, "the session is gone in any case"
