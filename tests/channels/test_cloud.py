"""WhatsApp's Cloud API against a scripted server, and what each of Meta's codes means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.channels.base import (
    AccountConfig,
    CheckFailed,
    Group,
    Kind,
    NotSent,
    Part,
    Refused,
    Sent,
    Transport,
    Unknown,
    UploadFailed,
)
from accounts.channels.cloud.transport import CloudTransport, kind_of, outcome_of, refusal
from accounts.channels.http import Answer, File, multipart
from tests.channels.contract import CONTENT, TEXT, Rig, TransportContract, media, send, use
from tests.gateways.cloud import GROUP_ID
from tests.gateways.fake_gateway import FakeGateway
from tests.gateways.process import GatewayRig, GatewayServer, judge

NUMBER = "/v23.0/10200"


class CloudRig(GatewayRig):
    channel = "cloud"
    address = "+4917612345678"

    def settings(self) -> dict[str, Any]:
        return {"phone_number_id": "10200"}

    def secrets(self) -> dict[str, Any]:
        return {"access_token": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("cloud"), "cloud") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (
        Kind.AUTH,
        Kind.BANNED,
        Kind.RATE_LIMITED,
        Kind.RECIPIENT_LIMITED,
        Kind.NOT_WRITABLE,
        Kind.UNAVAILABLE,
        Kind.RECIPIENT_GONE,
        Kind.CONTENT_REJECTED,
    )

    @pytest.fixture
    def rig(self, server: GatewayServer) -> CloudRig:
        return CloudRig(server)

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "WhatsApp Cloud API v23.0 as Choir +49 176 12345678"

    def test_groups_of_all_pages(self, rig: Rig) -> None:
        groups = use(rig, lambda transport: transport.groups())

        assert groups == [Group(GROUP_ID, "Choir"), Group(GROUP_ID[:-3] + "2ZD", "Board")]

    def test_an_uploaded_file_is_whole_and_its_id_holds_for_a_month(self, rig: CloudRig) -> None:
        handle = use(rig, lambda transport: transport.prepare(media()))

        (upload,) = rig.uploads()
        assert (upload.sha256, upload.size, upload.handle) == (media().sha256, len(CONTENT), handle.value)
        assert handle.expires_at is not None
        assert timedelta(days=28) < handle.expires_at - datetime.now(UTC) < timedelta(days=30)

    def test_a_group_is_addressed_by_metas_id(self, rig: CloudRig) -> None:
        rig.address = GROUP_ID

        assert isinstance(send(rig, TEXT, "m-1"), Sent)
        assert [r.to for r in rig.received()] == [GROUP_ID]

    def test_a_template_carries_the_text(self, rig: CloudRig) -> None:
        async def send_with(transport: Transport) -> Any:
            return await transport.send(rig.address, TEXT, "m-1")

        config = rig.account(template="reminder")
        rig.transport = lambda timeout=5: CloudTransport(config)  # type: ignore[method-assign]

        assert isinstance(use(rig, send_with), Sent)
        line = rig.server.book().lines()[-1]
        assert (line["kind"], line["text"]) == ("template", TEXT.text)


# -- what the answers mean --------------------------------------------------------------------------------


def error(code: int | None, details: str = "") -> dict[str, Any]:
    return {"error": {"message": "No", "type": "OAuthException", "code": code, "error_data": {"details": details}}}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, Kind.AUTH) for code in (0, 3, 10, 33, 190, 200, 294, 299, 131005, 131037, 131042, 131045, 133010)),
        *((code, Kind.BANNED) for code in (368, 131031, 131048)),
        *((code, Kind.RATE_LIMITED) for code in (4, 17, 613, 80007, 80008, 130429, 131064, 131208, 133016)),
        *((code, Kind.UNAVAILABLE) for code in (2, 131016, 131057)),
        *((code, Kind.RECIPIENT_GONE) for code in (131026, 131021, 130472, 131020, 131041, 131207)),
        (131050, Kind.OPTED_OUT),
        *((code, Kind.CONTENT_REJECTED) for code in (100, 131008, 131009, 131051, 131052, 131053, 131215)),
        *((code, Kind.CONTENT_REJECTED) for code in (131063, 132000, 132015, 132999)),
        *((code, Kind.RECIPIENT_LIMITED) for code in (131049, 131056)),
        *((code, Kind.NOT_WRITABLE) for code in (130497, 131030, 131047)),
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_every_documented_code_whatever_the_status(code: int, kind: Kind, status: int) -> None:
    judge(outcome_of(Answer(status, error(code))), kind)


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        pytest.param(200, {"messages": [{"id": "wamid.x"}]}, Sent("wamid.x"), id="accepted"),
        pytest.param(
            200, {"messages": [{"id": "w", "message_status": "held_for_quality_assessment"}]}, Sent("w"), id="held"
        ),
        pytest.param(200, {"messages": []}, Unknown, id="without an id"),
        pytest.param(200, {}, Unknown, id="empty"),
        pytest.param(400, error(999_999), Kind.UNKNOWN, id="a code of tomorrow"),
        pytest.param(500, error(999_999), Unknown, id="a code of tomorrow, and their fault"),
        *(
            pytest.param(status, error(code), Unknown, id=f"something went wrong, {code} with a {status}")
            for code in (1, 131000)
            for status in (400, 500, 503)
        ),
        pytest.param(408, {}, Unknown, id="a time-out"),
        pytest.param(408, error(131026), Kind.RECIPIENT_GONE, id="a documented code with a 408"),
        pytest.param(404, {}, Kind.UNKNOWN, id="no JSON"),
        pytest.param(503, {}, Kind.UNAVAILABLE, id="takes no requests"),
        pytest.param(503, error(999_999), Kind.UNAVAILABLE, id="takes no requests, with a code of tomorrow"),
        pytest.param(502, {}, Unknown, id="a proxy"),
        pytest.param(302, {}, Unknown, id="redirect"),
        pytest.param(399, {}, Unknown, id="no 4xx yet"),
        pytest.param(400, {}, Kind.UNKNOWN, id="the first 4xx"),
        pytest.param(499, {}, Kind.UNKNOWN, id="the last 4xx"),
        pytest.param(200, {"messages": {"id": "w"}}, Unknown, id="no list"),
        pytest.param(200, {"messages": ["w"]}, Unknown, id="no messages in it"),
        pytest.param(201, {"messages": [{"id": "w"}]}, Unknown, id="some other 2xx"),
    ],
)
def test_other_answers(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body)), outcome)


@pytest.mark.parametrize(
    ("code", "header", "wait"),
    [(131056, "", 6.0), (131056, "9", 9.0), (131049, "", 86_400.0), (130429, "", None)],
    ids=["a pair that is too fast", "the same with a header", "marketing to one person", "the account"],
)
def test_how_long_meta_asks_to_wait(code: int, header: str, wait: float | None) -> None:
    outcome = outcome_of(Answer(400, error(code), header))

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == wait


@pytest.mark.parametrize("code", [None, False, "190", 199, 300, 131999, 133000, 131000])
def test_what_is_no_code_of_theirs_has_no_kind(code: Any) -> None:
    assert kind_of(code) is None


NEW_TOKEN = "Create a new access token and enter it among the account's credentials."


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (500, {}, NotSent(Kind.UNAVAILABLE, "HTTP 500")),
        (499, {}, NotSent(Kind.UNKNOWN, "HTTP 499")),
        (400, {"error": {"message": "No", "code": 190}}, NotSent(Kind.AUTH, f"HTTP 400 No (190). {NEW_TOKEN}")),
        (
            400,
            {"error": {"message": "(#190) No.", "code": 190}},
            NotSent(Kind.AUTH, f"HTTP 400 (#190) No. {NEW_TOKEN}"),
        ),
        (400, {"error": {"title": "No"}}, NotSent(Kind.UNKNOWN, "HTTP 400 No")),
        (400, {"error": {"message": "No", "title": "x"}}, NotSent(Kind.UNKNOWN, "HTTP 400 No")),
        (400, error(190, "why"), NotSent(Kind.AUTH, f"HTTP 400 No: why (190). {NEW_TOKEN}")),
        (400, error(190, "No"), NotSent(Kind.AUTH, f"HTTP 400 No (190). {NEW_TOKEN}")),
        (400, error(190)["error"], NotSent(Kind.UNKNOWN, "HTTP 400")),
    ],
    ids=[
        "their fault",
        "ours",
        "with its code",
        "the code is in the words",
        "a title",
        "a message before a title",
        "with details",
        "said twice",
        "no error",
    ],
)
def test_a_refusal_in_metas_words(status: int, body: dict[str, Any], refused: NotSent) -> None:
    assert refusal(Answer(status, body)) == refused


def test_a_closed_window_says_what_to_do() -> None:
    outcome = outcome_of(Answer(400, error(131047, "More than 24 hours")))

    assert isinstance(outcome, NotSent)
    assert "More than 24 hours" in outcome.detail
    assert "Only a template" in outcome.detail
    assert "Only a template" not in str(outcome_of(Answer(400, error(131051))))


# -- what is asked for ------------------------------------------------------------------------------------


def requested(part: Part) -> dict[str, Any]:
    config = AccountConfig(1, "cloud", "Line", "", {"phone_number_id": "10200"}, {"access_token": "k"})
    made = asyncio.run(CloudTransport(config).message("+4917612345678", part, "m-1"))
    assert made.path == "/v23.0/10200/messages"
    body: dict[str, Any] = json.loads(made.content)
    return body


def test_a_text_keeps_the_plus_of_its_number() -> None:
    """Meta puts the business's own country in front of a number without it."""
    assert requested(TEXT) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": "+4917612345678",
        "type": "text",
        "text": {"body": TEXT.text},
        "biz_opaque_callback_data": "m-1",
    }


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("image", {"id": "h", "caption": "Hello"}),
        ("video", {"id": "h", "caption": "Hello"}),
        ("document", {"id": "h", "caption": "Hello", "filename": "poster.png"}),
    ],
)
def test_files(kind: str, file: dict[str, Any]) -> None:
    assert requested(Part("1:0", 0, kind, "Hello", media=media(), handle="h"))[kind] == file


