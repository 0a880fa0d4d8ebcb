"""Wassenger against a scripted server, and what each of its answers means."""

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
    Handle,
    Kind,
    NotSent,
    Part,
    Sent,
    Transport,
    Unknown,
    UploadFailed,
)
from accounts.channels.http import Answer
from accounts.channels.wassenger.transport import WassengerTransport, group_of, outcome_of, refusal
from tests.channels.contract import CONTENT, Rig, TransportContract, media, use
from tests.gateways.fake_gateway import FakeGateway, items
from tests.gateways.process import GatewayRig, GatewayServer, judge

DEVICE = "/v1/devices/d%201"


class WassengerRig(GatewayRig):
    channel = "wassenger"

    def settings(self) -> dict[str, Any]:
        return {"device": "d1"}

    def secrets(self) -> dict[str, Any]:
        return {"token": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("wassenger"), "wassenger") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (Kind.AUTH, Kind.RATE_LIMITED, Kind.UNAVAILABLE, Kind.RECIPIENT_GONE, Kind.CONTENT_REJECTED)

    @pytest.fixture
    def rig(self, server: GatewayServer) -> WassengerRig:
        return WassengerRig(server)

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "Wassenger API v1 as Choir +4917612345678"

    def test_groups_have_name_and_size(self, rig: Rig) -> None:
        groups = use(rig, lambda transport: transport.groups())

        assert len(groups) == 7
        assert groups[0] == Group("120363000000000001@g.us", "Group 1", 11)

    def test_a_file_that_it_has_already_is_a_success(self, rig: WassengerRig) -> None:
        async def twice(transport: Transport) -> list[Handle]:
            return [await transport.prepare(media()) for _ in range(2)]

        first, second = use(rig, twice)

        assert first.value == second.value
        assert [u.size for u in rig.uploads()] == [len(CONTENT)]

    def test_a_file_goes_by_its_link_where_there_is_one(self, rig: WassengerRig) -> None:
        linked = replace(rig.account(), media_url=lambda media: "https://crier.example/files/x")
        rig.transport = lambda timeout=5: WassengerTransport(linked)  # type: ignore[method-assign]

        use(rig, lambda transport: transport.prepare(media()))

        assert rig.uploads()[0].size == len('{"url": "https://crier.example/files/x"}')


# -- what the answers mean --------------------------------------------------------------------------------


def error(status: int, message: str = "No", *paths: str) -> dict[str, Any]:
    return {"status": status, "message": message, "errors": [{"path": path, "message": "bad"} for path in paths]}


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        pytest.param(201, {"id": "w1", "waId": "3EB0CC", "status": "queued"}, Sent("3EB0CC"), id="accepted"),
        pytest.param(200, {"id": "w1", "waId": None}, Sent("w1"), id="WhatsApp's id is not known yet"),
        pytest.param(201, {}, Unknown, id="without an id"),
        pytest.param(400, error(400, "Bad", "message"), Kind.CONTENT_REJECTED, id="content"),
        pytest.param(400, error(400, "Bad", "phone"), Kind.RECIPIENT_GONE, id="no such number"),
        pytest.param(400, error(400, "Bad", "group"), Kind.RECIPIENT_GONE, id="no such group"),
        pytest.param(401, error(401), Kind.AUTH, id="token"),
        pytest.param(402, error(402), Kind.AUTH, id="subscription"),
        pytest.param(403, error(403), Kind.AUTH, id="forbidden"),
        pytest.param(404, error(404, "Device not found"), Kind.AUTH, id="no such device"),
        pytest.param(404, error(404, "Group not found"), Kind.RECIPIENT_GONE, id="group has gone"),
        pytest.param(408, error(408), Unknown, id="a time-out"),
        pytest.param(409, error(409), Unknown, id="it is already there"),
        pytest.param(410, error(410), Kind.UNKNOWN, id="some other 4xx"),
        pytest.param(413, {}, Kind.CONTENT_REJECTED, id="too large"),
        pytest.param(415, {}, Kind.CONTENT_REJECTED, id="kind of file"),
        pytest.param(422, error(422, "Bad", "media"), Kind.CONTENT_REJECTED, id="content, in other words"),
        pytest.param(422, error(422, "Bad", "channel"), Kind.RECIPIENT_GONE, id="no such channel"),
        pytest.param(422, error(422, "Bad", "media", "user"), Kind.RECIPIENT_GONE, id="no such user"),
        pytest.param(403, error(403, "Bad", "phone"), Kind.AUTH, id="forbidden, whatever the field"),
        pytest.param(499, {}, Kind.UNKNOWN, id="the last 4xx"),
        pytest.param(399, {}, Unknown, id="no 4xx yet"),
        pytest.param(202, {"id": "w1"}, Unknown, id="some other 2xx"),
        pytest.param(429, error(429), Kind.RATE_LIMITED, id="rate"),
        pytest.param(503, error(503, "Device not connected"), Kind.UNAVAILABLE, id="device"),
        pytest.param(500, error(500), Unknown, id="500"),
        pytest.param(502, {}, Unknown, id="502"),
        pytest.param(504, {}, Unknown, id="504"),
    ],
)
def test_every_answer(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body)), outcome)


