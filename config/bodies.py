"""How much a request may bring. Django reads a whole body to the disk before it asks who sent it."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.utils import timezone

from config.problems import AWAY, RETRY_AFTER
from config.web_threads import App, Message, Receive, Scope, Send, answer, light

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
        try:
            most = await _most(headers) if large and scope["method"] not in ("GET", "HEAD") else FOR_ANYBODY
        except DatabaseError:
            await answer(send, 503, AWAY, connection="close", retry_after=RETRY_AFTER)
            return
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
    try:
        key = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        key = None
    logged_in = key is not None and await light.run(_has_session, key.value)
    return FILES_AT_ONCE * settings.MEDIA_MAX_MB * MB if logged_in else FOR_ANYBODY


def _has_session(key: str) -> bool:
    return Session.objects.filter(session_key=key, expire_date__gt=timezone.now()).exists()


async def _refuse(send: Send) -> None:
    await answer(send, 413, "The request is too large.\n", connection="close")
