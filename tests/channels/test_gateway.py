"""What all gateways share, over a real connection: the request, its answer, and what was certain when none came."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import replace
from typing import Any

import pytest

from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CheckFailed,
    Kind,
    NotSent,
    Outcome,
    Part,
    Sent,
    Transport,
    Unknown,
    UploadFailed,
)
from accounts.channels.gateway import Base64, Gateway, call, header_safe
from accounts.channels.http import Answer
from accounts.channels.registry import transport_for
from accounts.channels.sandbox.provider import CLOSED, SILENT
from accounts.channels.settings import BadSetting
from tests.channels.contract import CONTENT, TEXT, media
from tests.channels.mail_server import free_port
from tests.gateways.fake_gateway import SETTINGS, FakeGateway
from tests.gateways.process import judge

WHO = "+4917612345678"
SEND = "/api/sendText"
SESSION = "/api/sessions/my%20line"
ACCEPTED = Answer(201, {"id": "true_4917612345678@c.us_3EB0"})
WORKING = Answer(200, {"status": "WORKING", "me": {"id": "4917612345678@c.us"}})


def waha(**answers: Answer | list[Answer]) -> FakeGateway:
    paths = {"send": SEND, "session": SESSION, "picture": "/api/sendImage"}
    return FakeGateway("waha", {paths[name]: gateway for name, gateway in answers.items()})


def send(gateway: FakeGateway, part: Part = TEXT, **config: Any) -> Outcome:
    return gateway.use(lambda transport: transport.send(WHO, part, "m-1"), **config)


# -- a message --------------------------------------------------------------------------------------------


def test_a_message_is_one_request_with_key_type_and_name() -> None:
    gateway = waha(send=ACCEPTED)

    assert send(gateway) == Sent("3EB0")
    (request,) = gateway.requests
    assert (request.method, request.path) == ("POST", SEND)
    assert (request.headers["X-Api-Key"], request.headers["X-Request-Id"]) == ("k3y", "m-1")
    assert request.headers["Content-Type"] == "application/json"
    assert request.json() == {"session": "my line", "chatId": "4917612345678@c.us", "text": TEXT.text}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(429, {"message": "slow"}, "17"), NotSent(Kind.RATE_LIMITED, "HTTP 429 slow", 17.0)),
        (Answer(502, {}), Unknown("HTTP 502")),
        (Answer(307, {}), Unknown("HTTP 307")),
        (Answer(201, {"id": ""}), Unknown("accepted without an id")),
        (Answer(CLOSED, {}), Unknown),
        (Answer(SILENT, {}), Unknown),
    ],
    ids=["a wait", "a proxy", "a redirect", "no id", "hung up", "silence"],
)
def test_what_an_answer_means_and_that_nobody_asks_twice(answer: Answer, outcome: Any) -> None:
    gateway = waha(send=answer)

    judge(send(gateway, timeout=0.3), outcome)
    assert gateway.paths == [SEND]


@pytest.mark.parametrize("raw", [b"", b"no JSON", b"[1]", b"[" * 100_000, b'"x"'], ids=lambda raw: str(raw[:8]))
def test_a_yes_in_garbage_is_no_certain_delivery(raw: Any) -> None:
    assert send(waha(send=Answer(201, raw))) == Unknown("accepted without an id")


@pytest.mark.parametrize(("size", "outcome"), [(10**6, Sent("3EB0")), (10**6 + 1, Unknown("accepted without an id"))])
def test_an_answer_longer_than_any_is_not_read(size: int, outcome: Outcome) -> None:
    raw: Any = b'{"id": "3EB0"}'.ljust(size)

    assert send(waha(send=Answer(201, raw))) == outcome


def test_nobody_listens_so_nothing_was_sent() -> None:
    gateway = waha()

    judge(send(gateway, url=f"http://127.0.0.1:{free_port()}"), Kind.NETWORK)
    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.check(), url=f"http://127.0.0.1:{free_port()}")
    assert (caught.value.kind, bool(caught.value.detail)) == (Kind.NETWORK, True)
    assert gateway.requests == []


def test_an_address_may_end_in_a_slash() -> None:
    async def base(transport: Transport) -> str:
        assert isinstance(transport, Gateway)
        return transport.base

    assert waha().use(base, url="https://waha.example/") == "https://waha.example"


@pytest.mark.parametrize(("entered", "kept"), [(60, LONGEST_TIMEOUT), (LONGEST_TIMEOUT, 11.0), (2.5, 2.5)])
def test_no_time_out_is_above_the_lanes(entered: float, kept: float) -> None:
    config = AccountConfig(1, "waha", "Line", "", {"url": "https://w.example", "timeout": entered}, {"api_key": "k"})

    assert getattr(transport_for(config), "timeout") == kept  # noqa: B009 - of a gateway


def test_a_connection_that_died_while_idle_is_replaced_and_the_message_goes_once() -> None:
    """The gateway leaves while nobody reads, as Node does after 5 s: nothing was written, so it is no second try."""
    gateway = waha(send=ACCEPTED)

    async def twice(transport: Transport) -> list[Outcome]:
        first = await transport.send(WHO, TEXT, "m-1")
        for connection in gateway.connections:
            connection.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return [first, await transport.send(WHO, TEXT, "m-2")]

    assert gateway.use(twice) == [Sent("3EB0"), Sent("3EB0")]
    assert [request.headers["X-Request-Id"] for request in gateway.requests] == ["m-1", "m-2"]


def test_one_connection_serves_one_message_after_the_other() -> None:
    gateway = waha(send=ACCEPTED)

    async def thrice(transport: Transport) -> None:
        for n in range(3):
            await transport.send(WHO, TEXT, f"m-{n}")

    gateway.use(thrice)
    assert (len(gateway.requests), len(gateway.connections)) == (3, 1)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_never_more_connections_than_the_accounts_concurrency(concurrency: int) -> None:
    gateway = waha(send=ACCEPTED)

    async def many(transport: Transport) -> list[Outcome]:
        return await asyncio.gather(*(transport.send(WHO, TEXT, f"m-{n}") for n in range(6)))

    assert gateway.use(many, concurrency=concurrency) == [Sent("3EB0")] * 6
    assert len(gateway.connections) == concurrency


def test_a_closed_transport_lets_go_of_its_connection_and_opens_another() -> None:
    gateway = waha(send=ACCEPTED)

    async def close_between(transport: Transport) -> list[Outcome]:
        first = await transport.send(WHO, TEXT, "m-1")
        await transport.close()
        await transport.close()
        return [first, await transport.send(WHO, TEXT, "m-2")]

    assert gateway.use(close_between) == [Sent("3EB0"), Sent("3EB0")]
    assert len(gateway.connections) == 2


def test_a_gateway_sets_no_cookies() -> None:
    """Connections carry no state: what one answer sets is not said with the next request."""
    gateway = waha(send=ACCEPTED)

    async def twice(transport: Transport) -> None:
        await transport.send(WHO, TEXT, "m-1")
        await transport.send(WHO, TEXT, "m-2")

    gateway.use(twice)
    assert all("Cookie" not in request.headers for request in gateway.requests)


# -- files ------------------------------------------------------------------------------------------------


def test_a_file_is_read_once_for_all_recipients_and_another_one_again() -> None:
    gateway, reads = waha(picture=ACCEPTED), []

    def read() -> bytes:
        reads.append(1)
        return CONTENT

    file = replace(media(), read=read)
    pictures = [Part("1:0", 0, "image", "Look", media=replace(file, sha256=digest)) for digest in "aab"]

    async def go(transport: Transport) -> list[Outcome]:
        return [await transport.send(WHO, picture, "m-1") for picture in pictures]

    assert gateway.use(go) == [Sent("3EB0")] * 3
    assert len(reads) == 2
    assert len({request.json()["file"]["data"] for request in gateway.requests}) == 1


def test_a_file_with_a_link_is_not_read() -> None:
    gateway = waha(picture=ACCEPTED)

    def read() -> bytes:
        raise AssertionError("read")

    picture = Part("1:0", 0, "image", media=replace(media(), read=read))

    assert send(gateway, picture, link="https://crier.example/files") == Sent("3EB0")
    assert gateway.requests[0].json()["file"]["url"] == "https://crier.example/files/poster.png"


def test_a_file_without_words_for_its_trouble_is_told_as_it_is() -> None:
    def read() -> bytes:
        raise OSError("the disk is gone")

    outcome = send(waha(), Part("1:0", 0, "image", media=replace(media(), read=read)))

    assert outcome == NotSent(Kind.CONTENT_REJECTED, "poster.png cannot be read: the disk is gone")


# -- look-ups and uploads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "detail"),
    [
        (Answer(401, {"message": "Unauthorized"}), Kind.AUTH, "HTTP 401 Unauthorized"),
        (Answer(201, {"status": "WORKING"}), Kind.UNAVAILABLE, "HTTP 201"),
        (Answer(307, {}), Kind.UNAVAILABLE, "HTTP 307"),
        (Answer(CLOSED, {}), Kind.NETWORK, "Server disconnected"),
    ],
    ids=["refused", "not a 200", "a redirect", "hung up"],
)
def test_a_look_up_that_fails_says_why(answer: Answer, kind: Kind, detail: str) -> None:
    gateway = waha(session=answer)

    with pytest.raises(CheckFailed) as caught:
        gateway.use(lambda transport: transport.check())
    assert (caught.value.kind, caught.value.detail) == (kind, detail)
    assert set(gateway.paths) == {SESSION}


def test_a_look_up_carries_the_key_too() -> None:
    gateway = waha(session=WORKING)

    gateway.use(lambda transport: transport.check())
    assert {(a.method, a.headers["X-Api-Key"]) for a in gateway.requests} == {("GET", "k3y")}


def test_a_person_who_waits_for_a_list_waits_longer_than_for_a_message() -> None:
    slow = waha(session=Answer(SILENT, {}))
    began = time.monotonic()

    async def impatient(transport: Transport) -> None:
        async with asyncio.timeout(0.6):
            await transport.check()

    with pytest.raises(TimeoutError):
        slow.use(impatient, timeout=0.1)
    assert time.monotonic() - began > 0.5


@pytest.mark.parametrize(("size", "count"), [(20_000_000, 2), (20_000_001, 0)])
def test_a_list_that_is_longer_than_any_is_empty(size: int, count: int) -> None:
    raw: Any = b'[{"id": "1@g.us"}, {"id": "2@g.us"}]'.ljust(size)
    gateway = FakeGateway("evolution", {"/group/fetchAllGroups/my%20line": Answer(200, raw)})

    assert len(gateway.use(lambda transport: transport.groups())) == count


@pytest.mark.parametrize("status", [CLOSED, 307], ids=["hung up", "a redirect"])
def test_an_upload_that_is_not_answered_has_failed(status: int) -> None:
    gateway = FakeGateway("wassenger", {"/v1/files": Answer(status, {})})

    with pytest.raises(UploadFailed) as caught:
        gateway.use(lambda transport: transport.prepare(media()))
    assert caught.value.reason.kind is (Kind.NETWORK if status == CLOSED else Kind.UNKNOWN)
    assert caught.value.reason.detail
    assert gateway.paths == ["/v1/files"]


def test_an_upload_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = FakeGateway("wassenger", {"/v1/files": Answer(SILENT, {})})
    monkeypatch.setattr("accounts.channels.wassenger.transport.UPLOAD_SECONDS", 0.2)

    with pytest.raises(UploadFailed) as caught:
        gateway.use(lambda transport: transport.prepare(media()), timeout=11)
    assert caught.value.reason.kind is Kind.NETWORK


# -- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "sent"), [("k3y", "k3y"), (" k3y\r\n", "k3y"), (None, ""), ("", "")])
def test_a_key_is_sent_without_what_surrounds_it(value: str | None, sent: str) -> None:
    assert header_safe("api_key", value) == sent


@pytest.mark.parametrize("value", ["a\nb", "a\r\nX: y", "a\x00b"])
def test_a_key_with_a_line_break_inside_is_refused(value: str) -> None:
    with pytest.raises(BadSetting, match="“api_key” contains a line break"):
        header_safe("api_key", value)


@pytest.mark.parametrize("key", SETTINGS)
def test_every_gateway_signs_in_with_its_key(key: str) -> None:
    """Whatever it is asked, and in its own words."""
    header = {"cloud": "Authorization", "evolution": "apikey", "waha": "X-Api-Key", "wassenger": "Token"}
    gateway = FakeGateway(key, {})

    with pytest.raises(CheckFailed):
        gateway.use(lambda transport: transport.check())
    assert gateway.requests[0].headers[header.get(key, "X-API-KEY")] == ("Bearer k3y" if key == "cloud" else "k3y")


def test_a_file_is_put_into_the_body_as_it_is() -> None:
    """Each recipient has a body of its own: a look at every character of a large file would hold up all lanes."""
    small, large = Base64(b"c21hbGw="), Base64(b"QUJD" * 8_000_000)
    body = {"chat": "1", "file": {"name": "“a”", "data": small}, "more": [small], "caption": "Hello"}
    text = {"chat": "1", "file": {"name": "“a”", "data": "c21hbGw="}, "more": ["c21hbGw="], "caption": "Hello"}
    assert json.loads(call("/", body).content) == text

    def seconds(value: Any) -> float:
        began = time.thread_time()
        assert len(call("/", {"data": value}).content) == len(large) + 12
        return time.thread_time() - began

    assert min(seconds(large) for _ in range(3)) < min(seconds(large.content.decode()) for _ in range(3))
