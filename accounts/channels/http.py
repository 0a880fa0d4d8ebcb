"""Network access of the channels: HTTP requests that know whether they left, their answers, and guarded sockets.

Accounts' servers and webhooks are addresses that an operator chooses. Each address is checked where the connection is
made, so that a name cannot mean one thing when it is checked and another when it is used. Private networks are reached
only where an administrator's setting allows it (ALLOW_PRIVATE_NETWORKS).
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import os
import select
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

from accounts.channels.base import Kind, NotSent, Outcome, Unknown

LONGEST_ANSWER = 1_000_000
#: An account is in a few thousand groups at most, and a provider sends about 1 kB about each.
LONGEST_LIST = 20_000_000
FAILURES = (aiohttp.ClientError, OSError, TimeoutError)


# -- the request, and whether it left ---------------------------------------------------------------------


class StaleConnection(aiohttp.ClientConnectionError):
    """Raised when the other side closed an idle connection; nothing was written to it."""


class Body(payload.BytesPayload):
    """A request body that knows whether it left.

    `left` is the boundary between NotSent and Unknown. False means that not one byte of the body was handed to a live
    connection, so the provider cannot have a whole request. It turns true before the write, so doubt always counts as
    sent.
    """

    def __init__(self, value: bytes, after_100: bool = False) -> None:
        super().__init__(value)
        self.left = False
        # The body is written only after "100 Continue": the connection lives, and may hold the final answer already.
        self.after_100 = after_100

    # aiohttp calls one of the two, depending on its version.
    async def write(self, writer: AbstractStreamWriter) -> None:
        self._leave(writer)
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._leave(writer)
        await super().write_with_length(writer, content_length)

    def _leave(self, writer: AbstractStreamWriter) -> None:
        refuse_stale(writer, self.after_100)
        self.left = True


class Sending:
    """One message on its way, and whether the body of its last request left."""

    def __init__(self) -> None:
        self.content = b""
        self.body: Body | None = None

    def fresh(self) -> Body:
        self.body = Body(self.content)
        return self.body


def refuse_stale(writer: AbstractStreamWriter, after_100: bool = False) -> None:
    """Raise StaleConnection before anything is written to a kept-alive connection that is dead.

    When a provider dies, its idle connections look alive until the loop has read their end. A message written to one of
    them would count as unknown, although it went nowhere: so ask the kernel first.
    """
    transport = writer.transport
    if transport is None or transport.is_closing():
        raise StaleConnection("the connection was closed before anything was written")
    sock = transport.get_extra_info("socket")
    if sock is not None and readable(sock.fileno()) and not (after_100 and has_data(sock.fileno())):
        raise StaleConnection("the provider closed the idle connection")


def went_stale(error: BaseException) -> bool:
    """Return whether a stale connection is the error or its cause: aiohttp wraps the error of a body that was not
    written."""
    return any(isinstance(one, StaleConnection) for one in (error, error.__cause__))


def readable(fd: int) -> bool:
    """Return whether the socket can be read. Before its request a connection cannot, unless the other side has ended
    it."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def has_data(fd: int) -> bool:
    """Return whether there is something to read on a readable socket, and not only its end."""
    with socket.socket(fileno=os.dup(fd)) as copy:
        try:
            return bool(copy.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False


def lost(body: Body | None, error: BaseException) -> Outcome:
    """Return the outcome of a request without an answer, by whether its body had left."""
    if body is not None and body.left:
        return Unknown(words_of(error))
    return NotSent(Kind.NETWORK, words_of(error))


def words_of(error: BaseException) -> str:
    """Return what happened, in a sentence where the connection could not be made."""
    if isinstance(error, aiohttp.ClientConnectorError) and (words := no_way_to(error.host, error.port, error.os_error)):
        return words
    return str(error) or type(error).__name__


def no_way_to(host: str, port: int | None, error: OSError) -> str:
    """Return in people's words why there is no connection to this server; empty if the error has words of its own."""
    if isinstance(error, socket.gaierror):
        unknown = error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
        later = f"The address of {host} cannot be looked up at the moment: {error.strerror}."
        return f"There is no server called {host}." if unknown else later
    if isinstance(error, ConnectionRefusedError):
        return f"{host} does not accept connections at port {port}: check the port, and whether the server is running."
    if isinstance(error, TimeoutError):
        return f"{host} does not answer at port {port}."
    return ""


# -- the answer -------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """An answer that came back whole: its status, its JSON body and its Retry-After.

    `version` is the one of Meta's API that answered: after two years Meta answers for an old version with a newer one.
    """

    status: int
    body: dict[str, Any]
    retry_after: str = ""
    version: str = ""


async def read(response: aiohttp.ClientResponse) -> Answer:
    return Answer(response.status, as_object(await _bounded(response)), response.headers.get("Retry-After", ""))


async def read_list(response: aiohttp.ClientResponse) -> Answer:
    """Read an answer that may be a long list; a bare list becomes the body's `items`."""
    raw = await _bounded(response, LONGEST_LIST)
    items = as_items(raw)
    body = as_object(raw) if items is None else {"items": items}
    headers = response.headers
    return Answer(response.status, body, headers.get("Retry-After", ""), headers.get("facebook-api-version", ""))


async def _bounded(response: aiohttp.ClientResponse, longest: int = LONGEST_ANSWER) -> bytes:
    """Return the body, or nothing of one that is longer than a provider's answer could be."""
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > longest:
            response.close()
            return b""
    return bytes(raw)


def as_object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object.

    A garbage body reads as an empty one: the status still counts, and a 200 without an id does not.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def as_items(raw: bytes) -> list[Any] | None:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, list) else None


def as_number(value: Any) -> float | None:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None