@pytest.mark.parametrize(("status", "header", "wait"), [(429, "", 60), (429, "90", 90), (503, "", 20), (503, "5", 5)])
def test_how_long_to_wait(status: int, header: str, wait: float) -> None:
    outcome = outcome_of(Answer(status, error(status), header))

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == wait


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (500, error(500, "Oops"), NotSent(Kind.UNAVAILABLE, "HTTP 500 Oops")),
        (302, {}, NotSent(Kind.UNKNOWN, "HTTP 302")),
        (400, error(400, "Bad", "a", "b"), NotSent(Kind.CONTENT_REJECTED, "HTTP 400 Bad: bad: bad")),
        (400, {"errors": "phone"}, NotSent(Kind.CONTENT_REJECTED, "HTTP 400")),
        (404, {"message": "No DEVICE"}, NotSent(Kind.AUTH, "HTTP 404 No DEVICE")),
    ],
    ids=["their fault", "a redirect", "every word", "odd errors", "a device in capitals"],
)
def test_a_refusal_in_words(status: int, body: dict[str, Any], refused: NotSent) -> None:
    assert refusal(Answer(status, body)) == refused


# -- what is asked for ------------------------------------------------------------------------------------


def requested(part: Part, address: str) -> dict[str, Any]:
    config = AccountConfig(1, "wassenger", "Line", "", {"device": "d1"}, {"token": "k"})
    made = asyncio.run(WassengerTransport(config).message(address, part, "m-1"))
    assert made.path == "/v1/messages"
    body: dict[str, Any] = json.loads(made.content)
    return body


def test_nothing_is_left_in_their_queue() -> None:
    common = {"device": "d1", "reference": "m-1", "enqueue": "never"}
    text, file = Part("1:0", 0, "text", "Hello"), Part("1:1", 1, "image", media=media(), handle="f1")

    assert requested(text, "+4917612345678") == common | {"phone": "+4917612345678", "message": "Hello"}
    assert requested(file, "1203@g.us") == common | {"group": "1203@g.us", "media": {"file": "f1"}}


def test_groups_in_other_shapes() -> None:
    assert group_of({"id": "1@g.us", "name": "Choir", "participants": [{}, {}]}) == Group("1@g.us", "Choir", 2)
    assert group_of(None) == Group("")


# -- over a connection ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"session": {"status": "online"}, "alias": "Choir", "phone": "+49176"}, "Wassenger API v1 as Choir +49176"),
        ({"alias": "Choir"}, "Wassenger API v1 as Choir"),
        ({"session": {"status": ""}, "phone": "+49176"}, "Wassenger API v1 as +49176"),
    ],
    ids=["whole", "only a name", "only a number"],
)
def test_a_device_that_is_well_says_who_it_is(body: dict[str, Any], words: str) -> None:
    gateway = FakeGateway("wassenger", {DEVICE: Answer(200, {"status": "operative", **body})})

    assert gateway.use(lambda transport: transport.check()) == words


@pytest.mark.parametrize(
    ("body", "states"),
    [
        ({"status": "operative", "session": {"status": "offline"}}, "operative and offline"),
        ({"status": "disabled", "session": {"status": "online"}}, "disabled and online"),
        ({"status": "disabled"}, "disabled"),
    ],
    ids=["offline", "switched off", "no session"],
)
def test_a_device_that_is_not_well_says_so(body: dict[str, Any], states: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        FakeGateway("wassenger", {DEVICE: Answer(200, body)}).use(lambda transport: transport.check())
    assert caught.value.kind is Kind.UNAVAILABLE
    assert caught.value.detail == f"The device is {states}, not operative and online."


@pytest.mark.parametrize(
    "answer",
    [
        items({"id": "f1"}, {"id": "f2"}),
        items({"id": "f1"})._replace(status=201),
        Answer(200, {"id": "f1"}),
        Answer(409, {"id": "conflict", "meta": {"file": "f1"}}),
    ],
    ids=["a list", "created", "an object", "it has it already"],
)
def test_an_uploaded_file_has_an_id_for_a_day(answer: Answer) -> None:
    gateway = FakeGateway("wassenger", {"/v1/files": answer})

    handle = gateway.use(lambda transport: transport.prepare(media()))

    assert handle.value == "f1"
    assert handle.expires_at is not None
    assert abs(handle.expires_at - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=1)
    (request,) = gateway.requests
    assert (request.method, request.headers["Content-Type"].partition(";")[0]) == ("POST", "multipart/form-data")
    assert b'name="file"; filename="poster.png"\r\nContent-Type: image/png\r\n\r\n' + CONTENT in request.body


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(409, {"id": "conflict", "meta": {}}), Kind.UNKNOWN),
        (items(), Kind.UNKNOWN),
        (Answer(202, {"id": "f1"}), Kind.UNKNOWN),
        (Answer(413, {"id": "f1"}), Kind.CONTENT_REJECTED),
        (Answer(503, {"id": "f1"}), Kind.UNAVAILABLE),
    ],
    ids=["a conflict without the file", "an empty list", "some other 2xx", "too large", "not connected"],
)
def test_an_upload_without_a_file_of_theirs_has_failed(answer: Answer, kind: Kind) -> None:
    with pytest.raises(UploadFailed) as caught:
        FakeGateway("wassenger", {"/v1/files": answer}).use(lambda transport: transport.prepare(media()))
    assert caught.value.reason.kind is kind


