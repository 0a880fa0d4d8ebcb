"""The base of gateways' transports: one call over HTTP with JSON, its files, and its outcome."""

from __future__ import annotations

import abc
import asyncio
import base64
import json
import secrets
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import aiohttp

from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CheckFailed,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Refused,
    Sent,
    Transport,
    UploadFailed,
)
from accounts.channels.http import (
    FAILURES,
    Answer,
    Body,
    Sending,
    client,
    lost,
    read,
    read_list,
    went_stale,
    words_of,
)
from accounts.channels.paired import is_group
from accounts.channels.settings import BadSetting

JSON = "application/json"
#: Names our message in the gateway's log; no gateway acts on it.
MESSAGE_ID_HEADER = "X-Request-Id"
#: A person waits for the list of groups, but some gateways look up every group.
LIST_SECONDS = 60.0


#: Stands for a file while the rest of a body is written; no text contains it.
FILE = secrets.token_hex(16)


class Call(NamedTuple):
    """One request that sends a message."""

    path: str
    content: bytes
    mime: str = JSON


@dataclass(frozen=True, slots=True)
class Base64:
    """A file in base64, as a value in the body of a `call`."""

    content: bytes

    def __len__(self) -> int:
        return len(self.content)


def call(path: str, body: dict[str, Any]) -> Call:
    """Return the request. Files are put in as they are: JSON would look at every character of them, for each recipient
    and in the driver's loop."""
    files: list[bytes] = []

    def leave_out(value: Base64) -> str:
        files.append(value.content)
        return FILE

    text = json.dumps(body, default=leave_out).encode()
    if not files:
        return Call(path, text)
    around = text.split(FILE.encode())
    return Call(path, b"".join(chain(*zip(around, files), around[-1:])))


class Gateway(Transport):
    """Base transport. A channel adds where a message goes (`message`) and the meaning of answers (`outcome_of`,
    `refusal`)."""

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self.values: dict[str, Any] = self.channel.read_settings(account.config)
        credentials = self.channel.read_credentials(account.credentials)
        self.secrets = {name: header_safe(name, value) for name, value in credentials.items()}
        self.base: str = self.values["url"].rstrip("/")
        self.timeout: float = min(self.values["timeout"], LONGEST_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None
        self._encoded: tuple[str, Base64] = ("", Base64(b""))

    @property
    @abc.abstractmethod
    def headers(self) -> dict[str, str]:
        """Return the headers of every request: the key."""

    @abc.abstractmethod
    async def message(self, address: str, part: Part, message_id: str) -> Call:
        """Return the request for one part; raises Refused where it cannot be made."""

    @abc.abstractmethod
    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        """Return the meaning of the answer to this part."""

    @abc.abstractmethod
    def refusal(self, answer: Answer) -> NotSent:
        """Return the meaning of any other unsuccessful answer."""

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        sending = Sending()
        try:
            async with asyncio.timeout(self.timeout):
                request = await self.message(address, part, message_id)
                sending.content = request.content
                answer = await self._deliver(request, sending, message_id)
                return self._named(self.outcome_of(answer, part), address, answer)
        except Refused as error:
            return error.reason
        except FAILURES as error:
            return lost(sending.body, error)

    def known_as(self, address: str, answer: Answer) -> str:
        """Return the id that the provider used for the person, in the stored spelling; "" where it does not say."""
        return ""

    def _named(self, outcome: Outcome, address: str, answer: Answer) -> Outcome:
        known = self.known_as(address, answer) if isinstance(outcome, Sent) else ""
        other = known and known != address and not is_group(address)
        return replace(outcome, known_as=known) if isinstance(outcome, Sent) and other else outcome

    async def _deliver(self, request: Call, sending: Sending, message_id: str) -> Answer:
        headers = {"Content-Type": request.mime, MESSAGE_ID_HEADER: message_id}
        try:
            return await self._post(request.path, sending.fresh(), headers)
        except aiohttp.ClientConnectionError as error:
            # Node closes idle connections after 5 s; nothing was written to this one.
            if not went_stale(error):
                raise
            return await self._post(request.path, sending.fresh(), headers)

    async def _post(self, path: str, body: Body, headers: dict[str, str]) -> Answer:
        # A redirect could make the body leave twice: never followed.
        request = self._open().post(f"{self.base}{path}", data=body, headers=headers, allow_redirects=False)
        async with request as response:
            return await read(response)

    # -- other calls: nothing reaches a recipient by them ---------------------------------------------------

    async def get(self, path: str, params: dict[str, str] | None = None) -> Answer:
        limit = aiohttp.ClientTimeout(total=LIST_SECONDS)
        request = self._open().get(f"{self.base}{path}", params=params, allow_redirects=False, timeout=limit)
        async with request as response:
            return await read_list(response)

    async def ask(self, path: str, params: dict[str, str] | None = None) -> Answer:
        """Look something up; raises CheckFailed unless it was answered with 200."""
        try:
            answer = await self.get(path, params)
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from error
        if answer.status != 200:
            reason = self.refusal(answer)
            raise CheckFailed(reason.kind, reason.detail)
        return answer

    async def upload(self, path: str, content: bytes, mime: str, limit: float) -> Answer:
        """Post a file to the provider; raises UploadFailed where no answer came."""
        headers = {"Content-Type": mime}
        timeout = aiohttp.ClientTimeout(total=limit)
        try:
            request = self._open().post(
                f"{self.base}{path}", data=content, headers=headers, allow_redirects=False, timeout=timeout
            )
            async with request as response:
                return await read_list(response)
        except FAILURES as error:
            raise UploadFailed(NotSent(Kind.NETWORK, words_of(error))) from error

    # -- files ----------------------------------------------------------------------------------------------

    def link(self, media: Media) -> str | None:
        """Return the address where the gateway fetches the file itself; None while the site has no public address."""
        return self.account.media_url(media)

    async def encoded(self, media: Media) -> Base64:
        """Return the file in base64, encoded once for all recipients of a run."""
        if self._encoded[0] != media.sha256:
            self._encoded = (media.sha256, Base64(base64.b64encode(await content_of(media))))
        return self._encoded[1]

    # -- the connection -------------------------------------------------------------------------------------

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = client(self.timeout, max(1, self.account.concurrency), self.headers)
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def header_safe(name: str, value: str | None) -> str:
    """Return a key without the blanks around it; raises BadSetting for one that cannot be a header.

    A line break would begin another header, and a file often ends with one.
    """
    stripped = (value or "").strip()
    if not stripped.isprintable():
        raise BadSetting(f"“{name}” contains a line break or a control character: enter it again.")
    return stripped


async def content_of(media: Media) -> bytes:
    try:
        return await asyncio.to_thread(media.read)
    except OSError as error:
        words = f"{media.filename} cannot be read: {error.strerror or error}"
        raise Refused(NotSent(Kind.CONTENT_REJECTED, words)) from error