def test_audio_goes_without_a_caption_or_not_at_all() -> None:
    audio = Part("1:0", 0, "audio", media=media(), handle="h")

    assert requested(audio)["audio"] == {"id": "h"}
    with pytest.raises(Refused, match="a part of its own"):
        requested(replace(audio, text="Hello"))


def test_nothing_in_a_files_name_ends_its_header() -> None:
    body, mime = multipart([("a", "1"), ("a", "2")], [File("file", 'x"\r\ny.png', "image/png", b"--\r\n")])

    assert body.count(b'name="a"') == 2
    assert b'filename="x%22%0D%0Ay.png"' in body
    assert body.endswith(f"--{mime.partition('boundary=')[2]}--\r\n".encode())


def test_a_template_of_another_language() -> None:
    settings = {"phone_number_id": "10200", "template": "news", "template_language": "pt_BR", "version": "v99.0"}
    config = AccountConfig(1, "cloud", "Line", "", settings, {"access_token": "k"})
    made = asyncio.run(CloudTransport(config).message(GROUP_ID, TEXT, "m-1"))

    assert made.path == "/v99.0/10200/messages"
    body = {"type": "body", "parameters": [{"type": "text", "text": TEXT.text}]}
    template = {"name": "news", "language": {"code": "pt_BR"}, "components": [body]}
    assert json.loads(made.content) == {
        "messaging_product": "whatsapp",
        "recipient_type": "group",
        "to": GROUP_ID,
        "type": "template",
        "template": template,
        "biz_opaque_callback_data": "m-1",
    }


