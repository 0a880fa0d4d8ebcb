"""WAHA against a scripted server, and what each of its documented answers means."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.base import (
    AccountConfig,
    CheckFailed,
    Contact,
    Group,
    Handle,
    Kind,
    Media,
    NotSent,
    Part,
    Sent,
    Unknown,
    UploadFailed,
)
from accounts.channels.http import Answer
from accounts.channels.paired import address_of
from accounts.channels.sandbox.provider import CLOSED, SILENT
from accounts.channels.settings import BadSetting
from accounts.channels.waha import conversion
from accounts.channels.waha import transport as waha_transport
from accounts.channels.waha.transport import (
    WahaTransport,
    contact_of,
    group_of,
    outcome_of,
    own_id,
    refusal,
    short_id,
)
from tests.channels.contract import CONTENT, TEXT, Rig, TransportContract, media, send, use
from tests.gateways.fake_gateway import FakeGateway, items
from tests.gateways.process import GatewayRig, GatewayServer, judge
from tests.gateways.server import hidden_id


class WahaRig(GatewayRig):
    channel = "waha"

    def settings(self) -> dict[str, Any]:
        return {"session": "default"}

    def secrets(self) -> dict[str, Any]:
        return {"api_key": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("waha"), "waha") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (
        Kind.AUTH,
        Kind.RATE_LIMITED,
        Kind.NEW_CHATS_BLOCKED,
        Kind.RECIPIENT_GONE,
        Kind.UNAVAILABLE,
        Kind.CONTENT_REJECTED,
    )

    @pytest.fixture
    def rig(self, server: GatewayServer) -> Rig:
        return WahaRig(server)

    def test_a_drop_after_acceptance_is_unknown(self, rig: Rig) -> None:
        """Not where the gateway can be asked for the id that we gave the text."""
        rig.drop_after_accept()

        assert isinstance(send(rig, TEXT, "m-1"), Sent)
        assert len(rig.received()) == 1

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "WAHA 2026.7.1 (GOWS) as Choir office +4917612345678"

    def test_an_old_number_in_brazil_gets_it_by_its_id(self, rig: Rig) -> None:
        rig.address = "+5531987654321"

        assert isinstance(send(rig, TEXT, "m-1"), Sent)
        assert [received.to for received in rig.received()] == ["+553187654321"]

    def test_the_number_behind_a_hidden_id_is_told(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.number_behind(hidden_id("+4917612345678"))) == "+4917612345678"

    def test_a_failed_upload_says_why(self, rig: Rig) -> None:
        """Only videos and voice messages are prepared."""
        rig.fail_upload()

        with pytest.raises(UploadFailed) as caught:
            use(rig, lambda transport: transport.prepare(replace(media(), kind="video")))
        assert caught.value.reason.kind is Kind.CONTENT_REJECTED
        assert caught.value.reason.detail

    def test_groups_have_name_and_size(self, rig: Rig) -> None:
        groups = use(rig, lambda transport: transport.groups())

        assert len(groups) == 7
        assert groups[0] == Group("120363000000000001@g.us", "Group 1", 11)


# -- what the answers mean --------------------------------------------------------------------------------


def exception(message: str, **more: Any) -> dict[str, Any]:
    return {"statusCode": 500, "exception": {"message": message, **more}, "request": {"body": {"text": "s3cret"}}}


SESSION = {"error": "no", "session": "acme", "status": "STARTING", "expected": ["WORKING"]}


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        pytest.param(201, {"id": "true_49176@c.us_3EB0CC"}, Sent("3EB0CC"), id="serialised id"),
        pytest.param(201, {"id": "true_120363@g.us_3EB0CC_49176@c.us"}, Sent("3EB0CC"), id="group"),
        pytest.param(201, {"key": {"id": "3EB0CC"}}, Sent("3EB0CC"), id="NOWEB"),
        pytest.param(201, {"_data": {"id": {"_serialized": "true_49@c.us_3A"}}}, Sent("3A"), id="WEBJS"),
        pytest.param(201, {"_data": {"Info": {"ID": "3EB0"}}}, Sent("3EB0"), id="GOWS"),
        pytest.param(201, {}, Unknown, id="201 and an empty body"),
        pytest.param(400, {"message": ["chatId must be a string"]}, Kind.CONTENT_REJECTED, id="schema"),
        pytest.param(401, {"message": "Unauthorized", "statusCode": 401}, Kind.AUTH, id="key"),
        pytest.param(404, {"message": "Session not found"}, Kind.AUTH, id="no session"),
        pytest.param(413, {}, Kind.CONTENT_REJECTED, id="too large"),
        pytest.param(422, SESSION, Kind.UNAVAILABLE, id="not working"),
        pytest.param(422, {"message": "unprocessable"}, Kind.CONTENT_REJECTED, id="other 422"),
        pytest.param(500, exception("rate-overlimit", data=429), Kind.RATE_LIMITED, id="rate"),
        pytest.param(500, exception("2 UNKNOWN: server returned error 429"), Kind.RATE_LIMITED, id="GOWS rate"),
        pytest.param(500, exception("2 UNKNOWN: batch 1: server returned error 463"), Kind.NEW_CHATS_BLOCKED, id="463"),
        pytest.param(500, exception("2 UNKNOWN: server returned error 400"), Kind.UNKNOWN, id="400 while working"),
        pytest.param(500, exception("2 UNKNOWN: server returned error 503"), Kind.UNAVAILABLE, id="WhatsApp is down"),
        pytest.param(500, exception("no LID found for 49176 from server"), Kind.RECIPIENT_GONE, id="no LID"),
        pytest.param(500, exception("PayloadTooLargeError: too large"), Kind.CONTENT_REJECTED, id="base64 too large"),
        pytest.param(500, exception("4 DEADLINE_EXCEEDED: Deadline exceeded after 30s"), Unknown, id="GOWS time-out"),
        pytest.param(500, exception("Timed Out"), Unknown, id="NOWEB time-out"),
        pytest.param(500, exception("Evaluation failed"), Unknown, id="anything else"),
        pytest.param(500, {}, Unknown, id="500 without words"),
        pytest.param(502, {}, Unknown, id="proxy"),
        pytest.param(504, {}, Unknown, id="proxy's time-out"),
        pytest.param(302, {}, Unknown, id="redirect"),
        pytest.param(200, {"id": {"_serialized": "true_49@c.us_3A"}}, Sent("3A"), id="200, an older WEBJS"),
        pytest.param(202, {"id": "3A"}, Unknown, id="some other 2xx"),
        pytest.param(403, {"message": "Forbidden"}, Kind.AUTH, id="forbidden"),
        pytest.param(429, {"message": "slow"}, Kind.RATE_LIMITED, id="a proxy's rate"),
        pytest.param(500, exception("server returned error 404"), Kind.RECIPIENT_GONE, id="gone"),
        # Refusals of one message: a session that ends shows as 422.
        pytest.param(500, exception("server returned error 401"), Kind.UNKNOWN, id="one message is refused"),
        pytest.param(500, exception("server returned error 500"), Kind.UNKNOWN, id="WhatsApp's own 500"),
        pytest.param(
            500,
            exception("2 UNKNOWN: failed to send message node: websocket not connected"),
            Kind.UNAVAILABLE,
            id="no connection",
        ),
        pytest.param(500, exception("2 UNKNOWN: websocket not connected"), Unknown, id="no connection in a second try"),
        pytest.param(500, exception("the store doesn't contain a device JID"), Kind.UNAVAILABLE, id="not paired"),
        pytest.param(502, exception("rate-overlimit"), Unknown, id="certain words in another status"),
        pytest.param(400, SESSION, Kind.CONTENT_REJECTED, id="expected, but no 422"),
    ],
)
def test_every_documented_answer(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body)), outcome)


def test_a_wait_that_is_asked_for_is_kept() -> None:
    assert refusal(Answer(429, {"message": "slow"}, "17")) == NotSent(Kind.RATE_LIMITED, "HTTP 429 slow", 17.0)


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (422, SESSION, NotSent(Kind.UNAVAILABLE, "The session is STARTING, not WORKING.")),
        (400, {"message": ["a", "b"]}, NotSent(Kind.CONTENT_REJECTED, "HTTP 400 a, b")),
        (401, {"error": "No"}, NotSent(Kind.AUTH, "HTTP 401 No")),
        (401, {"message": "key", "error": "No"}, NotSent(Kind.AUTH, "HTTP 401 key")),
        (500, exception("rate-overlimit"), NotSent(Kind.RATE_LIMITED, "HTTP 500 rate-overlimit")),
        (500, exception("Oops") | {"message": "x"}, NotSent(Kind.UNAVAILABLE, "HTTP 500 Oops")),
        (503, {}, NotSent(Kind.UNAVAILABLE, "HTTP 503")),
    ],
    ids=["a session", "two reasons", "an error", "a message", "certain", "an exception", "down"],
)
def test_a_refusal_in_words(status: int, body: dict[str, Any], refused: NotSent) -> None:
    assert refusal(Answer(status, body)) == refused


@pytest.mark.parametrize(
    ("serialised", "short"),
    [
        ("true_49176@c.us_3EB0", "3EB0"),
        ("false_49176@c.us_3EB0", "3EB0"),
        ("true_1203@g.us_3EB0_49176@c.us", "3EB0"),
        ("3EB0", "3EB0"),
        ("true_3EB0", "true_3EB0"),
        ("a_b_c", "a_b_c"),
    ],
)
def test_the_id_that_receipts_name(serialised: str, short: str) -> None:
    assert short_id(serialised) == short


def test_the_echo_of_our_request_is_never_shown() -> None:
    outcome = outcome_of(Answer(500, exception("Evaluation failed")))

    assert "s3cret" not in repr(outcome)
    assert "Evaluation failed" in repr(outcome)


# -- what is asked for ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _nothing_converted(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    settings.MEDIA_ROOT = tmp_path
    monkeypatch.setattr("accounts.channels.waha.transport.CONVERTED", {})
    monkeypatch.setattr("accounts.channels.waha.transport.WHILE_SENDING", {})


def requested(part: Part, address: str = "+4917612345678", url: str | None = None) -> tuple[str, dict[str, Any]]:
    """The request, at a server that converts only while sending."""
    config = AccountConfig(1, "waha", "Line", "", {"url": "https://waha.example"}, {"api_key": "k"})
    transport = WahaTransport(replace(config, media_url=lambda media: url))

    async def unable(media: Media, kind: str, patience: float = 0) -> str:
        return ""

    async def old(self: Any = None) -> tuple[str, str]:
        return "2025.1.1", "GOWS"

    transport._converted = unable  # type: ignore[method-assign, assignment]
    transport._version = old  # type: ignore[method-assign]
    made = asyncio.run(transport.message(address, part, "m-1"))
    return made.path, json.loads(made.content)


def part_of(kind: str, file: Media | None = None) -> Part:
    return Part("1:0", 0, kind, "Hello", media=file or media())


def test_a_person_is_never_a_jid_of_another_library() -> None:
    assert requested(Part("1:0", 0, "text", "Hello")) == (
        "/api/sendText",
        {"session": "default", "chatId": "4917612345678@c.us", "text": "Hello"},
    )


@pytest.mark.parametrize(
    ("kind", "path", "extra"),
    [
        ("image", "/api/sendImage", {"caption": "Hello"}),
        ("document", "/api/sendFile", {"caption": "Hello"}),
        ("video", "/api/sendVideo", {"caption": "Hello", "convert": True}),
        # A voice message shows no caption.
        ("audio", "/api/sendFile", {"caption": "Hello"}),
    ],
)
def test_files(kind: str, path: str, extra: dict[str, Any]) -> None:
    data = base64.b64encode(CONTENT).decode()
    file = {"mimetype": "image/png", "filename": "poster.png"}
    chat = {"session": "default", "chatId": "1203@g.us"}

    assert requested(part_of(kind), "1203@g.us") == (path, chat | extra | {"file": file | {"data": data}})
    assert requested(part_of(kind), "1203@g.us", "https://crier.example/f/x")[1]["file"] == file | {
        "url": "https://crier.example/f/x"
    }


def test_a_voice_message() -> None:
    path, body = requested(replace(part_of("audio"), text=""), url="https://crier.example/f/x")

    assert (path, body["convert"], "caption" in body) == ("/api/sendVoice", True, False)


@pytest.mark.parametrize("key", ["k", " k\n"])
def test_a_key_from_a_file_loses_its_line_break(key: str) -> None:
    config = AccountConfig(1, "waha", "Line", "", {"url": "https://waha.example"}, {"api_key": key})

    assert WahaTransport(config).headers == {"X-Api-Key": "k"}


def test_a_key_that_would_be_two_headers_is_refused() -> None:
    config = AccountConfig(1, "waha", "Line", "", {"url": "https://waha.example"}, {"api_key": "k\r\nX: s3cret"})

    with pytest.raises(BadSetting, match="line break") as caught:
        WahaTransport(config)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_gone_is_a_refusal() -> None:
    def gone() -> bytes:
        raise FileNotFoundError(2, "No such file")

    config = AccountConfig(1, "waha", "Line", "", {"url": "https://waha.example"}, {"api_key": "k"})
    part = part_of("image", replace(media(), read=gone))
    outcome = asyncio.run(WahaTransport(config).send("1203@g.us", part, "m-1"))

    assert outcome == NotSent(Kind.CONTENT_REJECTED, "poster.png cannot be read: No such file")


@pytest.mark.parametrize(
    ("item", "group"),
    [
        ({"JID": "1@g.us", "Name": "", "ParticipantCount": 3}, Group("1@g.us", "", 3)),
        ({"id": "1@g.us", "subject": "Choir", "size": 4, "announce": True}, Group("1@g.us", "Choir", 4, True)),
        ({"id": {"_serialized": "1@g.us"}, "name": "Choir"}, Group("1@g.us", "Choir")),
        ({"id": 7, "subject": None, "size": "many"}, Group("7")),
        (
            {"id": "1@g.us", "groupMetadata": {"subject": "Choir", "announce": True}},
            Group("1@g.us", "Choir", None, True),
        ),
        ({"JID": "1@g.us", "Name": "Choir", "IsAnnounce": True, "size": 5}, Group("1@g.us", "Choir", 5, True)),
        ({"JID": "1@g.us", "id": "x", "Name": "a", "subject": "b", "name": "c"}, Group("1@g.us", "a")),
        ({"id": "1@g.us", "subject": "b", "name": "c", "announce": "yes"}, Group("1@g.us", "b")),
        ({"id": "1@g.us", "ParticipantCount": 3, "size": 5}, Group("1@g.us", "", 3)),
    ],
    ids=["GOWS", "NOWEB", "WEBJS", "odd", "metadata", "admins only", "several names", "two names", "two sizes"],
)
def test_groups_of_every_engine(item: dict[str, Any], group: Group) -> None:
    assert group_of(item) == group


# -- over a connection ------------------------------------------------------------------------------------

SESSION_PATH = "/api/sessions/my%20line"
ME = {"id": "4917612345678@c.us", "pushName": "Choir office"}


@pytest.mark.parametrize(
    ("me", "words"),
    [
        (ME, "WAHA as Choir office +4917612345678"),
        ({"pushName": "Choir office"}, "WAHA as Choir office"),
        ({"id": "4917612345678@c.us"}, "WAHA as WhatsApp +4917612345678"),
        (None, "WAHA as WhatsApp"),
    ],
    ids=["whole", "no number", "no name", "nothing"],
)
def test_a_session_that_works_says_who_it_is(me: Any, words: str) -> None:
    gateway = FakeGateway("waha", {SESSION_PATH: Answer(200, {"status": "WORKING", "me": me})})

    assert gateway.use(lambda transport: transport.check()) == words


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"version": "2026.7.1", "engine": "GOWS", "tier": "PLUS", "browser": None},
            "WAHA 2026.7.1 (GOWS) as Choir office",
        ),
        ({"version": "2026.1"}, "WAHA 2026.1 as Choir office"),
        (
            {"version": "2025.12.3", "engine": "NOWEB"},
            "WAHA 2025.12.3 (NOWEB) as Choir office. Crier is tested with WAHA 2026; what version 2025.12.3 answers "
            "may be misread.",
        ),
        (
            {"version": "2027.1.1"},
            "WAHA 2027.1.1 as Choir office. Crier is tested with WAHA 2026; what version 2027.1.1 answers may be "
            "misread.",
        ),
        ({"version": None, "engine": []}, "WAHA as Choir office"),
    ],
    ids=["whole", "no engine", "older", "newer", "odd"],
)
def test_the_version_is_told_and_compared(told: dict[str, Any], words: str) -> None:
    session = Answer(200, {"status": "WORKING", "me": {"pushName": "Choir office"}})
    gateway = FakeGateway("waha", {SESSION_PATH: session, "/api/server/version": Answer(200, told)})

    assert gateway.use(lambda transport: transport.check()) == words


def test_a_session_that_does_not_work_says_so() -> None:
    gateway = FakeGateway("waha", {SESSION_PATH: Answer(200, {"status": "SCAN_QR_CODE", "me": ME})})

    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.check())
    assert caught.value.kind is Kind.UNAVAILABLE
    assert caught.value.detail == "The session “my line” is SCAN_QR_CODE, not WORKING."


def page(*names: str) -> Answer:
    return items(*({"JID": f"{name[0]}@g.us", "Name": name} for name in names))


@pytest.mark.parametrize(
    ("pages", "names", "offsets"),
    [
        ([page("a", "b"), page("c")], ["a", "b", "c"], ["0", "2"]),
        ([page("a", "b"), page()], ["a", "b"], ["0", "2"]),
        ([page("a")], ["a"], ["0"]),
        ([page("a", "b"), page("b again", "c"), page("d")], ["a", "b", "c", "d"], ["0", "2", "3"]),
        ([page("a", "b"), page("a again", "b again")], ["a", "b"], ["0", "2"]),
        ([page("a", "b", "c", "d"), page("a", "b", "c", "d")], ["a", "b", "c", "d"], ["0", "4"]),
        ([Answer(200, {"1@g.us": {"id": "1@g.us", "subject": "a"}, "x": "odd"})], ["a"], ["0"]),
    ],
    ids=["two", "an empty last one", "one", "they overlap", "always the same", "no pages", "an object by JID"],
)
def test_groups_of_all_pages(
    pages: list[Answer], names: list[str], offsets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.channels.waha.transport.PAGE", 2)
    gateway = FakeGateway("waha", {"/api/my%20line/groups": pages})

    assert [group.name for group in gateway.use(lambda transport: transport.groups())] == names
    assert [request.query["offset"] for request in gateway.requests] == offsets


def test_groups_are_asked_for_by_500_without_their_members() -> None:
    gateway = FakeGateway("waha", {"/api/my%20line/groups": page("a")})

    gateway.use(lambda transport: transport.groups())
    assert gateway.requests[0].query == {"limit": "500", "offset": "0", "sortBy": "id", "exclude": "participants"}


def person(number: str, **more: Any) -> dict[str, Any]:
    return {"id": f"{number}@c.us", "name": "Ann", "isMyContact": True, **more}


@pytest.mark.parametrize(
    ("item", "contact"),
    [
        (person("4917612345678"), Contact("+4917612345678", "Ann")),
        (person("4917612345678", name=None, pushname="Annie"), Contact("+4917612345678", "Annie")),
        (person("4917612345678", pushname="Annie"), Contact("+4917612345678", "Ann")),
        (person("4917612345678", isMyContact=False), None),
        (person("4917612345678", isMyContact="yes"), None),
        # GOWS and NOWEB do not say who is in the address book: those have the name that is saved there.
        ({"id": "4917612345678@c.us", "name": "Ann", "pushname": "Annie"}, Contact("+4917612345678", "Ann")),
        ({"id": "4917612345678@c.us", "name": "", "pushname": "Annie"}, None),
        ({"id": "4917612345678@c.us", "pushname": "Annie"}, None),
        (person("x", id="999@lid"), None),
        (person("x", id="120363025246125486@g.us"), None),
        (None, None),
    ],
    ids=[
        "whole",
        "their own name",
        "two names",
        "only seen",
        "odd",
        "GOWS",
        "only seen by GOWS",
        "only seen by NOWEB",
        "hidden",
        "a group",
        "nothing",
    ],
)
def test_who_is_in_the_address_book(item: Any, contact: Contact | None) -> None:
    assert contact_of(item) == contact


def test_contacts_of_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.channels.waha.transport.PAGE", 2)
    seen = person("4917612345670", isMyContact=False)
    pages = [items(person("4917612345671"), seen), items(seen, person("4917612345672")), items(seen)]
    gateway = FakeGateway("waha", {"/api/contacts/all": pages})

    contacts = gateway.use(lambda transport: transport.contacts())

    assert contacts == [Contact("+4917612345671", "Ann"), Contact("+4917612345672", "Ann")]
    assert [request.query["offset"] for request in gateway.requests] == ["0", "2", "4"]
    assert {request.query["session"] for request in gateway.requests} == {"my line"}


def test_contacts_are_asked_for_by_500_and_no_list_is_none() -> None:
    gateway = FakeGateway("waha", {"/api/contacts/all": Answer(200, {"contacts": []})})

    assert gateway.use(lambda transport: transport.contacts()) == []
    (request,) = gateway.requests
    assert request.query == {"session": "my line", "limit": "500", "offset": "0", "sortBy": "id"}


def test_an_address_book_without_an_end_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.channels.waha.transport.PAGE", 25_000)
    gateway = FakeGateway("waha", {"/api/contacts/all": items(*([0] * 25_000))})

    assert gateway.use(lambda transport: transport.contacts()) == []
    assert [request.query["offset"] for request in gateway.requests] == ["0", "25000"]


# -- ids that differ from the number ----------------------------------------------------------------------

EXISTS = "/api/contacts/check-exists"
VERSION = "/api/server/version"
BRAZIL = "+5531987654321"


def sent_to(
    address: str, exists: Answer | list[Answer], times: int = 1, **config: Any
) -> tuple[FakeGateway, list[Any]]:
    """Send a text so many times; the outcomes."""
    gateway = FakeGateway(
        "waha", {VERSION: Answer(418, {}), EXISTS: exists, "/api/sendText": Answer(201, {"id": "3EB0"})}
    )

    async def send_all(transport: Any) -> list[Any]:
        return [await transport.send(address, Part("1:0", 0, "text", "Hello"), f"m-{n}") for n in range(times)]

    return gateway, gateway.use(send_all, **config)


@pytest.mark.parametrize(
    ("address", "chat"),
    [
        (BRAZIL, "553187654321@c.us"),
        ("+541123456789", "5491123456789@c.us"),
        ("+525512345678", "5215512345678@c.us"),
        (BRAZIL, "104876543210987@lid"),
    ],
    ids=["Brazil", "Argentina", "Mexico", "hidden"],
)
def test_a_number_with_an_id_of_its_own_is_looked_up_once(address: str, chat: str) -> None:
    gateway, outcomes = sent_to(address, Answer(200, {"numberExists": True, "chatId": chat}), times=2)

    known_as = chat if chat.endswith("@lid") else address_of(chat)
    assert outcomes == [Sent("3EB0", known_as if known_as != address else "")] * 2
    assert gateway.paths == [EXISTS, VERSION, "/api/sendText", "/api/sendText"]
    assert gateway.requests[0].query == {"phone": address[1:], "session": "my line"}
    assert {request.json()["chatId"] for request in gateway.requests[2:]} == {chat}


def test_a_look_up_without_an_id_leaves_the_number() -> None:
    gateway, outcomes = sent_to(BRAZIL, Answer(200, {"numberExists": True}))

    assert outcomes == [Sent("3EB0")]
    assert gateway.requests[-1].json()["chatId"] == "5531987654321@c.us"


@pytest.mark.parametrize("address", ["+4917612345678", "120363025246125486@g.us"])
def test_other_chats_are_not_looked_up(address: str) -> None:
    assert sent_to(address, Answer(200, {}))[0].paths == [VERSION, "/api/sendText"]


# -- ids of our own ---------------------------------------------------------------------------------------

OWN = own_id("m-1")
ASKED = f"/api/my%20line/chats/1203@g.us/messages/true_1203@g.us_{OWN}"
NEW = Answer(200, {"version": "2026.4.3", "engine": "GOWS"})


def send_text(version: Answer, answer: Answer, asked: Answer | None = None) -> tuple[FakeGateway, Any]:
    gateway = FakeGateway("waha", {VERSION: version, "/api/sendText": answer, ASKED: asked or Answer(404, {})})
    part = Part("1:0", 0, "text", "Hello")
    return gateway, gateway.use(lambda transport: transport.send("1203@g.us", part, "m-1"))


@pytest.mark.parametrize(
    ("version", "engine", "takes"),
    [
        ("2026.4.3", "GOWS", True),
        ("2026.10.1", "NOWEB", True),
        ("2027.1", "GOWS", True),
        ("2026.4.3", "WEBJS", False),
        ("2026.4.2", "GOWS", False),
        ("2025.12.9", "NOWEB", False),
        ("", "", False),
    ],
)
def test_a_text_has_our_id_where_the_server_takes_it(version: str, engine: str, takes: bool) -> None:
    gateway, _ = send_text(Answer(200, {"version": version, "engine": engine}), Answer(201, {"id": "3EB0"}))

    assert gateway.requests[-1].json().get("id") == (OWN if takes else None)


@pytest.mark.parametrize(
    ("answer", "asked", "outcome"),
    [
        (Answer(CLOSED, {}), Answer(200, {"id": f"true_1203@g.us_{OWN}"}), Sent(OWN)),
        (Answer(CLOSED, {}), Answer(404, {}), OWN),
        (Answer(CLOSED, {}), Answer(200, {"id": "true_1203@g.us_3EB0OTHER"}), OWN),
        (Answer(500, {"exception": {"message": "4 DEADLINE_EXCEEDED"}}), Answer(CLOSED, {}), OWN),
        (Answer(CLOSED, {}), Answer(200, {"id": f"true_1203@g.us_{OWN}", "ack": 1}), Sent(OWN)),
        # An earlier try with the same id was refused.
        (Answer(CLOSED, {}), Answer(200, {"id": f"true_1203@g.us_{OWN}", "ack": -1}), OWN),
    ],
    ids=["it went out", "not found", "another one", "no answer", "WhatsApp has it", "refused before"],
)
def test_an_uncertain_text_is_asked_for(answer: Answer, asked: Answer, outcome: Any) -> None:
    gateway, told = send_text(NEW, answer, asked)

    assert gateway.paths[-1] == ASKED
    if isinstance(outcome, Sent):
        assert told == outcome
    else:
        # Receipts will name it.
        assert (type(told), told.provider_id) == (Unknown, outcome)


def test_a_certain_refusal_is_not_asked_for() -> None:
    gateway, told = send_text(NEW, Answer(401, {"message": "no"}))

    assert gateway.paths == [VERSION, "/api/sendText"]
    assert isinstance(told, NotSent)


@pytest.mark.parametrize(
    ("exists", "kind"),
    [
        (Answer(200, {"numberExists": False}), Kind.RECIPIENT_GONE),
        (Answer(500, exception("rate-overlimit")), Kind.RATE_LIMITED),
        (Answer(422, SESSION), Kind.UNAVAILABLE),
        (Answer(401, {"message": "Unauthorized"}), Kind.AUTH),
        (Answer(CLOSED, {}), Kind.NETWORK),
        (Answer(SILENT, {}), Kind.NETWORK),
    ],
    ids=["not on WhatsApp", "too many", "not working", "key", "hung up", "silent"],
)
def test_a_look_up_that_fails_sends_nothing(exists: Answer, kind: Kind) -> None:
    gateway, (outcome,) = sent_to(BRAZIL, exists, timeout=0.4)

    judge(outcome, kind)
    assert set(gateway.paths) == {EXISTS}


LIDS = "/api/my%20line/lids/104876543210987@lid"


@pytest.mark.parametrize(
    ("hidden", "told", "number"),
    [
        ("104876543210987@lid", {"lid": "104876543210987@lid", "pn": "4917612345678@c.us"}, "+4917612345678"),
        ("104876543210987:3@lid", {"pn": "4917612345678@s.whatsapp.net"}, "+4917612345678"),
        ("104876543210987@lid", {"lid": "104876543210987@lid", "pn": None}, ""),
        ("104876543210987@lid", {"pn": "104876543210987@lid"}, ""),
        ("104876543210987@lid", {"pn": "120363025246125486@g.us"}, ""),
    ],
    ids=["whole", "a device", "not known", "hidden again", "a group"],
)
def test_the_number_behind_a_hidden_id(hidden: str, told: dict[str, Any], number: str) -> None:
    gateway = FakeGateway("waha", {LIDS: Answer(200, told)})

    assert gateway.use(lambda transport: transport.number_behind(hidden)) == number
    assert gateway.paths == [LIDS]


@pytest.mark.parametrize(("answer", "kind"), [(Answer(422, SESSION), Kind.UNAVAILABLE), (Answer(404, {}), Kind.AUTH)])
def test_a_hidden_id_that_could_not_be_asked_for_is_trouble(answer: Answer, kind: Kind) -> None:
    gateway = FakeGateway("waha", {LIDS: answer})

    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.number_behind("104876543210987@lid"))
    assert caught.value.kind is kind


def test_only_hidden_ids_are_asked_for() -> None:
    gateway = FakeGateway("waha", {})

    assert gateway.use(lambda transport: transport.number_behind("4917612345678@c.us")) == ""
    assert gateway.requests == []


# -- conversion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "path", "send", "file"),
    [
        ("video", "video", "sendVideo", {"mimetype": "video/mp4", "filename": "poster.mp4"}),
        ("audio", "voice", "sendVoice", {"mimetype": "audio/ogg; codecs=opus", "filename": "poster.ogg"}),
    ],
)
def test_a_file_is_converted_once_for_all_recipients(kind: str, path: str, send: str, file: dict[str, str]) -> None:
    convert, small = f"/api/my%20line/media/convert/{path}", b"smaller"
    raw: Any = small
    gateway = FakeGateway("waha", {convert: Answer(201, raw), f"/api/{send}": Answer(201, {"id": "3EB0"})})
    part = Part("1:0", 0, kind, media=replace(media(), kind=kind))

    async def prepare_and_send(transport: Any) -> list[Any]:
        handle = await transport.prepare(part.media)
        assert handle.expires_at is not None
        return [await transport.send("1203@g.us", replace(part, handle=handle.value), f"m-{n}") for n in range(3)]

    assert gateway.use(prepare_and_send) == [Sent("3EB0")] * 3
    assert gateway.paths == [convert, *[f"/api/{send}"] * 3]
    assert gateway.requests[0].json() == {"data": base64.b64encode(CONTENT).decode()}
    body = gateway.requests[1].json()
    assert body["convert"] is False
    assert body["file"] == file | {"data": base64.b64encode(small).decode()}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(500, exception("ffmpeg exited with code 1: Invalid data found")), Kind.UNKNOWN),
        (Answer(422, SESSION), Kind.UNAVAILABLE),
        (Answer(CLOSED, {}), Kind.NETWORK),
        (Answer(200, b""), Kind.UNAVAILABLE),  # type: ignore[arg-type]
    ],
    ids=["not a video", "not working", "hung up", "empty"],
)
def test_a_conversion_that_fails_says_why_and_sends_nothing(answer: Answer, kind: Kind) -> None:
    video = replace(media(), kind="video")
    gateway = FakeGateway("waha", {"/api/my%20line/media/convert/video": answer})

    with pytest.raises(UploadFailed) as caught:
        gateway.use(lambda transport: transport.prepare(video))
    assert caught.value.reason.kind is kind
    assert kind is not Kind.UNKNOWN or caught.value.reason.detail.startswith(
        "WAHA could not convert “poster.png”: ffmp"
    )
    judge(gateway.use(lambda transport: transport.send("1203@g.us", Part("1:0", 0, "video", media=video), "m-1")), kind)
    assert not any(path.startswith("/api/send") for path in gateway.paths)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, {"message": "Cannot POST /api/my line/media/convert/video", "statusCode": 404}),
        Answer(422, {"message": "The feature is available only in Plus version"}),
    ],
    ids=["older", "the free edition"],
)
def test_a_server_that_does_not_convert_beforehand_does_it_while_sending(answer: Answer) -> None:
    convert = "/api/my%20line/media/convert/video"
    gateway = FakeGateway("waha", {convert: answer, "/api/sendVideo": Answer(201, {"id": "3EB0"})})
    part = Part("1:0", 0, "video", media=media())

    async def twice(transport: Any) -> list[Any]:
        return [await transport.send("1203@g.us", part, f"m-{n}") for n in range(2)]

    assert gateway.use(twice) == [Sent("3EB0")] * 2
    assert gateway.paths == [convert, "/api/sendVideo", "/api/sendVideo"]
    assert gateway.requests[1].json()["convert"] is True


def test_a_picture_needs_no_preparation() -> None:
    gateway = FakeGateway("waha", {})

    assert gateway.use(lambda transport: transport.prepare(media())) == Handle("")
    assert gateway.requests == []


def test_old_conversions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.channels.waha.transport.MOST_CONVERTED", 10)
    raw: Any = b"12345"
    gateway = FakeGateway("waha", {"/api/my%20line/media/convert/video": Answer(201, raw)})

    async def prepare_all(transport: Any) -> None:
        for sha in ("a", "b", "b"):
            await transport.prepare(replace(media(), kind="video", sha256=sha))

    gateway.use(prepare_all)
    assert len(gateway.requests) == 2
    assert [path.name.partition("-")[0] for path in waha_transport.CONVERTED] == ["b"]


class SlowGateway(FakeGateway):
    """Converts when it is told to."""

    def __init__(self) -> None:
        raw: Any = b"smaller"
        super().__init__("waha", {CONVERT: Answer(201, raw), "/api/sendVideo": Answer(201, {"id": "3EB0"})})
        self.done = asyncio.Event()

    async def _handle(self, request: Any) -> Any:
        if request.path.endswith("/convert/video"):
            await self.done.wait()
        return await super()._handle(request)


CONVERT = "/api/my%20line/media/convert/video"
VIDEO = replace(media(), kind="video", filename="choir.mov")


async def refused_upload(transport: Any) -> NotSent:
    with pytest.raises(UploadFailed) as caught:
        await transport.prepare(VIDEO)
    return caught.value.reason


def test_a_long_conversion_goes_on_while_the_lane_does_other_things(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also across slices and restarts: the file is converted once."""
    monkeypatch.setattr(waha_transport.WahaTransport._converted, "__defaults__", (0.05,))
    gateway = SlowGateway()

    async def convert_and_send(transport: Any) -> Any:
        for _ in range(3):
            reason = await refused_upload(transport)
            assert (reason.kind, reason.retry_after) == (Kind.UNAVAILABLE, 10.0)
            assert reason.detail.startswith("WAHA is converting “choir.mov”, since 0 s")
        gateway.done.set()
        await asyncio.wait([asyncio.wrap_future(job.result) for job in conversion.UNDER_WAY.values()], timeout=60)
        await transport.prepare(VIDEO)
        waha_transport.CONVERTED.clear()  # another process
        await transport.prepare(VIDEO)
        return await transport.send("1203@g.us", Part("1:0", 0, "video", media=VIDEO, handle="video"), "m-1")

    assert gateway.use(convert_and_send) == Sent("3EB0")
    assert gateway.paths == [CONVERT, "/api/sendVideo"]
    assert gateway.requests[1].json()["file"]["filename"] == "choir.mp4"


