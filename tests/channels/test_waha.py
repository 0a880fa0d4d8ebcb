"""WAHA against a scripted server, and what each of its documented answers means."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Group, Kind, Media, NotSent, Part, Sent, Unknown
from accounts.channels.fields import BadSetting
from accounts.channels.http import Answer
from accounts.channels.waha.answers import outcome_of, refusal
from accounts.channels.waha.transport import WahaTransport, group_of
from tests.channels.contract import CONTENT, Rig, TransportContract, media, use
from tests.gateways.process import GatewayRig, GatewayServer, judge


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

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "WAHA as Choir office +4917612345678"

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
    ],
)
def test_every_documented_answer(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body)), outcome)


def test_a_wait_that_is_asked_for_is_kept() -> None:
    assert refusal(Answer(429, {"message": "slow"}, "17")) == NotSent(Kind.RATE_LIMITED, "HTTP 429 slow", 17.0)


def test_the_echo_of_our_request_is_never_shown() -> None:
    outcome = outcome_of(Answer(500, exception("Evaluation failed")))

    assert "s3cret" not in repr(outcome)
    assert "Evaluation failed" in repr(outcome)


# -- what is asked for ------------------------------------------------------------------------------------


def requested(part: Part, address: str = "+4917612345678", url: str | None = None) -> tuple[str, dict[str, Any]]:
    config = AccountConfig(1, "waha", "Line", "", {"url": "https://waha.example"}, {"api_key": "k"})
    transport = WahaTransport(replace(config, media_url=lambda media: url))
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
    ],
    ids=["GOWS", "NOWEB", "WEBJS", "odd"],
)
def test_groups_of_every_engine(item: dict[str, Any], group: Group) -> None:
    assert group_of(item) == group
