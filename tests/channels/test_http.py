"""HTTP of the channels: whether a body left, what an answer holds, shared connections, and refused addresses."""

from __future__ import annotations

import ast
import asyncio
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from accounts.channels import http
from accounts.channels.base import AccountConfig, Kind, NotSent, Part, Unknown
from accounts.channels.http import Answer, Body, File, Sending, StaleConnection, connector, multipart
from accounts.channels.registry import channels, offered, transport_for
from accounts.models import Account
from tests.factories import AccountFactory

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


def test_after_100_continue_only_the_end_of_a_connection_is_stale(pair: tuple[socket.socket, socket.socket]) -> None:
    answered, ended = Body(b"hello", after_100=True), Body(b"hello", after_100=True)
    pair[1].send(b"HTTP/1.1 200 OK\r\n")
    asyncio.run(answered.write(Wire(pair[0])))  # type: ignore[arg-type]
    assert answered.left

    assert pair[0].recv(100)
    pair[1].close()
    with pytest.raises(StaleConnection, match="closed"):
        asyncio.run(ended.write(Wire(pair[0])))  # type: ignore[arg-type]
    assert not ended.left


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


# -- forms with files -----------------------------------------------------------------------------------


def test_a_form_byte_by_byte() -> None:
    body, mime = multipart([("to", "żółw")], [File("file", "a.png", "image/png", b"\x89PNG")])
    boundary = mime.removeprefix("multipart/form-data; boundary=")

    assert (
        body
        == (
            f"--{boundary}\r\n"
            'Content-Disposition: form-data; name="to"\r\n\r\nżółw\r\n'
            f"--{boundary}\r\n"
            'Content-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
        ).encode()
        + b"\x89PNG\r\n"
        + f"--{boundary}--\r\n".encode()
    )
    assert multipart([("to", "other")])[1] != mime


# -- guarded sockets --------------------------------------------------------------------------------------


FORBIDDEN = (
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("100.100.100.200", "192.0.0.8", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("192.88.99.1", "168.63.129.16", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
    *("fe80::1", "fe80::1%1", "fec0::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "64:ff9b::7f00:1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:808:808::1", "2001:0:7f00:1::1", "2001:db8::1"),
    *("100::1", "4000::1", "3fff::1", "3fff:fff:ffff::1", "5f00::1", "2001:1::1", "2001:4:112::1", "2001:20::1"),
    *("2620:4f:8000::42", "192.31.196.1", "192.52.193.1", "192.175.48.1", "192.0.2.1", "198.51.100.1", "203.0.113.1"),
)
PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "3ffe::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
)


@pytest.fixture
def closed(settings: Any) -> Any:
    """As on a server."""
    settings.ALLOW_PRIVATE_NETWORKS, settings.SANDBOX = [], False
    return settings


@pytest.mark.parametrize("address", FORBIDDEN)
def test_what_is_not_public_is_not_reached(closed, address):
    assert not http.may_connect(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_reached(closed, address):
    assert http.may_connect(address)


def test_an_administrator_opens_one_network_and_no_more(closed):
    closed.ALLOW_PRIVATE_NETWORKS = [ip_network("10.0.0.0/8")]
    assert http.may_connect("10.1.2.3")
    assert not http.may_connect("127.0.0.1")
    assert not http.may_connect("::ffff:10.1.2.3")


def test_a_relay_on_this_machine_brings_no_demo_with_it(settings):
    settings.ALLOW_PRIVATE_NETWORKS, settings.SANDBOX = [ip_network("127.0.0.1/32")], False
    assert "sandbox" in channels()
    assert "sandbox" not in offered()
    url = next(field for field in channels()["unipile"].settings if field.name == "url")
    assert url.problem("https://evil.example.net")
    assert url.problem("http://127.0.0.1:8765")
    assert not url.problem("https://api8.unipile.com:13851")


def test_in_the_demo_a_provider_may_be_on_this_machine_and_nowhere_else(settings):
    settings.SANDBOX = True
    url = next(field for field in channels()["unipile"].settings if field.name == "url")
    assert "sandbox" in offered()
    assert not url.problem("http://127.0.0.1:8765")
    assert url.problem("https://evil.example.net")


@pytest.fixture
def server() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.3)
        yield listening


def visited(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except TimeoutError:
        return False
    return True


def rebind(monkeypatch: pytest.MonkeyPatch, port: int) -> list[str]:
    """A name that is public when it is asked for the first time and loopback from then on."""
    asked: list[str] = []

    def answer(host: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        address = "8.8.8.8" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return asked


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"])
def test_http_does_not_reach_this_machine(closed, server, host):
    async def get() -> None:
        async with aiohttp.ClientSession(connector=connector()) as session:
            await session.get(f"http://{host}:{server.getsockname()[1]}/")

    with pytest.raises((aiohttp.ClientError, OSError)):
        asyncio.run(get())
    assert not visited(server)


def test_a_name_that_changes_its_mind_is_checked_where_it_is_used(closed, server, monkeypatch):
    port = server.getsockname()[1]
    rebind(monkeypatch, port)
    assert http.host_problem("rebind.example") == ""
    with pytest.raises(http.ForbiddenAddress):
        asyncio.run(http.connect_socket("rebind.example", port))
    assert not visited(server)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_smtp_does_not_reach_this_machine(closed, server, host):
    config = AccountConfig(
        1, "smtp", "Office", "a@example.com", {"host": host, "port": server.getsockname()[1], "security": "plain"}
    )

    async def send() -> Any:
        transport = transport_for(config)
        try:
            return await transport.send("b@example.org", Part("1:0", 0, "text", "Hello"), "crier-1-0")
        finally:
            await transport.close()

    outcome = asyncio.run(send())
    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    assert "private network, which Crier may not reach" in outcome.detail
    assert not visited(server)


# -- names ------------------------------------------------------------------------------------------------


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str, port: int = 0) -> None:
    """Every name has these addresses."""

    def answer(host: str, *args: Any, **kwargs: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        (["8.8.8.8"], ""),
        (["8.8.8.8", "1.1.1.1"], ""),
        (["10.0.0.1"], "mail.example is in a private network, which Crier may not reach."),
        (["8.8.8.8", "10.0.0.1"], "mail.example is in a private network, which Crier may not reach."),
    ],
    ids=["public", "two", "private", "one of two"],
)
def test_whoever_enters_a_host_is_told_why_not(closed, monkeypatch, addresses, problem):
    resolve(monkeypatch, *addresses)
    assert http.host_problem("mail.example") == problem


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".example"])
def test_a_host_without_an_address_is_a_spelling(closed, host):
    assert http.host_problem(host) == f"The host {host} has no address: check its spelling."


