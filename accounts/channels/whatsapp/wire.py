"""The connection between Crier's processes and a bridge: JSON over HTTP, on loopback or inside the site's own network.

A bridge proves nothing to a caller. A caller proves with a token that it belongs to the site: both know SECRET_KEY.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
from django.conf import settings

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, Body, as_moment, as_number, read

TOKEN_HEADER = "X-Crier-Bridge"  # noqa: S105 - a header's name
#: Status for a caller of the wrong bridge; `owner` is the address of the right one, where there is one.
NOT_MINE = 421


@dataclass(frozen=True, slots=True)
class Order:
    """A message for a bridge to send."""

    to: str
    kind: str
    message_id: str
    text: str = ""
    handle: str = ""
    filename: str = ""
    mime: str = ""
    typing: bool = False
    #: of the lane that claimed it; 0: not sent by a lane
    epoch: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, body: dict[str, Any]) -> Order:
        """Read an order; raises TypeError or ValueError for a body that is not one."""
        order = cls(**body)
        if not all(isinstance(value, str) for name, value in body.items() if name not in ("typing", "epoch")):
            raise ValueError("all other values of an order are texts")
        if not isinstance(order.typing, bool) or not isinstance(order.epoch, int):
            raise ValueError("typing is yes or no, and epoch is a number")
        return order


def token() -> str:
    return hmac.new(settings.SECRET_KEY.encode(), b"whatsapp bridge", hashlib.sha256).hexdigest()


def folder() -> Path:
    """Return the folder where the bridges of this machine keep sessions and leave their address."""
    return Path(settings.VAR_DIR) / "whatsapp"


def bridge_url() -> str:
    """Return the address of this machine's bridge: from the settings, else as the bridge wrote it down; "" if there is
    none."""
    if settings.WHATSAPP_BRIDGE_URL:
        return str(settings.WHATSAPP_BRIDGE_URL).rstrip("/")
    try:
        return (folder() / "bridge.url").read_text().strip()
    except OSError:
        return ""


# -- outcomes ---------------------------------------------------------------------------------------------


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Sent):
        return {"outcome": "sent", "id": outcome.provider_id}
    if isinstance(outcome, Unknown):
        return {"outcome": "unknown", "detail": outcome.detail}
    return {
        "outcome": "not_sent",
        "kind": outcome.kind.value,
        "detail": outcome.detail,
        "retry_after": outcome.retry_after,
        "until": outcome.until.isoformat() if outcome.until else None,
    }


def read_outcome(body: dict[str, Any]) -> Outcome:
    """Return the outcome in a body. Anything but the three words leaves in doubt what happened."""
    word = body.get("outcome")
    if word == "sent" and isinstance(body.get("id"), str):
        return Sent(body["id"])
    if word == "not_sent":
        return read_refusal(body)
    return Unknown(str(body.get("detail") or "the bridge's answer cannot be read"))


def read_refusal(body: dict[str, Any]) -> NotSent:
    kind = body.get("kind")
    known = Kind(kind) if kind in list(Kind) else Kind.UNKNOWN
    detail = str(body.get("detail") or known)
    return NotSent(known, detail, as_number(body.get("retry_after")), moment(body.get("until")))


def moment(value: Any) -> datetime | None:
    return as_moment(value) if value else None


# -- asking a bridge --------------------------------------------------------------------------------------


NO_BRIDGE = "the WhatsApp bridge is not running: start it with `make up` or `manage.py whatsapp_bridge`"


class NoBridge(aiohttp.ClientConnectionError):
    """Raised where no bridge can be asked; no request left."""


class BridgeClient:
    """Asks the bridge of this machine, and goes on to the one that has the account where that is another.

    It uses no guarded sockets: the site decides where a bridge is, never an operator.
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
            answer = await self._call(method, self.owner or bridge_url(), action, body, headers)
        except (aiohttp.ClientError, OSError, TimeoutError):
            self.owner = ""  # the account may have moved
            raise
        if answer.status != NOT_MINE:
            return answer
        if body is not None:
            body.left = False  # the wrong bridge has not used the body
        self.owner = str(answer.body.get("owner") or "")
        if not self.owner:
            raise NoBridge(str(answer.body.get("detail") or NO_BRIDGE))
        return await self._call(method, self.owner, action, body, headers)

    async def _call(self, method: str, base: str, action: str, body: Body | None, headers: dict[str, str]) -> Answer:
        if not base:
            raise NoBridge(NO_BRIDGE)
        url = f"{base}/accounts/{self.account_id}{'/' if action else ''}{action}"
        # A body leaves only after the bridge has answered the headers: a bridge that hangs has then taken nothing.
        if body is not None:
            body.after_100 = True
        request = self._open().request(
            method, url, data=body, headers=headers, expect100=body is not None, allow_redirects=False
        )
        async with request as response:
            return await read(response)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                headers={TOKEN_HEADER: token()},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def ask(account_id: int, method: str, action: str = "", body: dict[str, Any] | None = None) -> Answer:
    """Ask one question for a page or a command, which keep no connection."""
    async with BridgeClient(account_id, timeout=20) as bridge, asyncio.timeout(25):
        if method == "GET":
            return await bridge.get(action)
        return await bridge.post(action, Body(json.dumps(body or {}).encode()))
