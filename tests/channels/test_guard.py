"""Where an operator's account or webhook may connect to: checked at the socket, whatever a name resolves to."""

from __future__ import annotations

import ast
import asyncio
import socket
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from accounts.channels import guard
from accounts.channels.base import AccountConfig, Kind, NotSent, Part
from accounts.channels.http import connector
from accounts.channels.registry import channels, offered, transport_for
from accounts.models import Account
from tests.factories import AccountFactory

FORBIDDEN = (
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("100.100.100.200", "192.0.0.8", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("192.88.99.1", "168.63.129.16", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
    *("fe80::1", "fe80::1%1", "fec0::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "64:ff9b::7f00:1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:808:808::1", "2001:0:7f00:1::1", "2001:db8::1"),
    *("100::1", "4000::1"),
)
PUBLIC = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.fixture
def closed(settings: Any) -> Any:
    """As on a server."""
    settings.ALLOW_PRIVATE_NETWORKS, settings.SANDBOX = [], False
    return settings


@pytest.mark.parametrize("address", FORBIDDEN)
def test_what_is_not_public_is_not_reached(closed, address):
    assert not guard.allowed(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_reached(closed, address):
    assert guard.allowed(address)


def test_an_administrator_opens_one_network_and_no_more(closed):
    closed.ALLOW_PRIVATE_NETWORKS = [ip_network("10.0.0.0/8")]
    assert guard.allowed("10.1.2.3")
    assert not guard.allowed("127.0.0.1")
    assert not guard.allowed("::ffff:10.1.2.3")


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
    assert guard.problem("rebind.example") == ""
    with pytest.raises(guard.Forbidden):
        asyncio.run(guard.connect("rebind.example", port))
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
    assert guard.problem("mail.example") == problem


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".example"])
def test_a_host_without_an_address_is_a_spelling(closed, host):
    assert guard.problem(host) == f"The host {host} has no address: check its spelling."


def test_the_first_address_that_answers_is_used(settings, server, monkeypatch):
    settings.ALLOW_PRIVATE_NETWORKS = [ip_network("127.0.0.0/8")]
    resolve(monkeypatch, "10.0.0.1", "127.0.0.9", "127.0.0.1", port=server.getsockname()[1])

    async def go() -> str:
        connected = await guard.connect("mail.example", server.getsockname()[1])
        assert connected.getblocking() is False
        with connected:
            return str(connected.getpeername()[0])

    assert asyncio.run(go()) == "127.0.0.1"
    assert visited(server)


def test_a_name_without_any_address_is_refused(closed, monkeypatch):
    resolve(monkeypatch)
    with pytest.raises(guard.Forbidden, match=r"mail\.example has no address"):
        asyncio.run(guard.connect("mail.example", 25))


def test_a_connection_that_fails_leaves_no_socket_behind(settings, monkeypatch):
    """pytest turns the warning about an open socket into a failure; here it is closed for certain."""
    settings.ALLOW_PRIVATE_NETWORKS = [ip_network("127.0.0.0/8")]
    made: list[socket.socket] = []
    real = guard.checked_socket

    def checked(entry: Any) -> socket.socket:
        made.append(real(entry))
        return made[-1]

    monkeypatch.setattr(guard, "checked_socket", checked)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(guard.connect("127.0.0.1", port))
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


#: what opens connections of its own accord; `guard` and what it is built on may
OPENERS = {"TCPConnector", "create_connection", "open_connection", "urlopen", "build_opener", "HTTPConnection"}
MAY = {"accounts/channels/http.py"}


def test_nothing_else_opens_connections():
    root = Path(__file__).resolve().parents[2]
    paths = [path for folder in ("accounts", "reminders", "fanout") for path in (root / folder).rglob("*.py")]
    opening = {str(path.relative_to(root)) for path in paths if names_in(path) & OPENERS}
    assert opening == MAY, "use accounts.channels.guard"


def names_in(path: Path) -> set[str]:
    """Of attributes, of what is imported, and of what is called without either."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for part in ("attr", "id", "name"):
            names.add(str(vars(node).get(part)))
    return names