def test_a_conversion_that_takes_too_long_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "CONVERT_SECONDS", 0.1)
    reason = SlowGateway().use(refused_upload)

    assert (reason.kind, reason.retry_after) == (Kind.UNAVAILABLE, 60.0), "the gateway may hang: no recipient fails"
    assert reason.detail.startswith("WAHA did not finish converting “choir.mov” within")
    assert "shorten it, or convert it before you upload it: videos to MP4" in reason.detail


def test_a_failure_is_told_to_the_lane_that_looks_again_and_not_to_a_later_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waha_transport.WahaTransport._converted, "__defaults__", (0.05,))
    gateway = SlowGateway()
    gateway.answers[CONVERT] = [Answer(500, exception("ffmpeg exited with code 1"))]

    async def fail_unseen(transport: Any) -> conversion.Job:
        gateway.done.clear()
        assert "is converting" in (await refused_upload(transport)).detail
        (job,) = conversion.UNDER_WAY.values()
        gateway.done.set()
        await asyncio.to_thread(job.result.exception, 60)
        return job

    async def look_again(transport: Any) -> None:
        await fail_unseen(transport)
        assert "ffmpeg exited" in (await refused_upload(transport)).detail
        assert len(gateway.requests) == 1
        job = await fail_unseen(transport)
        job.ended -= 3600
        raw: Any = b"smaller"
        gateway.answers[CONVERT] = [Answer(201, raw)]
        monkeypatch.setattr(waha_transport.WahaTransport._converted, "__defaults__", (60.0,))
        await transport.prepare(VIDEO)
        assert len(gateway.requests) == 3

    gateway.use(look_again)


