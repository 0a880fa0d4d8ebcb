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
from accounts.channels.unipile.transport import LARGEST_FILE, LinkedInTransport, attachments, outcome_of, refusal
from tests.channels.contract import CONTENT, TEXT, Rig, TransportContract, media, send, use
from tests.gateways.fake_gateway import FakeGateway
from tests.gateways.process import GatewayRig, GatewayServer, judge

MEMBER = "linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv"
INVITATION = replace(TEXT, action=Action.CONNECTION_REQUEST)
INMAIL = replace(TEXT, action=Action.INMAIL, subject="Doors")


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
        assert use(rig, lambda transport: transport.check()) == "LinkedIn (Unipile) API v1 as Ann Lee"

    def test_a_connection_request_carries_its_note(self, rig: UnipileRig) -> None:
        assert isinstance(send(rig, INVITATION, "m-1"), Sent)

        line = rig.server.book().lines()[-1]
        assert (line["kind"], line["to"], line["text"]) == ("note", rig.address, TEXT.text)

    def test_an_inmail_is_a_message_of_its_own_kind(self, rig: UnipileRig) -> None:
        assert isinstance(send(rig, INMAIL, "m-1"), Sent)

        line = rig.server.book().lines()[-1]
        assert (line["kind"], line["to"], line["text"]) == ("inmail", rig.address, TEXT.text)

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
        (422, "cannot_resend_yet", Kind.RECIPIENT_LIMITED),
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
        (413, "unexpected_error", Kind.CONTENT_REJECTED),
        (400, "unexpected_error", Kind.CONTENT_REJECTED),
        (500, "limit_exceeded", Kind.RATE_LIMITED),
        (202, "unexpected_error", Unknown),
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


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (error(401), NotSent(Kind.AUTH, "HTTP 401 No: why")),
        (Answer(401, {"title": "No"}), NotSent(Kind.AUTH, "HTTP 401 No")),
        (Answer(500, {}), NotSent(Kind.UNAVAILABLE, "HTTP 500")),
        (Answer(503, {}, "5"), NotSent(Kind.UNAVAILABLE, "HTTP 503", 5.0)),
        (Answer(429, {}), NotSent(Kind.RATE_LIMITED, "HTTP 429", 3600.0)),
        (Answer(429, {}, "5"), NotSent(Kind.RATE_LIMITED, "HTTP 429", 5.0)),
        (Answer(400, {"type": "limit_exceeded"}), NotSent(Kind.RATE_LIMITED, "HTTP 400", 3600.0)),
        (Answer(422, {"type": "errors/cannot_resend_yet"}), NotSent(Kind.RECIPIENT_LIMITED, "HTTP 422", 86_400.0)),
        (Answer(422, {"type": "errors/insufficient_credits"}), NotSent(Kind.RATE_LIMITED, "HTTP 422", 86_400.0)),
    ],
    ids=[
        "title and detail",
        "a title",
        "their fault",
        "a wait",
        "a limit",
        "a short limit",
        "a type without its room",
        "a person",
        "no credits",
    ],
)
def test_a_refusal_in_words(answer: Answer, refused: NotSent) -> None:
    assert refusal(answer) == refused


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
    assert outcome_of(error(500), "invitation_id", repeatable=True) == NotSent(
        Kind.RATE_LIMITED, "HTTP 500 No: why", 3600.0
    )
    judge(outcome_of(error(502), "invitation_id", repeatable=True), Unknown)
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


def test_what_a_connection_request_just_carries() -> None:
    made = asyncio.run(transport().message(MEMBER, replace(INVITATION, text="x" * 300), "m-1"))

    assert json.loads(made.content)["message"] == "x" * 300


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_a_file_of_15_mb_is_the_largest(more: int, taken: bool) -> None:
    assert LARGEST_FILE == 15 * 1024 * 1024
    part = Part("1:0", 0, "document", media=replace(media(), size=LARGEST_FILE + more))
    gateway = FakeGateway("unipile", {"/api/v1/chats": Answer(201, {"message_id": "m"})})

    outcome = gateway.use(lambda transport: transport.send(MEMBER, part, "m-1"))

    assert outcome == (Sent("m") if taken else NotSent(Kind.CONTENT_REJECTED, "poster.png is larger than 15 MB."))