def test_a_file_without_a_text_has_no_caption() -> None:
    assert requested(Part("1:0", 0, "image", media=media(), handle="h"))["image"] == {"id": "h"}


# -- over a connection ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [None, "CONNECTED", "FLAGGED"])
def test_a_number_that_may_send_says_who_it_is(state: str | None) -> None:
    body = {"verified_name": "Choir", "display_phone_number": "+49 176", "status": state}
    gateway = FakeGateway("cloud", {NUMBER: Answer(200, body)})

    assert gateway.use(lambda transport: transport.check()) == "WhatsApp Cloud API v23.0 as Choir +49 176"
    assert gateway.requests[0].query == {"fields": "verified_name,display_phone_number,status,quality_rating"}


@pytest.mark.parametrize(
    ("setting", "answered_by", "words"),
    [
        ("v23.0", "v23.0", "WhatsApp Cloud API v23.0 as Choir"),
        ("v23.0", "v25.0", "WhatsApp Cloud API v25.0 as Choir. Crier is tested with version v23.0; what v25.0 answers"),
        ("v21.0", "", "WhatsApp Cloud API v21.0 as Choir. Crier is tested with version v23.0; what v21.0 answers"),
    ],
    ids=["tested", "Meta answers with a newer one", "an older one in the settings"],
)
def test_the_version_is_told_and_compared(setting: str, answered_by: str, words: str) -> None:
    body = {"verified_name": "Choir", "status": "CONNECTED"}
    gateway = FakeGateway("cloud", {f"/{setting}/10200": Answer(200, body, version=answered_by)})

    said = gateway.use(lambda transport: transport.check(), version=setting)
    assert said == words or said.startswith(f"{words} may be")