def as_text(value: Any) -> str:
    """Return a text or a number as text, without characters that a database cannot store; "" for anything else."""
    return str(value).replace("\x00", "") if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def dig(body: Any, *path: str) -> Any:
    """Return the value at a path of a JSON body; None where anything on the way is missing."""
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def as_moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# -- connections ------------------------------------------------------------------------------------------


def connector(limit: int = 0) -> aiohttp.TCPConnector:
    """Return a connector whose sockets are all guarded, for names and plain addresses alike."""
    return aiohttp.TCPConnector(limit=limit, socket_factory=checked_socket)


def client(seconds: float, connections: int = 0, headers: dict[str, str] | None = None) -> aiohttp.ClientSession:
    """Return a session with guarded connections and without cookies, whose requests take `seconds` at most."""
    return aiohttp.ClientSession(
        connector=connector(connections),
        timeout=aiohttp.ClientTimeout(total=seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
    )


@dataclass(slots=True)
class SharedConnector:
    connector: aiohttp.TCPConnector
    users: int = 0


# One pool per event loop for all accounts: the provider's connections carry no account's state, and a driver
# of thousands of lanes needs as many sockets as it has sends in flight, not one for each lane.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedConnector] = WeakKeyDictionary()


def take_connector() -> aiohttp.TCPConnector:
    loop = asyncio.get_running_loop()
    shared = _shared.get(loop)
    if shared is None:
        shared = _shared[loop] = SharedConnector(connector())
    shared.users += 1
    return shared.connector


async def release_connector() -> None:
    loop = asyncio.get_running_loop()
    shared = _shared.get(loop)
    if shared is None:
        return
    shared.users -= 1
    if shared.users <= 0:
        del _shared[loop]
        await shared.connector.close()


# -- forms with files -------------------------------------------------------------------------------------


class File(NamedTuple):
    name: str  # of the form's field
    filename: str
    mime: str
    content: bytes


def multipart(fields: Iterable[tuple[str, str]], files: Iterable[File] = ()) -> tuple[bytes, str]:
    """Return a form's body and its content type. A field may come more than once.

    The body is bytes, so that a transport knows whether it left.
    """
    pieces = [_head(name) + value.encode() for name, value in fields]
    pieces += [_head(file.name, file) + file.content for file in files]
    # Made from the content, so that no piece of it can be the boundary.
    boundary = hashlib.sha256(b"\x00".join(pieces)).hexdigest()
    line = f"--{boundary}".encode()
    body = b"".join(line + b"\r\n" + piece + b"\r\n" for piece in pieces) + line + b"--\r\n"
    return body, f"multipart/form-data; boundary={boundary}"


def _head(name: str, file: File | None = None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'
    if file is not None:
        head += f'; filename="{_quoted(file.filename)}"\r\nContent-Type: {_quoted(file.mime)}'
    return head.encode() + b"\r\n\r\n"


def _quoted(text: str) -> str:
    """Quote a file's name as browsers do, so that nothing in it ends its header."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


# -- guarded sockets --------------------------------------------------------------------------------------


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
#: IPv6 in which an IPv4 address is the last 32 bits: mapped addresses and NAT64
EMBEDDED = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
#: Special-purpose blocks of IANA's registries without servers, which some versions of Python call global: tunnels
#: into IPv4 (6to4, its relays, Teredo), protocols, documentation, and anycast addresses of AS112 and AMT.
NOT_HOSTS = tuple(
    map(
        ipaddress.ip_network,
        (
            *("2001::/23", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
            *("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
        ),
    )
)
#: Azure's machines get their secrets from this public address.
METADATA = ipaddress.IPv4Address("168.63.129.16")


class ForbiddenAddress(OSError):
    """Raised for an address that Crier may not connect to; the text says so."""


def may_connect(address: str) -> bool:
    """Return whether Crier may connect to this IP address for an operator."""
    # Imported here, because the sandbox's server imports this module and runs without Django.
    from django.conf import settings

    ip = ipaddress.ip_address(address)
    return is_public(ip) or any(ip in network for network in settings.ALLOW_PRIVATE_NETWORKS)


def is_public(ip: IPAddress) -> bool:
    if ip == METADATA or any(ip in network for network in NOT_HOSTS):
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not ip.is_multicast and not ip.is_reserved
    if any(ip in network for network in EMBEDDED):
        return is_public(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return ip in GLOBAL_UNICAST and ip.is_global


def host_problem(host: str) -> str:
    """Return why a host may not be used, for the person who enters it, or "". It is checked again when used."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return f"The host {host} has no address: check its spelling."
    return "" if all(map(may_connect, addresses)) else f"{host} is in a private network, which Crier may not reach."


def checked_socket(entry: Any) -> socket.socket:
    """Return a socket for an entry of `getaddrinfo`; raises ForbiddenAddress."""
    family, kind, protocol, _, target = entry
    if not may_connect(str(target[0])):
        raise ForbiddenAddress(f"{target[0]} is in a private network, which Crier may not reach")
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    return made


async def connect_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address that answers and return the socket. For HTTP there is `connector`.

    Raises OSError, with a sentence where no server is called so, none listens or none answers.
    """
    loop = asyncio.get_running_loop()
    failure: OSError = ForbiddenAddress(f"{host} has no address")
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise socket.gaierror(no_way_to(host, port, error)) from error
    for entry in entries:
        try:
            return await _connect(loop, entry)
        except OSError as error:
            failure = error
    if words := no_way_to(host, port, failure):
        raise type(failure)(words) from failure
    raise failure


async def _connect(loop: asyncio.AbstractEventLoop, entry: Any) -> socket.socket:
    made = checked_socket(entry)
    try:
        await loop.sock_connect(made, entry[4])
    except BaseException:
        made.close()
        raise
    return made