def test_no_file_is_no_attachment() -> None:
    assert asyncio.run(attachments(None)) == []
    (file,) = asyncio.run(attachments(media()))
    assert (file.name, file.filename, file.mime, file.content) == ("attachments", "poster.png", "image/png", CONTENT)


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
        assert use(UnipileRig(server), lambda transport: transport.check()) == "LinkedIn (Unipile) API v1 as Ann Lee"


def test_it_counts_messages_connection_requests_and_inmail_apart() -> None:
    described = channel("unipile")

    assert described.actions == ("message", "connection_request", "inmail")
    assert described.capped
    assert described.takes() == "LinkedIn profiles"


# -- over a connection ------------------------------------------------------------------------------------

ANN, CHATS, INVITE = "/api/v1/users/ann-lee", "/api/v1/chats", "/api/v1/users/invite"
ACCOUNT = "/api/v1/accounts/a%201"


def write(gateway: FakeGateway, *parts: Part, to: str = "linkedin.com/in/ann-lee") -> list[Any]:
    async def go(transport: Any) -> list[Any]:
        return [await transport.send(to, part, "m-1") for part in parts]

    return gateway.use(go)


def test_a_profile_is_looked_up_once_and_written_to_by_its_id() -> None:
    sent = Answer(201, {"chat_id": "c", "message_id": "m"})
    gateway = FakeGateway("unipile", {ANN: Answer(200, {"provider_id": "ACo1"}), CHATS: sent})

    assert write(gateway, TEXT, TEXT) == [Sent("m", "linkedin.com/in/ACo1")] * 2
    assert gateway.paths == [ANN, CHATS, CHATS]
    assert gateway.requests[0].query == {"account_id": "a 1"}
    for name, value in (("account_id", "a 1"), ("text", TEXT.text), ("attendees_ids", "ACo1")):
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in gateway.requests[1].body


def test_a_member_id_is_written_to_as_it_is() -> None:
    gateway = FakeGateway("unipile", {CHATS: Answer(201, {"message_id": "m"})})

    assert write(gateway, TEXT, to=MEMBER) == [Sent("m")]
    assert gateway.paths == [CHATS]


def test_a_connection_request_is_named_by_its_invitation() -> None:
    gateway = FakeGateway("unipile", {INVITE: Answer(201, {"invitation_id": "i", "message_id": "m"})})

    assert write(gateway, INVITATION, to=MEMBER) == [Sent("i")]
    assert write(FakeGateway("unipile", {INVITE: Answer(500, {})}), INVITATION, to=MEMBER) == [
        NotSent(Kind.RATE_LIMITED, "HTTP 500", 3600.0)
    ]
    judge(write(FakeGateway("unipile", {CHATS: Answer(500, {})}), TEXT, to=MEMBER)[0], Unknown)


@pytest.mark.parametrize("product", ["classic", "sales_navigator", "recruiter"])
def test_an_inmail_uses_the_credits_of_the_accounts_product(product: str) -> None:
    settings = {"url": "https://api8.unipile.com:13851", "account_id": "a1", "product": product}
    account = AccountConfig(1, "unipile", "Line", "", settings, {"api_key": "k"})

    made = asyncio.run(LinkedInTransport(account).message(MEMBER, INMAIL, "m-1"))

    assert made.path == CHATS
    for name, value in (("linkedin[api]", product), ("linkedin[inmail]", "true"), ("subject", "Doors")):
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in made.content


def test_a_message_is_no_inmail() -> None:
    made = asyncio.run(transport().message(MEMBER, replace(TEXT, subject="Doors"), "m-1"))

    assert b"linkedin[" not in made.content
    assert b'name="subject"' not in made.content


def test_a_second_part_would_cost_a_second_credit() -> None:
    outcome = asyncio.run(transport().send(MEMBER, replace(INMAIL, index=1), "m-1"))

    judge(outcome, Kind.CONTENT_REJECTED)