TOKEN_PATH = "/v23.0/debug_token"


def of_token(*businesses: str) -> Answer:
    """What Meta tells about a token (whatsapp/solution-providers/manage-accounts)."""
    scopes = [{"scope": "whatsapp_business_management", "target_ids": list(businesses)}, {"scope": "email"}]
    return Answer(200, {"data": {"app_id": "1", "is_valid": True, "granular_scopes": scopes}})


def numbers(*ids: str) -> Answer:
    return Answer(200, {"data": [{"id": one} for one in ids]})


@pytest.mark.parametrize(
    ("answers", "learned"),
    [
        (
            {
                TOKEN_PATH: of_token("1", "2"),
                "/v23.0/1/phone_numbers": numbers("9"),
                "/v23.0/2/phone_numbers": numbers("10200"),
            },
            "2",
        ),
        ({TOKEN_PATH: of_token("1", "2"), "/v23.0/2/phone_numbers": numbers("10200")}, "2"),
        ({TOKEN_PATH: of_token("1"), "/v23.0/1/phone_numbers": numbers("9")}, ""),
        ({TOKEN_PATH: Answer(200, {"data": {"granular_scopes": "odd"}})}, ""),
    ],
    ids=["the second", "the first does not say", "none has it", "a strange answer"],
)
def test_the_business_account_of_a_number_is_learned(answers: dict[str, Any], learned: str) -> None:
    found = FakeGateway("cloud", answers).use(lambda transport: transport.learn())
    assert found == ({"business_account_id": learned} if learned else {})


def test_a_business_account_that_is_known_is_not_asked_for() -> None:
    gateway = FakeGateway("cloud", {})
    assert gateway.use(lambda transport: transport.learn(), business_account_id="1") == {}
    assert not gateway.requests


def test_a_number_that_may_not_send_says_so() -> None:
    gateway = FakeGateway("cloud", {NUMBER: Answer(200, {"verified_name": "Choir", "status": "BANNED"})})

    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.check())
    assert (caught.value.kind, caught.value.detail) == (Kind.UNAVAILABLE, "Meta says that this number is BANNED.")


