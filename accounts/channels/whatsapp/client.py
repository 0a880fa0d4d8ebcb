"""The way from any of Crier's processes to the bridge that has an account's session."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import aiohttp

from accounts.channels.http import Answer, Body, read
from accounts.channels.whatsapp import wire

NO_BRIDGE = "the WhatsApp bridge is not running: start it with `make up` or `manage.py whatsapp_bridge`"


class NoBridge(aiohttp.ClientConnectionError):
    """Nobody to ask; nothing was said to anyone."""


class BridgeClient:
    """Asks the bridge of this machine, and goes on to the one that has the account where that is another.

    Not through the guard: where a bridge is, the site says, and never an operator.
    """

    def __init__(self, account_id: int, timeout: float) -> None:
        self.account_id = account_id
        self.timeout = timeout
        self.owner = ""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, action: str = "") -> Answer:
        return await self._ask("GET", action, None, {})

    async def post(self, action: str, body: Body | None = None, **headers: str) -> Answer:
        return await self._ask("POST", action, body, headers)

    async def _ask(self, method: str, action: str, body: Body | None, headers: dict[str, str]) -> Answer:
        try:
            answer = await self._call(method, self.owner or wire.bridge_url(), action, body, headers)
        except (aiohttp.ClientError, OSError, TimeoutError):
            self.owner = ""  # it may have moved
            raise
        if answer.status != wire.NOT_MINE:
            return answer
        if body is not None:
            body.left = False  # the one that answered has done nothing with it
        self.owner = str(answer.body.get("owner") or "")
        if not self.owner:
            raise NoBridge(str(answer.body.get("detail") or NO_BRIDGE))
        return await self._call(method, self.owner, action, body, headers)

    async def _call(self, method: str, base: str, action: str, body: Body | None, headers: dict[str, str]) -> Answer:
        if not base:
            raise NoBridge(NO_BRIDGE)
        url = f"{base}/accounts/{self.account_id}{'/' if action else ''}{action}"
        # With a body: not before the bridge has said that it is there. One that hangs has then taken nothing.
        request = self._open().request(
            method, url, data=body, headers=headers, expect100=body is not None, allow_redirects=False
        )
        async with request as response:
            return await read(response)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                headers={wire.TOKEN_HEADER: wire.token()},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def ask(account_id: int, method: str, action: str = "", body: dict[str, Any] | None = None) -> Answer:
    """One question for a page or a command, which have no connection to keep."""
    async with BridgeClient(account_id, timeout=20) as bridge, asyncio.timeout(25):
        if method == "GET":
            return await bridge.get(action)
        return await bridge.post(action, Body(json.dumps(body or {}).encode()))