def test_a_file_that_another_process_renames_meanwhile_is_passed_over(tmp_path: Path) -> None:
    gateway = SlowGateway()
    gateway.done.set()
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted" / "listed.part").symlink_to(tmp_path / "and gone")

    assert gateway.use(lambda transport: transport.prepare(VIDEO)).value == "video"


def test_a_folder_that_cannot_be_written_fails_no_recipient(tmp_path: Path) -> None:
    (tmp_path / "converted").touch()

    reason = SlowGateway().use(refused_upload)
    assert (reason.kind, reason.retry_after) == (Kind.UNAVAILABLE, 60.0)
    assert reason.detail == "The converted form of “choir.mov” cannot be stored: File exists"


def test_a_conversion_of_another_process_is_waited_for_until_it_must_be_over() -> None:
    gateway = SlowGateway()
    gateway.done.set()

    async def meet(transport: Any) -> Handle:
        part = conversion.path_of(transport.base, VIDEO.sha256, "video").with_suffix(".part")
        part.parent.mkdir()
        part.touch()
        assert "is converting" in (await refused_upload(transport)).detail
        assert not gateway.requests
        os.utime(part, (0, time.time() - 400))
        made: Handle = await transport.prepare(VIDEO)
        assert not part.exists()
        return made

    assert gateway.use(meet).value == "video"


def test_converted_files_that_no_run_used_for_long_are_removed(tmp_path: Path) -> None:
    gateway = SlowGateway()
    gateway.done.set()
    old, young = tmp_path / "converted" / "old.mp4", tmp_path / "converted" / "young.mp4"
    old.parent.mkdir()
    for file, days in ((old, 31), (young, 29)):
        file.touch()
        os.utime(file, (0, time.time() - days * 86_400))

    gateway.use(lambda transport: transport.prepare(VIDEO))
    assert (old.exists(), young.exists()) == (False, True)
