"""Wassenger against a scripted server, and what each of its answers means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Group, Handle, Kind, NotSent, Part, Sent, Transport, Unknown
from accounts.channels.http import Answer
from accounts.channels.wassenger.answers import outcome_of
from accounts.channels.wassenger.transport import WassengerTransport, group_of
from tests.channels.contract import CONTENT, Rig, TransportContract, media, use
from tests.gateways.process import GatewayRig, GatewayServer, judge


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
        assert use(rig, lambda transport: transport.check()) == "Wassenger as Choir +4917612345678"

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
        pytest.param(409, error(409), Kind.UNKNOWN, id="some other 4xx"),
        pytest.param(413, {}, Kind.CONTENT_REJECTED, id="too large"),
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