def test_the_first_address_that_answers_is_used(settings, server, monkeypatch):
    settings.ALLOW_PRIVATE_NETWORKS = [ip_network("127.0.0.0/8")]
    resolve(monkeypatch, "10.0.0.1", "127.0.0.9", "127.0.0.1", port=server.getsockname()[1])

    async def go() -> str:
        connected = await http.connect_socket("mail.example", server.getsockname()[1])
        assert connected.getblocking() is False
        with connected:
            return str(connected.getpeername()[0])

    assert asyncio.run(go()) == "127.0.0.1"
    assert visited(server)


def test_a_name_without_any_address_is_refused(closed, monkeypatch):
    resolve(monkeypatch)
    with pytest.raises(http.ForbiddenAddress, match=r"mail\.example has no address"):
        asyncio.run(http.connect_socket("mail.example", 25))


@pytest.mark.parametrize("way", ["socket", "HTTP"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (socket.EAI_NONAME, "There is no server called mail.exmple.org."),
        (socket.EAI_AGAIN, "The address of mail.exmple.org cannot be looked up at the moment: not now."),
    ],
    ids=["unknown", "no resolver"],
)
def test_a_misspelt_server_is_told_in_words(monkeypatch, way: str, code: int, said: str) -> None:
    def look_up(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(code, "not now")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def go() -> None:
        if way == "socket":
            await http.connect_socket("mail.exmple.org", 25)
        async with aiohttp.ClientSession(connector=http.connector(1)) as session:
            await session.get("http://mail.exmple.org/")

    with pytest.raises((socket.gaierror, aiohttp.ClientConnectorError)) as caught:
        asyncio.run(go())
    assert http.words_of(caught.value) == said


def test_a_connection_that_fails_leaves_no_socket_behind(settings, monkeypatch):
    """pytest turns the warning about an open socket into a failure; here it is closed for certain."""
    settings.ALLOW_PRIVATE_NETWORKS = [ip_network("127.0.0.0/8")]
    made: list[socket.socket] = []
    real = http.checked_socket

    def checked(entry: Any) -> socket.socket:
        made.append(real(entry))
        return made[-1]

    monkeypatch.setattr(http, "checked_socket", checked)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    said = f"127.0.0.1 does not accept connections at port {port}: check the port, and whether the server is running."
    with pytest.raises(ConnectionRefusedError, match=re.escape(said)):
        asyncio.run(http.connect_socket("127.0.0.1", port))
    assert [one.fileno() for one in made] == [-1]


def test_the_sandbox_is_for_the_demo(closed):
    assert "sandbox" not in offered()
    assert "Unknown channel 'sandbox'" in Account(channel="sandbox")._channel_errors()["channel"]


@pytest.mark.django_db
def test_an_account_keeps_a_channel_that_is_no_longer_offered(closed):
    assert "channel" not in AccountFactory.create(channel="sandbox")._channel_errors()


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://gmail.googleapis.com", True),
        ("https://mtls.gmail.googleapis.com", True),
        ("https://gmail.googleapis.com.evil.example", False),
        ("https://evilgoogleapis.com", False),
        ("https://evil.example/?gmail.googleapis.com", False),
        ("https://gmail.googleapis.com@evil.example", False),
        ("https://gmail.googleapis.com:99999", False),
    ],
)
def test_gmail_is_asked_at_googles_own_hosts(closed, url, taken):
    for name in ("base_url", "token_url"):
        assert bool(offered()["gmail"].setting_problems({name: url})) is not taken


#: what opens connections of its own accord; only the guarded sockets may
OPENERS = {"TCPConnector", "create_connection", "open_connection", "urlopen", "build_opener", "HTTPConnection"}
#: doctor opens an unsubscribe link of this site, whose address only the environment sets
MAY = {"accounts/channels/http.py", "fanout/ops/diagnosis.py"}


def test_nothing_else_opens_connections():
    root = Path(__file__).resolve().parents[2]
    paths = [path for folder in ("accounts", "reminders", "fanout") for path in (root / folder).rglob("*.py")]
    opening = {str(path.relative_to(root)) for path in paths if names_in(path) & OPENERS}
    assert opening == MAY, "use the guarded sockets of accounts.channels.http"


def names_in(path: Path) -> set[str]:
    """Of attributes, of what is imported, and of what is called without either."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for part in ("attr", "id", "name"):
            names.add(str(vars(node).get(part)))
    return names
