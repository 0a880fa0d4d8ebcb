"""LinkedIn by Unipile against a scripted server, and what each of its answers means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accounts.actions import Action
from accounts.channels.base import AccountConfig, CheckFailed, Kind, NotSent, Part, Sent, Unknown
from accounts.channels.http import Answer
from accounts.channels.registry import channel
from accounts.channels.unipile.answers import outcome_of
from accounts.channels.unipile.transport import LinkedInTransport
from tests.channels.contract import TEXT, Rig, TransportContract, media, send, use
from tests.gateways.process import GatewayRig, GatewayServer, judge

INVITATION = replace(TEXT, action=Action.CONNECTION_REQUEST)


class UnipileRig(GatewayRig):
    channel = "unipile"
    address = "linkedin.com/in/ann-lee"

    def settings(self) -> dict[str, Any]:
        return {"account_id": "a1"}

    def secrets(self) -> dict[str, Any]:
        return {"api_key": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("unipile"), "unipile") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (
        Kind.AUTH,
        Kind.BANNED,
        Kind.RATE_LIMITED,
        Kind.RECIPIENT_GONE,
        Kind.CONTENT_REJECTED,
        Kind.UNAVAILABLE,
    )

    @pytest.fixture
    def rig(self, server: GatewayServer) -> UnipileRig:
        return UnipileRig(server)

    def test_check_names_the_account(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "LinkedIn (Unipile) as Ann Lee"

    def test_a_connection_request_carries_its_note(self, rig: UnipileRig) -> None:
        assert isinstance(send(rig, INVITATION, "m-1"), Sent)

        line = rig.server.book().lines()[-1]
        assert (line["kind"], line["to"], line["text"]) == ("note", rig.address, TEXT.text)

    def test_a_profile_that_is_not_there_is_a_refusal(self, rig: UnipileRig) -> None:
        rig.address = "linkedin.com/in/nobody-here"

        judge(send(rig, TEXT, "m-1"), Kind.RECIPIENT_GONE)
        assert rig.received() == []


# -- what the answers mean --------------------------------------------------------------------------------


def error(status: int, name: str = "unexpected_error") -> Answer:
    return Answer(status, {"status": status, "type": f"errors/{name}", "title": "No", "detail": "why"})


@pytest.mark.parametrize(
    ("status", "name", "outcome"),
    [
        (401, "disconnected_account", Kind.AUTH),
        (401, "expired_credentials", Kind.AUTH),
        (401, "checkpoint_error", Kind.AUTH),
        (401, "anything", Kind.AUTH),
        (403, "account_restricted", Kind.BANNED),
        (403, "insufficient_privileges", Kind.AUTH),
        (404, "resource_not_found", Kind.AUTH),
        (422, "invalid_recipient", Kind.RECIPIENT_GONE),
        (422, "user_unreachable", Kind.RECIPIENT_GONE),
        (422, "blocked_recipient", Kind.RECIPIENT_GONE),
        (422, "recipient_rejected", Kind.RECIPIENT_GONE),
        (422, "no_connection_with_recipient", Kind.RECIPIENT_GONE),
        (422, "already_invited_recently", Kind.RECIPIENT_GONE),
        (422, "already_connected", Kind.RECIPIENT_GONE),
        (422, "cannot_resend_yet", Kind.RATE_LIMITED),
        (422, "limit_exceeded", Kind.RATE_LIMITED),
        (422, "unprocessable", Kind.CONTENT_REJECTED),
        (429, "too_many_requests", Kind.RATE_LIMITED),
        (400, "too_many_characters", Kind.CONTENT_REJECTED),
        (400, "content_too_large", Kind.CONTENT_REJECTED),
        (503, "service_unavailable", Kind.UNAVAILABLE),
        (408, "request_timeout", Unknown),
        (500, "unexpected_error", Unknown),
        (504, "gateway_timeout", Unknown),
        (302, "", Unknown),
    ],
)
def test_every_documented_answer(status: int, name: str, outcome: Any) -> None:
    judge(outcome_of(error(status, name), "message_id"), outcome)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"object": "ChatStarted", "chat_id": "c", "message_id": "m"}, Sent("m")),
        ({"object": "ChatStarted", "chat_id": "c", "message_id": None}, Sent("c")),
        ({"object": "ChatStarted"}, Sent("")),
        ({}, Unknown),
    ],
    ids=["whole", "without a message id", "without ids", "empty"],
)
def test_what_was_accepted(body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(201, body), "message_id", "chat_id"), outcome)


def test_linkedin_over_its_limit_is_left_alone_for_an_hour() -> None:
    for answer in (error(429, "too_many_requests"), error(422, "limit_exceeded")):
        outcome = outcome_of(answer, "message_id")
        assert isinstance(outcome, NotSent)
        assert outcome.retry_after == 3600
    waits = outcome_of(error(429)._replace(retry_after="120"), "message_id")
    assert isinstance(waits, NotSent)
    assert waits.retry_after == 120


def test_a_500_to_a_connection_request_is_the_limit_and_to_a_message_unknown() -> None:
    """LinkedIn refuses a second request to the same person by itself; a message would arrive twice."""
    judge(outcome_of(error(500), "invitation_id", repeatable=True), Kind.RATE_LIMITED)
    judge(outcome_of(error(500), "message_id"), Unknown)


# -- what is asked for ------------------------------------------------------------------------------------


def transport() -> LinkedInTransport:
    settings = {"url": "https://api8.unipile.com:13851", "account_id": "a1"}
    return LinkedInTransport(AccountConfig(1, "unipile", "Line", "", settings, {"api_key": "k"}))


def test_a_member_id_needs_no_look_up() -> None:
    made = asyncio.run(transport().message("linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv", INVITATION, "m-1"))

    assert made.path == "/api/v1/users/invite"
    assert json.loads(made.content) == {
        "account_id": "a1",
        "provider_id": "ACoAAA1bCdEfGhIjKlMnOpQrStUv",
        "message": TEXT.text,
    }


@pytest.mark.parametrize(
    "part",
    [replace(INVITATION, text="x" * 301), replace(INVITATION, index=1), replace(INVITATION, media=media())],
    ids=["too long", "a second part", "a file"],
)
def test_what_no_connection_request_can_carry(part: Part) -> None:
    outcome = asyncio.run(transport().send("linkedin.com/in/ann-lee", part, "m-1"))

    judge(outcome, Kind.CONTENT_REJECTED)


def test_a_file_that_is_too_large_is_refused_before_it_is_read() -> None:
    def read() -> bytes:
        raise AssertionError("read")

    large = replace(media(), size=16 * 1024 * 1024, read=read)
    part = Part("1:0", 0, "document", media=large)

    judge(
        asyncio.run(transport().send("linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv", part, "m")), Kind.CONTENT_REJECTED
    )


def test_an_account_that_lost_its_credentials_says_so(server: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(self: LinkedInTransport, path: str, params: Any = None) -> Answer:
        return Answer(200, {"sources": [{"status": "CREDENTIALS"}]})

    monkeypatch.setattr(LinkedInTransport, "ask", ask)

    with pytest.raises(CheckFailed, match="CREDENTIALS") as caught:
        use(UnipileRig(server), lambda transport: transport.check())
    assert caught.value.kind is Kind.AUTH


@pytest.mark.parametrize(
    ("states", "wrong"), [(["OK"], ""), (["OK", "OK"], ""), (["OK", "STOPPED"], "STOPPED")], ids=["one", "two", "wrong"]
)
def test_an_account_is_well_when_all_its_sources_are(
    server: GatewayServer, monkeypatch: pytest.MonkeyPatch, states: list[str], wrong: str
) -> None:
    async def ask(self: LinkedInTransport, path: str, params: Any = None) -> Answer:
        return Answer(200, {"name": "Ann Lee", "sources": [{"status": state} for state in states]})

    monkeypatch.setattr(LinkedInTransport, "ask", ask)
    if wrong:
        with pytest.raises(CheckFailed, match=f"this account is {wrong}") as caught:
            use(UnipileRig(server), lambda transport: transport.check())
        assert caught.value.kind is Kind.UNAVAILABLE
    else:
        assert use(UnipileRig(server), lambda transport: transport.check()) == "LinkedIn (Unipile) as Ann Lee"


def test_it_counts_messages_and_connection_requests_apart() -> None:
    described = channel("unipile")

    assert described.actions == ("message", "connection_request")
    assert described.capped
    assert described.takes() == "LinkedIn profiles"
