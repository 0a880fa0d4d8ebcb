"""The sandbox channel: over HTTP to the sandbox provider, or straight into one on the virtual clock."""

from __future__ import annotations

import asyncio
import io
import json
import select
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

from accounts.channels.base import (
    AccountConfig,
    CheckFailed,
    Handle,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Sent,
    Transport,
    Unknown,
    UploadFailed,
)
from accounts.channels.sandbox.provider import CLOSED, SILENT, Provider, Reply

DEFAULT_URL = "http://127.0.0.1:8765"
DEFAULT_TIMEOUT = 10.0
RETRY_WHEN_OFFLINE = 20.0
KEY_HEADER = "X-Sandbox-Key"
FAILURES = (aiohttp.ClientError, OSError, TimeoutError)

KIND_OF_STATUS = {
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.RECIPIENT_GONE,
    429: Kind.RATE_LIMITED,
    452: Kind.SOFT_BOUNCE,
    463: Kind.NEW_CHATS_BLOCKED,
    503: Kind.UNAVAILABLE,
    521: Kind.NETWORK,
}
#: Statuses that mean more than one thing; the code in the body says which.
KIND_OF_CODE = {
    (403, "banned"): Kind.BANNED,
    (422, "hard_bounce"): Kind.HARD_BOUNCE,
    (422, "content_rejected"): Kind.CONTENT_REJECTED,
}


class Sandbox(Transport):
    """What both ways to the provider share."""

    channel = "sandbox"
    uploads_media = True

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self.name = account_name(account)
        self.key: str | None = account.credentials.get("key")
        self.timeout = float(account.config.get("timeout", DEFAULT_TIMEOUT))
        self.recognises_repeats = bool(account.config.get("recognises_repeats", False))


class SandboxTransport(Sandbox):
    """Over HTTP, to the provider in its own process."""

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        base = str(account.config.get("url") or DEFAULT_URL).rstrip("/")
        self.base = f"{base}/v1/{quote(self.name, safe='')}"
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> str:
        try:
            async with self._open().get(f"{self.base}/status", allow_redirects=False) as response:
                reply = await read_reply(response)
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from error
        return checked(reply)

    async def prepare(self, media: Media) -> Handle:
        content = await read_file(media)
        try:
            return handle_of(await self._post("media", io.BytesIO(content), media.mime))
        except FAILURES as error:
            raise UploadFailed(NotSent(Kind.NETWORK, words_of(error))) from error

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        body = Body(encoded(address, part, message_id))
        try:
            return outcome_of(await self._post("messages", body, "application/json"))
        except FAILURES as error:
            return lost(body, error)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await release_connector()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=take_connector(),
                connector_owner=False,
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                headers={KEY_HEADER: self.key} if self.key else None,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _post(self, action: str, body: Body | io.BytesIO, mime: str) -> Reply:
        # aiohttp repeats only idempotent methods by itself, so a POST leaves at most once. A redirect could
        # make it leave twice: never followed.
        request = self._open().post(
            f"{self.base}/{action}", data=body, headers={"Content-Type": mime}, allow_redirects=False
        )
        async with request as response:
            return await read_reply(response)


class MemorySandboxTransport(Sandbox):
    """Straight into a provider that lives in this process, for the virtual clock."""

    def __init__(self, account: AccountConfig, provider: Provider) -> None:
        super().__init__(account)
        self.provider = provider

    async def check(self) -> str:
        if self.provider.down:
            raise CheckFailed(Kind.NETWORK, "connection refused")
        reply = await self.provider.status(self.name, self.key)
        if reply.status in (CLOSED, SILENT):
            raise CheckFailed(Kind.NETWORK, await self._no_answer(reply))
        return checked(reply)

    async def prepare(self, media: Media) -> Handle:
        if self.provider.down:
            raise UploadFailed(NotSent(Kind.NETWORK, "connection refused"))
        reply = await self.provider.upload(self.name, media.sha256, media.size, self.key)
        if reply.status in (CLOSED, SILENT):
            raise UploadFailed(NotSent(Kind.NETWORK, await self._no_answer(reply)))
        return handle_of(reply)

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        if self.provider.down:
            return NotSent(Kind.NETWORK, "connection refused")
        try:
            async with asyncio.timeout(self.timeout):
                reply = await self.provider.accept(
                    self.name, address, part.index, part.kind, part.text, part.handle, message_id, self.key
                )
        except TimeoutError:
            return Unknown("no answer in time")
        if reply.status in (CLOSED, SILENT):
            return Unknown(await self._no_answer(reply))
        return outcome_of(reply)

    async def _no_answer(self, reply: Reply) -> str:
        if reply.status == CLOSED:
            return "connection closed without an answer"
        await self.provider.sleep(self.timeout)
        return "no answer in time"


# -- what the provider's answers mean ---------------------------------------------------------------------


