"""The bridge's API: JSON over HTTP, for Crier's own processes only."""

from __future__ import annotations

import hmac
import io
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import psutil
import segno
from aiohttp import web

from accounts.channels.base import NotSent, Unknown
from accounts.channels.whatsapp import wire
from accounts.channels.whatsapp.bridge import library
from accounts.channels.whatsapp.bridge.bridge import Bridge, NotStored, Taken
from accounts.channels.whatsapp.bridge.conditions import DATABASE_RESTORED, NOT_STORED, State
from accounts.channels.whatsapp.bridge.messages import HANDLE_DAYS
from accounts.channels.whatsapp.bridge.session import Session

LARGEST_BODY = 2_100_000_000
#: So that the page can offer “Pair”.
STATE_WITHOUT_SESSION = {
    "state": State.UNPAIRED.value,
    "connected": False,
    "since": None,
    "detail": NOT_STORED,
    "until": None,
    "address": "",
    "qr": "",
    "letters": "",
    "code_expires_at": None,
    "groups": None,
    "library": "",
    "restored": False,
}
NO_OWNER = "no bridge has this account's session: is the bridge of its machine running?"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    def __init__(self, bridge: Bridge, token: str) -> None:
        self.bridge, self.token = bridge, token

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self.guard], client_max_size=LARGEST_BODY)
        one = "/accounts/{account:[0-9]+}"
        app.add_routes(
            [
                web.get("/healthz", self.health),
                web.get("/accounts", self.all_states),
                web.get(one, self.state),
                web.get(one + "/qr.png", self.qr_picture),
                web.post(one + "/pair", self.pair),
                web.post(one + "/connect", self.connect),
                web.post(one + "/logout", self.log_out),
                web.post(one + "/restored", self.restored),
                web.get(one + "/groups", self.groups),
                web.post(one + "/media", self.media),
                web.post(one + "/messages", self.messages),
            ]
        )
        return app

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the token first, and answer errors with a sentence instead of a page."""
        sent = request.headers.get(wire.TOKEN_HEADER, "")
        if not hmac.compare_digest(sent.encode(), self.token.encode()):
            return web.json_response({"detail": "this bridge belongs to a site with another SECRET_KEY"}, status=403)
        try:
            return await handler(request)
        except Taken as taken:
            return web.json_response({"owner": taken.owner, "detail": NO_OWNER}, status=wire.NOT_MINE)
        except web.HTTPException as error:
            return web.json_response({"detail": error.reason}, status=error.status)

    async def _session(self, request: web.Request, pairing: bool = False) -> Session:
        """Return the account's session. Every refusal here is below 500: the request was not taken."""
        account_id = int(request.match_info["account"])
        try:
            if account_id not in self.bridge.sessions and account_id not in await self.bridge.shard.accounts():
                raise web.HTTPNotFound(reason="There is no such WhatsApp account.")
            return await self.bridge.session(account_id, pairing)
        except ConnectionError:
            raise web.HTTPConflict(reason="The bridge has no connection to PostgreSQL; it tries again.") from None

    # -- sessions -----------------------------------------------------------------------------------------

    async def health(self, request: web.Request) -> web.Response:
        process = psutil.Process()
        body = {"pid": os.getpid(), "sessions": len(self.bridge.sessions), "memory": process.memory_info().rss}
        return web.json_response(body)

    async def all_states(self, request: web.Request) -> web.Response:
        return web.json_response({str(number): state_of(one) for number, one in self.bridge.sessions.items()})

    async def state(self, request: web.Request) -> web.Response:
        try:
            return web.json_response(state_of(await self._session(request)))
        except NotStored:
            return web.json_response(STATE_WITHOUT_SESSION)

    async def qr_picture(self, request: web.Request) -> web.Response:
        session = await self._session(request)
        code = session.pairing.code
        if code is None:
            raise web.HTTPNotFound(reason="There is no code at the moment.")
        picture = io.BytesIO()
        segno.make(code.qr, micro=False).save(picture, kind="png", scale=6)
        return web.Response(body=picture.getvalue(), content_type="image/png")

    async def pair(self, request: web.Request) -> web.Response:
        body, session = await read_object(request), await self._session(request, pairing=True)
        await session.pairing.pair(str(body.get("phone") or ""))
        return web.json_response(state_of(session))

    async def connect(self, request: web.Request) -> web.Response:
        session = await self._session(request)
        await session.open()
        return web.json_response(state_of(session))

    async def log_out(self, request: web.Request) -> web.Response:
        session = await self._session(request)
        try:
            await session.pairing.log_out()
        except (TimeoutError, session.library.error) as error:
            words = f"WhatsApp did not confirm it ({error or 'no answer'}): remove the device on the phone instead."
            return web.json_response({"detail": words}, status=409)
        return web.json_response(state_of(session))

    async def restored(self, request: web.Request) -> web.Response:
        session = await self._session(request)
        if not session.restored:
            return web.json_response({"detail": "The database was not restored, as far as the journal shows."})
        compared = await self.bridge.compare_with_journal(session)
        words = (
            f"The database knows {len(compared.known)} messages of the journal. {compared.marked} that it took for "
            "unsent are unconfirmed now, and the journal settles them within a minute; the rest of them needs you."
        )
        return web.json_response({"detail": words, "known": len(compared.known), "marked": compared.marked})

    async def groups(self, request: web.Request) -> web.Response:
        session = await self._session(request)
        refusal = session.refusal() or await session.listing.ask_for_groups()
        if refusal is not None:
            return web.json_response(wire.outcome_as_json(refusal), status=409)
        listed = (session.roster.groups or {}).values()
        return web.json_response({"groups": [asdict(one) for one in listed]})

    # -- files and messages -------------------------------------------------------------------------------

    async def media(self, request: web.Request) -> web.Response:
        session = await self._session(request)
        content = await request.read()
        mime = unquote(request.headers.get("X-Mime", "")) or "application/octet-stream"
        kind, sha256 = request.headers.get("X-Kind", ""), request.headers.get("X-Sha256", "")
        handle = await session.uploads.upload(content, mime, kind, sha256)
        if isinstance(handle, NotSent):
            return web.json_response(wire.outcome_as_json(handle))
        expires_at = datetime.now(UTC) + timedelta(days=HANDLE_DAYS)
        return web.json_response({"handle": handle, "expires_at": expires_at.isoformat()})

    async def messages(self, request: web.Request) -> web.Response:
        came_at = time.monotonic()
        session = await self._session(request)
        try:
            order = wire.Order.read(await read_object(request))
        except (TypeError, ValueError) as error:
            raise web.HTTPBadRequest(reason=f"This is not an order: {error}") from None
        outcome = await session.dispatcher.send(order, came_at, lambda: not caller_is_gone(request))
        if caller_is_gone(request) and not isinstance(outcome, Unknown):
            # The caller no longer reads the answer, perhaps because a driver was killed.
            session.dispatcher.report_late(order, outcome)
        return web.json_response(wire.outcome_as_json(outcome))


def caller_is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def state_of(session: Session) -> dict[str, Any]:
    condition, code = session.condition, session.pairing.code
    return {
        "state": condition.state.value,
        "connected": condition.state is State.CONNECTED,
        "since": condition.since.isoformat(),
        "detail": DATABASE_RESTORED if session.restored else condition.detail,
        "until": condition.until.isoformat() if condition.until else None,
        "address": session.address,
        "qr": code.qr if code else "",
        "letters": code.letters if code else "",
        "code_expires_at": code.expires_at.isoformat() if code else None,
        "groups": len(session.roster.groups) if session.roster.groups is not None else None,
        "library": library.version(),
        "restored": session.restored,
    }


async def read_object(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read() or b"{}")
    except ValueError:
        raise web.HTTPBadRequest(reason="The body is not JSON.") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(reason="The body is not a JSON object.")
    return body
