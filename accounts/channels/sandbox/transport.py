"""Transport of the sandbox: over HTTP to the sandbox provider, or directly into one on the virtual clock."""

from __future__ import annotations

import asyncio
import io
import json
from urllib.parse import quote

import aiohttp

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
from accounts.channels.http import (
    FAILURES,
    Answer,
    Body,
    as_moment,
    as_number,
    lost,
    read,
    release_connector,
    take_connector,
    words_of,
)
from accounts.channels.sandbox.channel import CHANNEL
from accounts.channels.sandbox.provider import CLOSED, SILENT, Provider

RETRY_WHEN_OFFLINE = 20.0
KEY_HEADER = "X-Sandbox-Key"

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
    (403, "not_writable"): Kind.NOT_WRITABLE,
    (422, "hard_bounce"): Kind.HARD_BOUNCE,
    (422, "content_rejected"): Kind.CONTENT_REJECTED,
    (422, "recipient_limited"): Kind.RECIPIENT_LIMITED,
    (422, "opted_out"): Kind.OPTED_OUT,
}


class Sandbox(Transport):
    """Base of both ways to the provider."""

    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        values = CHANNEL.read_settings(account.config) | CHANNEL.read_credentials(account.credentials)
        # the account's name in the provider's book
        self.name: str = values["account"] or account.address or str(account.id)
        self.key: str | None = values["key"]
        self.timeout: float = values["timeout"]
        self.recognises_repeats = values["recognises_repeats"]
        self.url: str = values["url"].rstrip("/")


class SandboxTransport(Sandbox):
    """Reaches the provider in its own process over HTTP."""

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self.base = f"{self.url}/v1/{quote(self.name, safe='')}"
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> str:
        try:
            async with self._open().get(f"{self.base}/status", allow_redirects=False) as response:
                answer = await read(response)
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from error
        return checked(answer)

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

    async def _post(self, action: str, body: Body | io.BytesIO, mime: str) -> Answer:
        # aiohttp repeats only idempotent methods by itself, so a POST leaves at most once. A redirect could
        # make it leave twice: never followed.
        request = self._open().post(
            f"{self.base}/{action}", data=body, headers={"Content-Type": mime}, allow_redirects=False
        )
        async with request as response:
            return await read(response)


class MemorySandboxTransport(Sandbox):
    """Calls a provider that lives in this process, for the virtual clock."""

    def __init__(self, account: AccountConfig, provider: Provider) -> None:
        super().__init__(account)
        self.provider = provider

    async def check(self) -> str:
        if self.provider.down:
            raise CheckFailed(Kind.NETWORK, "connection refused")
        answer = await self.provider.status(self.name, self.key)
        if answer.status in (CLOSED, SILENT):
            raise CheckFailed(Kind.NETWORK, await self._no_answer(answer))
        return checked(answer)

    async def prepare(self, media: Media) -> Handle:
        if self.provider.down:
            raise UploadFailed(NotSent(Kind.NETWORK, "connection refused"))
        answer = await self.provider.upload(self.name, media.sha256, media.size, self.key)
        if answer.status in (CLOSED, SILENT):
            raise UploadFailed(NotSent(Kind.NETWORK, await self._no_answer(answer)))
        return handle_of(answer)

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        if self.provider.down:
            return NotSent(Kind.NETWORK, "connection refused")
        try:
            async with asyncio.timeout(self.timeout):
                answer = await self.provider.accept(
                    self.name, address, part.index, part.kind, part.text, part.handle, message_id, self.key
                )
        except TimeoutError:
            return Unknown("no answer in time")
        if answer.status in (CLOSED, SILENT):
            return Unknown(await self._no_answer(answer))
        return outcome_of(answer)

    async def _no_answer(self, answer: Answer) -> str:
        if answer.status == CLOSED:
            return "connection closed without an answer"
        await self.provider.sleep(self.timeout)
        return "no answer in time"


# -- meaning of the provider's answers --------------------------------------------------------------------


def outcome_of(answer: Answer) -> Outcome:
    """Return the outcome of an answer that came back whole."""
    if answer.status == 200:
        provider_id = answer.body.get("id")
        return Sent(provider_id) if isinstance(provider_id, str) else Unknown("accepted without an id")
    if answer.status in KIND_OF_STATUS or 400 <= answer.status < 500:
        return refusal(answer)
    # After a redirect, a 500 or a gateway's time-out the payload has left, and its fate is unknown.
    return Unknown(f"HTTP {answer.status} {detail_of(answer)}".strip())


def refusal(answer: Answer) -> NotSent:
    code = str(answer.body.get("code"))
    kind = KIND_OF_CODE.get((answer.status, code)) or KIND_OF_STATUS.get(answer.status, Kind.UNKNOWN)
    wait = as_number(answer.body.get("retry_after", answer.retry_after))
    if wait is None and kind is Kind.UNAVAILABLE:
        wait = RETRY_WHEN_OFFLINE
    return NotSent(kind, detail_of(answer), wait, as_moment(answer.body.get("until")))


def handle_of(answer: Answer) -> Handle:
    handle = answer.body.get("handle")
    if answer.status == 200 and isinstance(handle, str):
        return Handle(handle, as_moment(answer.body.get("expires_at")))
    # Nothing reaches a recipient by an upload, so even an unclear answer is "not sent".
    raise UploadFailed(refusal(answer))


def checked(answer: Answer) -> str:
    if answer.status != 200:
        failure = refusal(answer)
        raise CheckFailed(failure.kind, failure.detail)
    return f"sandbox account {answer.body.get('account')}"


def detail_of(answer: Answer) -> str:
    return str(answer.body.get("message") or answer.body.get("code") or f"HTTP {answer.status}")


# -- the request ------------------------------------------------------------------------------------------


async def read_file(media: Media) -> bytes:
    try:
        return await asyncio.to_thread(media.read)
    except OSError as error:
        reason = f"{media.filename} cannot be read: {error.strerror or error}"
        raise UploadFailed(NotSent(Kind.UNKNOWN, reason)) from error


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
