"""How much a request may bring. Django reads a whole body to the disk before it asks who sent it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connections
from django.utils import timezone

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MB = 1024 * 1024
#: enough for every form without files, and for a bounced mail
FOR_ANYBODY = 8 * MB
#: files of a reminder's parts come together
FILES_AT_ONCE = 4


class TooLarge(Exception):
    """The body is longer than this sender's may be."""


class BoundedBodies:
    """Around the web application: a body that is too long is refused before it is stored anywhere."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"")
        large = not announced.isdigit() or int(announced[:20]) > FOR_ANYBODY
        most = await _most(headers) if large and scope["method"] not in ("GET", "HEAD") else FOR_ANYBODY
        if announced.isdigit() and int(announced[:20]) > most:
            await _refuse(send)
            return
        await self._bounded(scope, receive, send, most)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        """A body without a length, or with a wrong one, is counted as it comes."""
        came = 0

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise TooLarge
            return message

        try:
            await self.app(scope, counted, send)
        except TooLarge:
            await _refuse(send)


async def _most(headers: dict[bytes, bytes]) -> int:
    logged_in = await sync_to_async(_has_session)(headers.get(b"cookie", b"").decode("latin-1"))
    return FILES_AT_ONCE * settings.MEDIA_MAX_MB * MB if logged_in else FOR_ANYBODY


def _has_session(cookies: str) -> bool:
    try:
        key = SimpleCookie(cookies).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return False
    try:
        stored = Session.objects.filter(session_key=key.value if key else "", expire_date__gt=timezone.now())
        return stored.exists()
    finally:
        connections.close_all()


async def _refuse(send: Send) -> None:
    text = b"The request is too large.\n"
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text})