def outcome_of(reply: Reply) -> Outcome:
    """The three words for an answer that came back whole."""
    if reply.status == 200:
        provider_id = reply.body.get("id")
        return Sent(provider_id) if isinstance(provider_id, str) else Unknown("accepted without an id")
    if reply.status in KIND_OF_STATUS or 400 <= reply.status < 500:
        return refusal(reply)
    # A redirect, a 500 or a gateway's time-out: somebody had the payload and did not say what became of it.
    return Unknown(f"HTTP {reply.status} {detail_of(reply)}".strip())


def refusal(reply: Reply) -> NotSent:
    code = str(reply.body.get("code"))
    kind = KIND_OF_CODE.get((reply.status, code)) or KIND_OF_STATUS.get(reply.status, Kind.UNKNOWN)
    wait = as_number(reply.body.get("retry_after"))
    if wait is None and kind is Kind.UNAVAILABLE:
        wait = RETRY_WHEN_OFFLINE
    return NotSent(kind, detail_of(reply), wait, as_moment(reply.body.get("until")))


def handle_of(reply: Reply) -> Handle:
    handle = reply.body.get("handle")
    if reply.status == 200 and isinstance(handle, str):
        return Handle(handle, as_moment(reply.body.get("expires_at")))
    # Nothing reaches a recipient by an upload, so even an unclear answer is "not sent".
    raise UploadFailed(refusal(reply))


def checked(reply: Reply) -> str:
    if reply.status != 200:
        failure = refusal(reply)
        raise CheckFailed(failure.kind, failure.detail)
    return f"sandbox account {reply.body.get('account')}"


def detail_of(reply: Reply) -> str:
    return str(reply.body.get("message") or reply.body.get("code") or f"HTTP {reply.status}")


def as_number(value: Any) -> float | None:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None


def as_moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def read_reply(response: aiohttp.ClientResponse) -> Reply:
    body = as_object(await response.read())
    if "retry_after" not in body and "Retry-After" in response.headers:
        body["retry_after"] = response.headers["Retry-After"]
    return Reply(response.status, body)


def as_object(raw: bytes) -> dict[str, Any]:
    """A garbage body reads as an empty one: the status still counts, and a 200 without an id does not."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def words_of(error: BaseException) -> str:
    return str(error) or type(error).__name__


# -- the request and where it got to ----------------------------------------------------------------------


class StaleConnection(aiohttp.ClientConnectionError):
    """The connection was closed by the other side while it lay idle; nothing was written to it."""


class Body(payload.BytesPayload):
    """A request body that knows whether it left.

    `left` is the boundary between NotSent and Unknown: false means that not one byte of the body was handed
    to a live connection, so the provider cannot have a whole request. It turns true before the write, so
    doubt always counts as sent.
    """

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self.left = False

    # aiohttp calls one of the two, depending on its version.
    async def write(self, writer: AbstractStreamWriter) -> None:
        self._leave(writer)
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._leave(writer)
        await super().write_with_length(writer, content_length)

    def _leave(self, writer: AbstractStreamWriter) -> None:
        refuse_stale(writer)
        self.left = True


def refuse_stale(writer: AbstractStreamWriter) -> None:
    """Find out before writing that a kept-alive connection is dead.

    When a provider dies, its idle connections look alive until the loop has read their end. A message written
    to one of them would count as unknown, though it went nowhere: so ask the kernel first.
    """
    transport = writer.transport
    if transport is None or transport.is_closing():
        raise StaleConnection("the connection was closed before anything was written")
    sock = transport.get_extra_info("socket")
    if sock is not None and readable(sock.fileno()):
        raise StaleConnection("the provider closed the idle connection")


def readable(fd: int) -> bool:
    """Before its request a connection has nothing to read, unless the other side has ended it."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


async def read_file(media: Media) -> bytes:
    try:
        return await asyncio.to_thread(media.read)
    except OSError as error:
        reason = f"{media.filename} cannot be read: {error.strerror or error}"
        raise UploadFailed(NotSent(Kind.UNKNOWN, reason)) from error


def lost(body: Body, error: BaseException) -> Outcome:
    if body.left:
        return Unknown(words_of(error))
    return NotSent(Kind.NETWORK, words_of(error))


def encoded(address: str, part: Part, message_id: str) -> bytes:
    return json.dumps(
        {
            "to": address,
            "part": part.index,
            "kind": part.kind,
            "text": part.text,
            "media": part.handle,
            "message_id": message_id,
        }
    ).encode()


def account_name(account: AccountConfig) -> str:
    """What the provider's book calls the account."""
    return str(account.config.get("account") or account.address or account.id)


# -- connections ------------------------------------------------------------------------------------------


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
        shared = _shared[loop] = SharedConnector(aiohttp.TCPConnector(limit=0))
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
