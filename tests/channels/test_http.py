"""What transports over HTTP share: whether a body left, what an answer holds, and connections that are shared."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import aiohttp
import pytest

from accounts.channels import http
from accounts.channels.base import Kind, NotSent, Unknown
from accounts.channels.http import Answer, Body, Sending, StaleConnection

GARBAGE = (b"", b"no JSON", b"\xff", b"[" * 100_000)


class Wire:
    """As much of a connection as a body needs: where its bytes go, and the socket below."""

    def __init__(self, sock: socket.socket | None, closing: bool = False) -> None:
        self.transport: Any = self
        self.sock, self.closing = sock, closing
        self.written = b""

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.sock}[name]

    async def write(self, chunk: bytes) -> None:
        self.written += chunk


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


# -- whether a body left ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["write", "write_with_length"])
def test_a_body_on_a_live_connection_has_left(pair: tuple[socket.socket, socket.socket], how: str) -> None:
    body, wire = Body(b"hello"), Wire(pair[0])
    assert not body.left

    asyncio.run(body.write(wire) if how == "write" else body.write_with_length(wire, None))  # type: ignore[arg-type]

    assert (body.left, wire.written) == (True, b"hello")


@pytest.mark.parametrize("how", ["write", "write_with_length"])
@pytest.mark.parametrize("what", ["no transport", "closing", "the other side left", "the other side spoke"])
def test_a_body_on_a_dead_connection_stays(pair: tuple[socket.socket, socket.socket], how: str, what: str) -> None:
    body, wire = Body(b"hello"), Wire(pair[0], closing=what == "closing")
    if what == "no transport":
        wire.transport = None
    if what == "the other side left":
        pair[1].close()
    if what == "the other side spoke":
        pair[1].send(b"HTTP/1.1 408\r\n")

    with pytest.raises(StaleConnection, match="closed"):
        asyncio.run(body.write(wire) if how == "write" else body.write_with_length(wire, None))  # type: ignore[arg-type]

    assert (body.left, wire.written) == (False, b"")


def test_a_connection_without_a_socket_is_believed() -> None:
    body, wire = Body(b"hello"), Wire(None)

    asyncio.run(body.write(wire))  # type: ignore[arg-type]
    assert body.left


def test_a_socket_is_readable_once_the_other_side_did_something(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert http.readable(ours.fileno()) is False
    theirs.send(b"x")
    assert http.readable(ours.fileno()) is True


def test_each_try_has_a_body_of_its_own() -> None:
    sending = Sending()
    assert (sending.body, sending.content) == (None, b"")
    first = sending.fresh()
    first.left = True

    assert sending.body is first
    assert sending.fresh() is sending.body is not first
    assert not sending.body.left


@pytest.mark.parametrize(
    ("left", "error", "outcome"),
    [
        (None, OSError("refused"), NotSent(Kind.NETWORK, "refused")),
        (False, TimeoutError(), NotSent(Kind.NETWORK, "TimeoutError")),
        (True, OSError("gone"), Unknown("gone")),
    ],
    ids=["no body", "it stayed", "it left"],
)
def test_what_no_answer_means(left: bool | None, error: Exception, outcome: Any) -> None:
    body = None if left is None else Body(b"x")
    if body is not None:
        body.left = bool(left)

    assert http.lost(body, error) == outcome


def test_a_stale_connection_is_known_in_any_wrapping() -> None:
    wrapped = aiohttp.ClientConnectionError("failed")
    wrapped.__cause__ = StaleConnection("dead")

    assert http.went_stale(StaleConnection("dead"))
    assert http.went_stale(wrapped)
    assert not http.went_stale(aiohttp.ClientConnectionError("refused"))


# -- what an answer holds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", GARBAGE, ids=lambda raw: str(raw[:8]))
def test_garbage_is_empty(raw: bytes) -> None:
    assert (http.as_object(raw), http.as_items(raw)) == ({}, None)


@pytest.mark.parametrize(
    ("raw", "as_object", "as_items"),
    [(b'{"a": 1}', {"a": 1}, None), (b'[{"a": 1}]', {}, [{"a": 1}]), (b"[]", {}, []), (b'"a"', {}, None)],
)
def test_an_object_or_a_list(raw: bytes, as_object: Any, as_items: Any) -> None:
    assert (http.as_object(raw), http.as_items(raw)) == (as_object, as_items)


@pytest.mark.parametrize(
    ("value", "number"), [("7", 7.0), (2.5, 2.5), ("-3", 0.0), (0, 0.0), ("", None), ("soon", None), (None, None)]
)
def test_a_number_is_never_below_zero(value: Any, number: float | None) -> None:
    assert http.as_number(value) == number


@pytest.mark.parametrize(
    ("value", "text"),
    [("hi", "hi"), (7, "7"), ("a\x00b", "ab"), (True, ""), (1.5, ""), (None, ""), (["x"], "")],
)
def test_a_text_is_a_text_or_a_number(value: Any, text: str) -> None:
    assert http.as_text(value) == text


@pytest.mark.parametrize(
    ("path", "found"),
    [((), {"a": {"b": 1}}), (("a",), {"b": 1}), (("a", "b"), 1), (("x", "b"), None), (("a", "b", "c"), None)],
)
def test_what_lies_at_a_path(path: tuple[str, ...], found: Any) -> None:
    assert http.dig({"a": {"b": 1}}, *path) == found


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-06-01T10:00:00Z", datetime(2026, 6, 1, 10, tzinfo=UTC)),
        ("2026-06-01T10:00:00+02:00", datetime(2026, 6, 1, 10, tzinfo=timezone(timedelta(hours=2)))),
        ("2026-06-01T10:00:00", datetime(2026, 6, 1, 10, tzinfo=UTC)),
        ("yesterday", None),
        (7, None),
        (None, None),
    ],
)
def test_a_moment_has_a_timezone(value: Any, moment: datetime | None) -> None:
    found = http.as_moment(value)

    assert found == moment
    assert found is None or found.utcoffset() == (moment or found).utcoffset() is not None


def test_an_error_without_words_is_named() -> None:
    assert (http.words_of(TimeoutError()), http.words_of(OSError("gone"))) == ("TimeoutError", "gone")


def test_an_answer_need_not_say_how_long_to_wait() -> None:
    assert Answer(200, {}).retry_after == ""


# -- connections ------------------------------------------------------------------------------------------


def test_all_accounts_of_a_loop_share_one_pool_until_the_last_has_gone() -> None:
    async def go() -> None:
        first, second = http.take_connector(), http.take_connector()
        assert first is second
        await http.release_connector()
        assert not first.closed
        await http.release_connector()
        assert first.closed
        assert asyncio.get_running_loop() not in http._shared
        await http.release_connector()  # once too often
        again = http.take_connector()
        assert again is not first
        assert not again.closed
        await http.release_connector()
        assert again.closed

    asyncio.run(go())


@pytest.mark.parametrize("limit", [0, 3])
def test_a_pool_has_the_limit_it_was_given(limit: int) -> None:
    async def go() -> int:
        async with http.connector(limit) as made:
            return int(made.limit)

    assert asyncio.run(go()) == limit


def test_a_pool_has_no_limit_unless_told() -> None:
    async def go() -> int:
        async with http.connector() as made:
            return int(made.limit)

    assert asyncio.run(go()) == 0