def test_a_file_is_uploaded_with_its_type() -> None:
    gateway = FakeGateway("cloud", {f"{NUMBER}/media": Answer(200, {"id": 77})})

    handle = gateway.use(lambda transport: transport.prepare(media()))

    assert handle.value == "77"
    assert handle.expires_at is not None
    assert abs(handle.expires_at - datetime.now(UTC) - timedelta(days=29)) < timedelta(minutes=1)
    (request,) = gateway.requests
    assert b'name="messaging_product"\r\n\r\nwhatsapp\r\n' in request.body
    assert b'name="type"\r\n\r\nimage/png\r\n' in request.body
    assert b'name="file"; filename="poster.png"\r\nContent-Type: image/png\r\n\r\n' + CONTENT in request.body


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(200, {}), Kind.UNKNOWN),
        (Answer(201, {"id": "h"}), Kind.UNKNOWN),
        (Answer(400, {"id": "h"} | error(100)), Kind.CONTENT_REJECTED),
        (Answer(503, {"id": "h"}), Kind.UNAVAILABLE),
    ],
    ids=["no id", "some other 2xx", "refused", "down"],
)
def test_an_upload_without_a_clear_yes_has_failed(answer: Answer, kind: Kind) -> None:
    with pytest.raises(UploadFailed) as caught:
        FakeGateway("cloud", {f"{NUMBER}/media": answer}).use(lambda transport: transport.prepare(media()))
    assert caught.value.reason.kind is kind


def test_a_file_that_is_gone_is_not_uploaded() -> None:
    def gone() -> bytes:
        raise FileNotFoundError(2, "No such file")

    gateway = FakeGateway("cloud", {})
    with pytest.raises(UploadFailed) as caught:
        gateway.use(lambda transport: transport.prepare(replace(media(), read=gone)))
    assert caught.value.reason == NotSent(Kind.CONTENT_REJECTED, "poster.png cannot be read: No such file")
    assert gateway.requests == []


def page(after: str, *names: str) -> Answer:
    groups = [{"id": name.upper(), "subject": name} for name in names]
    return Answer(200, {"data": {"groups": groups}, "paging": {"cursors": {"after": after}}})


@pytest.mark.parametrize(
    ("pages", "names", "cursors"),
    [
        ([page("1", "a", "b"), page("2", "c"), page("", "d")], ["a", "b", "c", "d"], [None, "1", "2"]),
        ([page("", "a")], ["a"], [None]),
        ([page("1", "a"), page("2")], ["a"], [None, "1"]),
        ([Answer(200, {"data": {"groups": "x"}})], [], [None]),
        ([Answer(200, {"data": {"groups": None}, "paging": {"cursors": {"after": "1"}}})], [], [None]),
    ],
    ids=["three", "one", "an empty last one", "no list", "nothing"],
)
def test_groups_by_their_cursors(pages: list[Answer], names: list[str], cursors: list[str | None]) -> None:
    gateway = FakeGateway("cloud", {f"{NUMBER}/groups": pages})

    groups = gateway.use(lambda transport: transport.groups())

    assert groups == [Group(name.upper(), name) for name in names]
    assert [request.query.get("after") for request in gateway.requests] == cursors
    assert {request.query["limit"] for request in gateway.requests} == {"500"}


def test_a_list_of_groups_without_an_end_has_one() -> None:
    gateway = FakeGateway("cloud", {f"{NUMBER}/groups": page("on", "a")})

    assert len(gateway.use(lambda transport: transport.groups())) == 20


def test_a_message_is_sent_with_its_name() -> None:
    gateway = FakeGateway("cloud", {f"{NUMBER}/messages": Answer(200, {"messages": [{"id": "wamid.x"}]})})

    assert gateway.use(lambda transport: transport.send("+4917612345678", TEXT, "m-1")) == Sent("wamid.x")
    assert gateway.requests[0].json()["biz_opaque_callback_data"] == "m-1"