NOT_YET = Answer(422, {"type": "errors/cannot_resend_yet", "title": "Cannot resend yet"})
PERSON_WAITS = NotSent(Kind.RECIPIENT_LIMITED, "HTTP 422 Cannot resend yet", 86_400.0)
ACCOUNT_WAITS = NotSent(Kind.RATE_LIMITED, "HTTP 422 Cannot resend yet", 3600.0)
OTHERS = [f"linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrSt{n:02d}" for n in range(3)]


def test_one_person_who_must_wait_holds_nobody_else() -> None:
    """Unipile says the same about an account over its limit: then the second person gets it too."""
    invited = Answer(201, {"invitation_id": "i"})
    gateway = FakeGateway("unipile", {INVITE: [NOT_YET, NOT_YET, NOT_YET, invited, NOT_YET]})
    first, second, third = OTHERS

    async def go(transport: Any) -> list[Any]:
        return [await transport.send(to, INVITATION, "m-1") for to in (first, first, second, third, first)]

    assert gateway.use(go) == [PERSON_WAITS, PERSON_WAITS, ACCOUNT_WAITS, Sent("i"), PERSON_WAITS]


def test_the_address_of_version_2_is_not_taken_for_version_1() -> None:
    settings = {"url": "https://api.unipile.com/v2", "account_id": "acc_1"}
    account = AccountConfig(1, "unipile", "Line", "", settings, {"api_key": "k"})

    with pytest.raises(CheckFailed, match="version 2"):
        asyncio.run(LinkedInTransport(account).check())


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (Answer(404, {"title": "No"}), NotSent(Kind.RECIPIENT_GONE, "There is no such profile: HTTP 404 No")),
        (Answer(422, {}), NotSent(Kind.RECIPIENT_GONE, "There is no such profile: HTTP 422")),
        (Answer(200, {}), NotSent(Kind.UNKNOWN, "The profile came without its id.")),
        (Answer(401, {"provider_id": "ACo1"}), NotSent(Kind.AUTH, "HTTP 401")),
        (Answer(500, {"provider_id": "ACo1"}), NotSent(Kind.UNAVAILABLE, "HTTP 500")),
    ],
    ids=["not there", "unprocessable", "without an id", "not signed in", "down"],
)
def test_a_look_up_that_fails_is_a_refusal_and_asked_again(answer: Answer, refused: NotSent) -> None:
    gateway = FakeGateway("unipile", {ANN: answer})

    assert write(gateway, TEXT, INVITATION) == [refused, refused]
    assert gateway.paths == [ANN, ANN]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "Ann Lee", "sources": [{"status": "OK"}]}, "LinkedIn (Unipile) API v1 as Ann Lee"),
        ({"sources": "odd"}, "LinkedIn (Unipile) API v1 as a 1"),
    ],
    ids=["whole", "without a name"],
)
def test_an_account_says_who_it_is(body: dict[str, Any], words: str) -> None:
    gateway = FakeGateway("unipile", {ACCOUNT: Answer(200, body)})

    assert gateway.use(lambda transport: transport.check()) == words
    assert gateway.requests[0].headers["Accept"] == "application/json"


@pytest.mark.parametrize(
    ("states", "kind", "named"),
    [
        (["OK", "STOPPED", "CREDENTIALS"], Kind.AUTH, "STOPPED"),
        (["CREDENTIALS"], Kind.AUTH, "CREDENTIALS"),
        (["STOPPED", "OK"], Kind.UNAVAILABLE, "STOPPED"),
    ],
)
def test_an_account_that_is_not_well_says_so(states: list[str], kind: Kind, named: str) -> None:
    gateway = FakeGateway("unipile", {ACCOUNT: Answer(200, {"sources": [{"status": state} for state in states]})})

    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.check())
    assert (caught.value.kind, caught.value.detail) == (kind, f"Unipile says that this account is {named}.")


@pytest.mark.parametrize("refused", [Answer(401, {}), Answer(404, {})], ids=["not signed in", "no such account"])
def test_a_check_that_is_refused_says_so(refused: Answer) -> None:
    with pytest.raises(CheckFailed) as caught:
        FakeGateway("unipile", {ACCOUNT: refused}).use(lambda transport: transport.check())
    assert caught.value.kind is Kind.AUTH
