"""Evolution API against a scripted server, and what each of its answers means."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, CheckFailed, Group, Kind, NotSent, Part, Sent, Unknown
from accounts.channels.evolution.transport import EvolutionTransport, outcome_of, refusal
from accounts.channels.http import Answer
from tests.channels.contract import CONTENT, TEXT, Rig, TransportContract, media, send, use
from tests.gateways.fake_gateway import FakeGateway, items
from tests.gateways.process import GatewayRig, GatewayServer, judge

#: What its service may answer after the message went out: the text of whatever its own work then raised.
EXCEPTIONS = [
    "Error: Connection Closed",
    "Error",  # one without a message
    "PrismaClientKnownRequestError: \nInvalid `this.prismaRepository.message.create()` invocation",
    "PrismaClientValidationError: Argument `status` is missing",
    "PrismaClientInitializationError: Can't reach database server",
    "TypeError: Cannot read properties of undefined (reading 'key')",
    'TypeError [ERR_INVALID_ARG_TYPE]: The "data" argument must be of type string',
    "AxiosError: Request failed with status code 500",
    "SessionError: No sessions",
    "DriverException: lost",
    "[object Object]",
]
STATE, INSTANCES = "/instance/connectionState/my%20line", "/instance/fetchInstances"
GROUPS = "/group/fetchAllGroups/my%20line"


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
    def rig(self, server: GatewayServer) -> EvolutionRig:
        return EvolutionRig(server)

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "Evolution 2.3.7 instance acme +4917612345678"

    def test_groups_have_name_and_size(self, rig: Rig) -> None:
        groups = use(rig, lambda transport: transport.groups())

        assert len(groups) == 7
        assert groups[0] == Group("120363000000000001@g.us", "Group 1", 11)

    @pytest.mark.parametrize("words", EXCEPTIONS)
    def test_an_exception_after_the_send_is_unknown(self, rig: EvolutionRig, words: str) -> None:
        rig.script("error_after_accept", message=words)

        outcome = send(rig, TEXT, "m-1")

        assert isinstance(outcome, Unknown)
        assert words.split(":")[0] in outcome.detail
        assert [received.message_id for received in rig.received()] == ["m-1"]


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
        *(pytest.param(400, error(400, [words]), Unknown, id=words.partition(":")[0]) for words in EXCEPTIONS),
        pytest.param(400, error(400, ["a", "TypeError: b"]), Unknown, id="an exception among other words"),
        pytest.param(400, error(400, [["TypeError: b"]]), Unknown, id="an exception in a list of its own"),
        pytest.param(400, error(400, "TypeError: b"), Unknown, id="an exception without a list"),
        pytest.param(400, error(400, [*GONE, "TypeError: b"]), Unknown, id="an exception beside a number that is gone"),
        pytest.param(400, error(400, ["Text is required"]), Kind.CONTENT_REJECTED, id="no text"),
        pytest.param(400, error(400, ["The number has an Error: x"]), Kind.CONTENT_REJECTED, id="not an exception"),
        pytest.param(500, error(500, "rate-overlimit"), Kind.RATE_LIMITED, id="too many look-ups"),
        pytest.param(500, error(500, "Connection Closed"), Kind.UNAVAILABLE, id="closed before sending"),
        pytest.param(500, error(500, "anything"), Unknown, id="other 500"),
        pytest.param(413, {}, Kind.CONTENT_REJECTED, id="too large"),
        pytest.param(429, {}, Kind.RATE_LIMITED, id="limit of a proxy"),
        pytest.param(502, {}, Unknown, id="proxy"),
        pytest.param(307, {}, Unknown, id="redirect"),
        pytest.param(200, {"key": {"id": "3EB0CC"}}, Sent("3EB0CC"), id="accepted with a 200"),
        pytest.param(202, {"key": {"id": "3EB0CC"}}, Unknown, id="some other 2xx"),
        pytest.param(403, error(403, "Error: forbidden"), Kind.AUTH, id="forbidden"),
        pytest.param(400, {"message": "Error: x"}, Unknown, id="an error in other places"),
        pytest.param(400, {"error": "Bad"}, Kind.CONTENT_REJECTED, id="only its name"),
        pytest.param(501, error(501, "Connection Closed"), Unknown, id="no 500"),
    ],
)
def test_every_answer(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body), with_file=False), outcome)


def test_a_file_that_cannot_be_fetched_or_converted_is_the_contents_fault() -> None:
    failed = error(500, "Request failed with status code 404")

    judge(outcome_of(Answer(500, failed), with_file=True), Kind.CONTENT_REJECTED)
    judge(outcome_of(Answer(500, error(500, "Connection Closed")), with_file=True), Kind.UNAVAILABLE)
    judge(outcome_of(Answer(500, error(500, "rate-overlimit")), with_file=True), Kind.RATE_LIMITED)


def test_a_500_that_is_not_the_services_own_is_unknown_also_with_a_file() -> None:
    judge(outcome_of(Answer(500, {}), with_file=True), Unknown)
    judge(outcome_of(Answer(500, {"message": "upstream"}), with_file=True), Unknown)


@pytest.mark.parametrize(
    ("status", "body", "header", "refused"),
    [
        (429, {}, "7", NotSent(Kind.RATE_LIMITED, "HTTP 429", 7.0)),
        (500, error(500, "Oops"), "", NotSent(Kind.UNAVAILABLE, "HTTP 500 Oops")),
        (400, error(400, ["a", "b"]), "", NotSent(Kind.CONTENT_REJECTED, "HTTP 400 a, b")),
        (400, error(400, []), "", NotSent(Kind.CONTENT_REJECTED, "HTTP 400 No")),
        (401, {"message": "key", "error": "No"}, "", NotSent(Kind.AUTH, "HTTP 401 key")),
        (400, error(400, GONE), "", NotSent(Kind.RECIPIENT_GONE, "This number is not on WhatsApp.")),
        (400, error(400, [{"exists": True}]), "", NotSent(Kind.CONTENT_REJECTED, "HTTP 400 No")),
        (400, error(400, [{"exists": None}]), "", NotSent(Kind.CONTENT_REJECTED, "HTTP 400 No")),
    ],
    ids=["a wait", "their fault", "two reasons", "no reason", "a message", "gone", "there", "nobody knows"],
)
def test_a_refusal_in_words(status: int, body: dict[str, Any], header: str, refused: NotSent) -> None:
    assert refusal(Answer(status, body, header)) == refused


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


# -- over a connection ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        (items({"ownerJid": "4917612345678@s.whatsapp.net"}), "Evolution instance my line +4917612345678"),
        (
            items({"ownerJid": None}, {"ownerJid": "49301234567@s.whatsapp.net"}),
            "Evolution instance my line +49301234567",
        ),
        (items(), "Evolution instance my line"),
        (Answer(403, {}), "Evolution instance my line"),
    ],
    ids=["one", "the second", "none", "not allowed to ask"],
)
def test_an_instance_that_is_open_says_who_it_is(instances: Answer, words: str) -> None:
    gateway = FakeGateway("evolution", {STATE: Answer(200, {"instance": {"state": "open"}}), INSTANCES: instances})

    assert gateway.use(lambda transport: transport.check()) == words
    assert gateway.requests[1].query == {"instanceName": "my line"}


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.3.7", "Evolution 2.3.7 instance my line"),
        ("2.3", "Evolution 2.3 instance my line"),
        (
            "2.4.0",
            "Evolution 2.4.0 instance my line. Crier is tested with Evolution 2.3; what version 2.4.0 answers may be "
            "misread.",
        ),
        (
            "2.30.1",
            "Evolution 2.30.1 instance my line. Crier is tested with Evolution 2.3; what version 2.30.1 answers may be "
            "misread.",
        ),
        (None, "Evolution instance my line"),
    ],
)
def test_the_version_is_told_and_compared(version: str | None, words: str) -> None:
    welcome = Answer(
        200, {"status": 200, "message": "Welcome to the Evolution API, it is working!", "version": version}
    )
    gateway = FakeGateway("evolution", {STATE: Answer(200, {"instance": {"state": "open"}}), "/": welcome})

    assert gateway.use(lambda transport: transport.check()) == words


@pytest.mark.parametrize(
    ("host", "fetched"),
    [
        ("crier.example.org", True),
        ("crier.example.org:8000", True),
        ("192.168.1.5:8000", True),
        ("[2001:db8::1]:8000", True),
        ("xn--bcher-kva.xn--p1ai", True),
        ("crier:8000", False),
        ("localhost:8000", False),
        ("crier_web.example.org", False),
        ("crier.example.org.", False),
        ("crier.l0cal", False),
    ],
)
def test_a_link_that_its_validator_refuses_is_not_sent(host: str, fetched: bool, settings: Any) -> None:
    part = Part("1:0", 0, "image", "Look", media=media())
    link, content = f"http://{host}/f", base64.b64encode(CONTENT).decode()
    gateway = FakeGateway("evolution", {STATE: Answer(200, {"instance": {"state": "open"}})})
    settings.PUBLIC_URL = f"http://{host}"

    assert requested(part, url=link)[1]["media"] == (link if fetched else content)
    warned = "fetches no files from" in gateway.use(lambda transport: transport.check())
    assert warned is not fetched


def test_an_instance_that_is_not_open_says_so() -> None:
    gateway = FakeGateway("evolution", {STATE: Answer(200, {"instance": {"state": "connecting"}})})

    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.check())
    assert caught.value.kind is Kind.UNAVAILABLE
    assert caught.value.detail == "The instance “my line” is connecting, not open."


def test_groups_of_every_shape() -> None:
    choir = {"id": "1@g.us", "subject": "Choir", "size": 4, "announce": True}
    gateway = FakeGateway(
        "evolution", {GROUPS: items(choir, "odd", {"id": "2@g.us", "size": "many", "announce": "yes"})}
    )

    assert gateway.use(lambda transport: transport.groups()) == [Group("1@g.us", "Choir", 4, True), Group("2@g.us")]
    assert gateway.requests[0].query == {"getParticipants": "false"}


def test_no_list_is_no_groups() -> None:
    gateway = FakeGateway("evolution", {GROUPS: Answer(200, {"groups": []})})

    assert gateway.use(lambda transport: transport.groups()) == []


@pytest.mark.parametrize(
    ("part", "path", "failed"),
    [
        (Part("1:0", 0, "text", "Hello"), "sendText", Unknown),
        (Part("1:0", 0, "image", "Look", media=media()), "sendMedia", Kind.CONTENT_REJECTED),
    ],
    ids=["text", "file"],
)
def test_what_went_wrong_depends_on_what_was_sent(part: Part, path: str, failed: Any) -> None:
    """A file is fetched and converted before anything is sent; a text is not."""
    path = f"/message/{path}/my%20line"
    gateway = FakeGateway("evolution", {path: [Answer(201, {"key": {"id": "3EB0"}}), Answer(500, error(500, "Oops"))]})

    async def twice(transport: Any) -> list[Any]:
        return [await transport.send("+4917612345678", part, f"m-{n}") for n in range(2)]

    sent, then = gateway.use(twice)

    assert sent == Sent("3EB0")
    judge(then, failed)
