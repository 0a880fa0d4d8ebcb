"""Evolution API against a scripted server, and what each of its answers means."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Group, Kind, Part, Sent, Unknown
from accounts.channels.evolution.answers import outcome_of
from accounts.channels.evolution.transport import EvolutionTransport
from accounts.channels.http import Answer
from tests.channels.contract import CONTENT, Rig, TransportContract, media, use
from tests.gateways.process import GatewayRig, GatewayServer, judge


class EvolutionRig(GatewayRig):
    channel = "evolution"

    def settings(self) -> dict[str, Any]:
        return {"instance": "acme"}

    def secrets(self) -> dict[str, Any]:
        return {"api_key": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("evolution"), "evolution") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (Kind.AUTH, Kind.RATE_LIMITED, Kind.RECIPIENT_GONE, Kind.UNAVAILABLE, Kind.CONTENT_REJECTED)

    @pytest.fixture
    def rig(self, server: GatewayServer) -> Rig:
        return EvolutionRig(server)

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "Evolution instance acme +4917612345678"

    def test_groups_have_name_and_size(self, rig: Rig) -> None:
        groups = use(rig, lambda transport: transport.groups())

        assert len(groups) == 7
        assert groups[0] == Group("120363000000000001@g.us", "Group 1", 11)


# -- what the answers mean --------------------------------------------------------------------------------


def error(status: int, message: Any) -> dict[str, Any]:
    return {"status": status, "error": "No", "response": {"message": message}}


GONE = [{"jid": "49176@s.whatsapp.net", "exists": False, "number": "49176"}]


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        pytest.param(201, {"key": {"id": "3EB0CC"}, "status": "PENDING"}, Sent("3EB0CC"), id="accepted"),
        pytest.param(201, {"status": "PENDING"}, Unknown, id="accepted without an id"),
        pytest.param(401, error(401, "Unauthorized"), Kind.AUTH, id="key"),
        pytest.param(404, error(404, ['The "x" instance does not exist']), Kind.AUTH, id="no instance"),
        pytest.param(400, error(400, GONE), Kind.RECIPIENT_GONE, id="not on WhatsApp"),
        pytest.param(400, error(400, ["Owned media must be a url or base64"]), Kind.CONTENT_REJECTED, id="media"),
        pytest.param(400, error(400, [["instance requires property"]]), Kind.CONTENT_REJECTED, id="schema"),
        pytest.param(400, error(400, ["Error: Connection Closed"]), Unknown, id="closed while sending"),
        pytest.param(400, error(400, ["Error: Invalid prisma invocation"]), Unknown, id="after it went out"),
        pytest.param(400, error(400, ["[object Object]"]), Unknown, id="an exception as text"),
        pytest.param(500, error(500, "Connection Closed"), Kind.UNAVAILABLE, id="closed before sending"),
        pytest.param(500, error(500, "anything"), Unknown, id="other 500"),
        pytest.param(413, {}, Kind.CONTENT_REJECTED, id="too large"),
        pytest.param(429, {}, Kind.RATE_LIMITED, id="limit of a proxy"),
        pytest.param(502, {}, Unknown, id="proxy"),
        pytest.param(307, {}, Unknown, id="redirect"),
    ],
)
def test_every_answer(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body), with_file=False), outcome)


def test_a_file_that_cannot_be_fetched_or_converted_is_the_contents_fault() -> None:
    failed = error(500, "Request failed with status code 404")

    judge(outcome_of(Answer(500, failed), with_file=True), Kind.CONTENT_REJECTED)
    judge(outcome_of(Answer(500, error(500, "Connection Closed")), with_file=True), Kind.UNAVAILABLE)


# -- what is asked for ------------------------------------------------------------------------------------


def requested(part: Part, address: str = "+4917612345678", url: str | None = None) -> tuple[str, dict[str, Any]]:
    settings = {"url": "https://evolution.example/", "instance": "my line"}
    config = AccountConfig(1, "evolution", "Line", "", settings, {"api_key": "k"}, media_url=lambda media: url)
    made = asyncio.run(EvolutionTransport(config).message(address, part, "m-1"))
    return made.path, json.loads(made.content)


def test_text_is_at_the_top() -> None:
    part = Part("1:0", 0, "text", "Hello")

    assert requested(part) == ("/message/sendText/my%20line", {"number": "4917612345678", "text": "Hello"})
    assert requested(part, "1203@g.us")[1]["number"] == "1203@g.us"


@pytest.mark.parametrize(
    ("kind", "sent_as"),
    # A voice message shows no caption.
    [("image", "image"), ("video", "video"), ("document", "document"), ("audio", "document")],
)
def test_files(kind: str, sent_as: str) -> None:
    part = Part("1:0", 0, kind, "Hello", media=media())
    path, body = requested(part)

    assert path == "/message/sendMedia/my%20line"
    assert body == {
        "number": "4917612345678",
        "mediatype": sent_as,
        "mimetype": "image/png",
        "fileName": "poster.png",
        "caption": "Hello",
        "media": base64.b64encode(CONTENT).decode(),
    }
    assert requested(part, url="https://crier.example/f")[1]["media"] == "https://crier.example/f"


def test_a_voice_message_has_a_call_of_its_own() -> None:
    part = replace(Part("1:0", 0, "audio"), media=media())

    path, body = requested(part, url="https://crier.example/f")

    assert (path, body) == (
        "/message/sendWhatsAppAudio/my%20line",
        {"number": "4917612345678", "audio": "https://crier.example/f"},
    )
