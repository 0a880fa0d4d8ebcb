"""A gateway inside the test's own process: it gives the answers that a test chooses, and records the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from aiohttp import web

from accounts.channels import registry
from accounts.channels.base import AccountConfig, Media, Transport
from accounts.channels.http import Answer
from accounts.channels.sandbox.provider import CLOSED, SILENT
from accounts.channels.sandbox.server import hang_up
from accounts.channels.waha.transport import VERSIONS

T = TypeVar("T")
ELSEWHERE = "/elsewhere"
#: asked before a text now and then; recorded only where a test has an answer to it
WAHA_VERSION = "/api/server/version"
#: settings that accounts of each gateway need
SETTINGS: dict[str, dict[str, Any]] = {
    "cloud": {"phone_number_id": "10200"},
    "evolution": {"instance": "my line"},
    "unipile": {"account_id": "a 1"},
    "unipile_mail": {"account_id": "a 1"},
    "waha": {"session": "my line"},
    "wassenger": {"device": "d 1"},
}
SECRETS: dict[str, dict[str, Any]] = {
    "cloud": {"access_token": "k3y"},
    "evolution": {"api_key": "k3y"},
    "unipile": {"api_key": "k3y"},
    "unipile_mail": {"api_key": "k3y"},
    "waha": {"api_key": "k3y"},
    "wassenger": {"token": "k3y"},
}


class GatewayRequest(NamedTuple):
    """One request as the gateway got it."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class FakeGateway:
    """Each path has its answers, given one after the other; the last one repeats. Other paths are answered with 418."""

    def __init__(self, channel: str, answers: Mapping[str, Answer | list[Answer]]) -> None:
        self.channel = channel
        self.answers = {path: list(a) if isinstance(a, list) else [a] for path, a in answers.items()}
        self.requests: list[GatewayRequest] = []
        self.connections: set[Any] = set()

    def use(
        self,
        work: Callable[[Transport], Awaitable[T]],
        *,
        link: str | None = None,
        concurrency: int = 1,
        **config: Any,
    ) -> T:
        """Run `work` with a transport of the channel whose gateway this is."""

        async def go() -> T:
            runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            VERSIONS.pop(f"http://{host}:{port}", None)  # of an earlier gateway on this port
            account = self.account(**{"url": f"http://{host}:{port}", **config})
            transport = registry.transport_for(
                replace(account, concurrency=concurrency, media_url=lambda media: link_to(media, link))
            )
            try:
                return await work(transport)
            finally:
                await transport.close()
                await runner.cleanup()

        return asyncio.run(go())

    def account(self, **config: Any) -> AccountConfig:
        settings = {**SETTINGS[self.channel], **config}
        return AccountConfig(1, self.channel, "Line", "", settings, SECRETS[self.channel])

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.connections.add(request.transport)
        path = request.rel_url.raw_path
        if path == WAHA_VERSION and path not in self.answers:
            return web.Response(status=418)
        self.requests.append(
            GatewayRequest(request.method, path, dict(request.query), request.headers, await request.read())
        )
        answers = self.answers.get(path) or [Answer(418, {})]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer.status == SILENT:
            await asyncio.sleep(30)
        if answer.status in (SILENT, CLOSED):
            hang_up(request)
            return web.Response()
        headers = {"Retry-After": answer.retry_after} if answer.retry_after else {}
        if answer.version:
            headers["facebook-api-version"] = answer.version
        if 300 <= answer.status < 400:
            headers["Location"] = ELSEWHERE
        body: Any = answer.body
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(status=answer.status, body=raw, headers=headers, content_type="application/json")


def link_to(media: Media, link: str | None) -> str | None:
    return f"{link}/{media.filename}" if link else None


def items(*entries: Any) -> Answer:
    """Return an answer whose body is a bare list."""
    listed: Any = list(entries)
    return Answer(200, listed)