def test_a_link_is_uploaded_in_place_of_the_file() -> None:
    gateway = FakeGateway("wassenger", {"/v1/files": Answer(200, {"id": "f1"})})

    gateway.use(lambda transport: transport.prepare(media()), link="https://crier.example")

    assert gateway.requests[0].json() == {"url": "https://crier.example/poster.png"}
    assert gateway.requests[0].headers["Content-Type"] == "application/json"


def test_a_file_that_is_gone_is_not_uploaded() -> None:
    def gone() -> bytes:
        raise FileNotFoundError(2, "No such file")

    gateway = FakeGateway("wassenger", {})
    with pytest.raises(UploadFailed) as caught:
        gateway.use(lambda transport: transport.prepare(replace(media(), read=gone)))
    assert caught.value.reason == NotSent(Kind.CONTENT_REJECTED, "poster.png cannot be read: No such file")
    assert gateway.requests == []


def page(*names: str) -> Answer:
    return items(*({"wid": f"{name[0]}@g.us", "name": name} for name in names))


@pytest.mark.parametrize(
    ("pages", "names", "asked"),
    [
        ([page("a", "b"), page("c")], ["a", "b", "c"], 2),
        ([page("a", "b"), page()], ["a", "b"], 2),
        ([page("a")], ["a"], 1),
        ([page("a", "b"), page("b again", "c"), page("d")], ["a", "b", "c", "d"], 3),
        ([page("a", "b"), page("a again", "b again")], ["a", "b"], 2),
        ([Answer(200, {"items": "none"})], [], 1),
        ([items("x", None)], [""], 2),
    ],
    ids=["two", "an empty last one", "one", "they overlap", "always the same", "no list", "odd items"],
)
def test_groups_of_all_pages(
    pages: list[Answer], names: list[str], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.channels.wassenger.transport.PAGE", 2)
    gateway = FakeGateway("wassenger", {f"{DEVICE}/groups": pages})

    assert [group.name for group in gateway.use(lambda transport: transport.groups())] == names
    assert [a.query for a in gateway.requests] == [{"size": "2", "page": str(n)} for n in range(asked)]


def test_a_page_has_500_groups_and_a_list_a_hundred_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway("wassenger", {f"{DEVICE}/groups": page("a")})
    gateway.use(lambda transport: transport.groups())
    assert gateway.requests[0].query == {"size": "500", "page": "0"}

    monkeypatch.setattr("accounts.channels.wassenger.transport.PAGE", 1)
    endless = FakeGateway("wassenger", {f"{DEVICE}/groups": [items({"wid": f"{n}@g.us"}) for n in range(103)]})
    assert len(endless.use(lambda transport: transport.groups())) == 100


@pytest.mark.parametrize(
    ("item", "group"),
    [
        ({"wid": "1@g.us", "id": "x", "name": "Choir", "totalParticipants": 7}, Group("1@g.us", "Choir", 7)),
        ({"wid": "1@g.us", "participants": [{}], "totalParticipants": 7}, Group("1@g.us", "", 1)),
        ({"wid": "1@g.us", "participants": "many", "totalParticipants": "many"}, Group("1@g.us")),
    ],
    ids=["counted", "listed", "odd"],
)
def test_how_many_are_in_a_group(item: dict[str, Any], group: Group) -> None:
    assert group_of(item) == group


def test_a_text_beside_a_file_goes_along() -> None:
    file = Part("1:1", 1, "image", "Look", media=media(), handle="f1")

    assert requested(file, "1203@g.us")["message"] == "Look"
    assert requested(file, "1203@g.us")["media"] == {"file": "f1"}


@pytest.mark.parametrize("status", [200, 201])
def test_a_message_is_sent_with_its_name(status: int) -> None:
    gateway = FakeGateway("wassenger", {"/v1/messages": Answer(status, {"waId": "3EB0"})})

    outcome = gateway.use(lambda transport: transport.send("+4917612345678", Part("1:0", 0, "text", "Hello"), "m-1"))

    assert outcome == Sent("3EB0")
    assert gateway.requests[0].json()["reference"] == "m-1"
