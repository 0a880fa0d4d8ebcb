"""The layers of a web process around Django: how much a request may bring, which thread works on it, whose it is.

Left alone, Django reads a whole body to the disk before it asks who sent it (`BoundedBodies` refuses what is too long),
and starts a thread for every request, each with a database connection: a few hundred requests at once use up
PostgreSQL's connections, and the drivers wait with everything else. Here a fixed number of threads takes the requests
in turn (`BoundedRequests`). Each thread works on one request at a time and has one connection. A request waits in a
bounded queue until a thread is free; where the queue is full, or the wait gets too long, the answer is 503.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import lru_cache, partial
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import DatabaseError, connections
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from accounts import tokens
from config.problems import AWAY, RETRY_AFTER

log = logging.getLogger("crier.web")

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

P = ParamSpec("P")
T = TypeVar("T")

#: Requests that may wait for a thread: in total, and from one address, so that a single client cannot fill the queue.
MOST_WAITING = 200
MOST_WAITING_EACH = 100
WAIT_SECONDS = 10.0
#: A thread without work for so long closes its database connection.
IDLE_SECONDS = 30.0
WARN_EVERY_SECONDS = 60.0

#: Static files, `/readyz` and the rights of people with a live page are looked up here, so that they do not queue
#: behind pages.
LIGHT_THREADS = 2
#: Files that are written while they are downloaded, however slowly, are read here.
DOWNLOAD_THREADS = 2
#: Connections of a web process besides WEB_THREADS: theirs, LISTEN for live pages, and two sessions for webhooks.
FURTHER_CONNECTIONS = LIGHT_THREADS + DOWNLOAD_THREADS + 1 + 2

BUSY = "Crier has too many requests to answer at the moment. Try again in a few seconds.\n"
GONE: Message = {"type": "http.disconnect"}

MB = 1024 * 1024
#: limit without a login: enough for every form without files, and for a bounced mail
FOR_ANYBODY = 8 * MB
#: files that one form uploads: those of a reminder's parts come together
FILES_AT_ONCE = 4


# --- how much a request may bring -----------------------------------------------------------------------------


class TooLarge(Exception):
    """The body is longer than this client may send."""


class BoundedBodies:
    """ASGI layer that refuses a body that is too long before it is stored."""

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
        """Count the body as it arrives: its length may be missing or wrong."""
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
    kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if not logged_in and kind.lower() == "bearer":
        logged_in = await light.run(tokens.exists, secret.strip(), timezone.now())
    return FILES_AT_ONCE * settings.MEDIA_MAX_MB * MB if logged_in else FOR_ANYBODY


def _has_session(key: str) -> bool:
    return Session.objects.filter(session_key=key, expire_date__gt=timezone.now()).exists()


async def _refuse(send: Send) -> None:
    await answer(send, 413, "The request is too large.\n", connection="close")


# --- threads --------------------------------------------------------------------------------------------------


class WebThread:
    """One thread. Calls run on it in the order in which they come."""

    def __init__(self, name: str) -> None:
        self.executor = ThreadPoolExecutor(1, name)
        self.closing: asyncio.TimerHandle | None = None

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await sync_to_async(call, thread_sensitive=False, executor=self.executor)(*args, **kwargs)

    def wake(self) -> None:
        if self.closing is not None:
            self.closing.cancel()
            self.closing = None

    def rest(self) -> None:
        loop = asyncio.get_running_loop()
        self.closing = loop.call_later(IDLE_SECONDS, self.executor.submit, connections.close_all)


class Threads:
    """A fixed number of threads, and the queue for them."""

    def __init__(self, count: int, name: str) -> None:
        # The one that was given back last is taken first: the others stay idle and close their connections.
        self.free = [WebThread(f"{name}-{n}") for n in range(count)]
        self.waiting: dict[asyncio.Future[WebThread], str] = {}

    def is_full_for(self, address: str) -> bool:
        if self.free or len(self.waiting) < MOST_WAITING_EACH:
            return False
        return len(self.waiting) >= MOST_WAITING or list(self.waiting.values()).count(address) >= MOST_WAITING_EACH

    def line_up(self, address: str = "") -> asyncio.Future[WebThread]:
        """Return a ticket, whose result is the thread. Cancelling it leaves the queue."""
        ticket: asyncio.Future[WebThread] = asyncio.get_running_loop().create_future()
        if self.free:
            thread = self.free.pop()
            thread.wake()
            ticket.set_result(thread)
        else:
            self.waiting[ticket] = address
            ticket.add_done_callback(lambda ticket: self.waiting.pop(ticket, None))
        return ticket

    def give_back(self, thread: WebThread) -> None:
        while self.waiting:
            ticket = next(iter(self.waiting))
            del self.waiting[ticket]
            if not ticket.done():
                ticket.set_result(thread)
                return
        thread.rest()
        self.free.append(thread)

    async def next_free(self) -> WebThread:
        """Return a thread as soon as there is one, however long the queue."""
        ticket = self.line_up()
        try:
            return await ticket
        except asyncio.CancelledError:
            if not ticket.cancelled():
                # It came in the moment in which the caller gave up.
                self.give_back(ticket.result())
            raise

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the call returns. Its database connection is closed afterwards."""
        thread = await self.next_free()
        try:
            return await thread.run(_then_close, partial(call, *args, **kwargs))
        finally:
            self.give_back(thread)


def _then_close(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        connections.close_all()


light = Threads(LIGHT_THREADS, "light")
downloads = Threads(DOWNLOAD_THREADS, "download")


class BoundedRequests:
    """ASGI layer that gives every request a thread, or refuses it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.pages = Threads(settings.WEB_THREADS, "page")
        self.refused = 0
        self.warned_at = -WARN_EVERY_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        threads = light if scope["path"].startswith(settings.STATIC_URL) else self.pages
        turn = Turn(threads, _address(scope))

        async def received() -> Message:
            """The turn begins with the end of the body: a slow upload must not occupy a thread."""
            message = await receive()
            is_whole = message["type"] == "http.request" and not message.get("more_body")
            return await turn.begin(message, receive) if is_whole and turn.thread is None else message

        async def answered(message: Message) -> None:
            """The turn ends when the answer begins: a slow reader or a live page must not occupy a thread either."""
            turn.end()
            await send(message)

        try:
            # Django's own context, inside, leaves this one in force.
            async with ThreadSensitiveContext(executor=turn):
                await self.app(scope, received, answered)
        finally:
            turn.end()
        if turn.refused:
            self._warn()
            await answer(send, 503, BUSY, retry_after=RETRY_AFTER)

    def _warn(self) -> None:
        """Log the first refusal, then one line a minute."""
        self.refused += 1
        if time.monotonic() - self.warned_at >= WARN_EVERY_SECONDS:
            log.warning("busy: refused %d requests, all %d threads are at work", self.refused, settings.WEB_THREADS)
            self.refused, self.warned_at = 0, time.monotonic()


class Turn(Executor):
    """A request's time on a thread. asgiref calls `submit` for everything that may block."""

    def __init__(self, threads: Threads, address: str) -> None:
        self.threads = threads
        self.address = address
        self.thread: WebThread | None = None
        self.ended = False
        self.refused = False

    async def begin(self, message: Message, receive: Receive) -> Message:
        """Wait for a thread. Returns the message, or for Django a disconnect where there is no thread or no client."""
        if self.threads.is_full_for(self.address):
            self.refused = True
            return GONE
        ticket = self.threads.line_up(self.address)
        has_left = not ticket.done() and await self._wait(ticket, receive)
        if ticket.done():
            self.thread = ticket.result()
            return message
        ticket.cancel()
        self.refused = not has_left
        return GONE

    async def _wait(self, ticket: asyncio.Future[WebThread], receive: Receive) -> bool:
        """Wait for the thread, or until it takes too long. Returns whether the client has left."""
        leaving: asyncio.Future[Any] = asyncio.ensure_future(receive())
        waiting: list[asyncio.Future[Any]] = [ticket, leaving]
        try:
            await asyncio.wait(waiting, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not ticket.cancel():
                self.thread = ticket.result()  # which `end` gives back
            raise
        finally:
            has_left = leaving.done()
            leaving.cancel()
        return has_left

    def end(self) -> None:
        """Give the thread to the next request. The rest of this one runs between the calls of that one."""
        if self.thread is not None and not self.ended:
            self.ended = True
            self.threads.give_back(self.thread)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self.thread is None:
            raise RuntimeError("A request must not block before its body has come.")
        return self.thread.executor.submit(fn, *args, **kwargs)


def stay_on_thread(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Make the middleware chain synchronous, so that it runs on the thread in one go. Otherwise each middleware would
    be a trip from the event loop to the thread and back, 23 for a page."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return get_response(request)

    return middleware


# --- whose request it is, behind a proxy ----------------------------------------------------------------------


def _address(scope: Scope) -> str:
    forwarded = (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for")
    return address_behind_proxies((scope.get("client") or [""])[0], ",".join(forwarded))


def client_address(request: HttpRequest) -> str:
    """Return the address that the request came from, for lockouts and the audit trail."""
    address, forwarded = request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", "")
    if forwarded and settings.HTTPS and _is_address(address) and not _is_proxy(address):
        _warn_of_proxy(address)
    return address_behind_proxies(address, forwarded)


@lru_cache(maxsize=8)
def _warn_of_proxy(proxy: str) -> None:
    """Log once for each of a few addresses: a proxy is not believed, so all its visitors share one lockout."""
    if ip_address(proxy).is_private:
        log.warning("X-Forwarded-For of %s is not believed: if this is your proxy, name it in TRUSTED_PROXIES", proxy)


def address_behind_proxies(address: str, forwarded_for: str) -> str:
    """Return the client's address, from that of the connection and X-Forwarded-For.

    Each proxy appends the address that called it. So, from the right, the first address that is not one of our proxies
    is the client; everything left of it is the client's own claim.
    """
    forwarded = forwarded_for.split(",")
    while _is_proxy(address) and forwarded and _is_address(before := forwarded.pop().strip()):
        address = before
    return address


def _is_proxy(address: str) -> bool:
    return _is_address(address) and any(ip_address(address) in network for network in settings.TRUSTED_PROXIES)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


# --- answers --------------------------------------------------------------------------------------------------


async def answer(send: Send, status: int, text: str, kind: str = "text/plain; charset=utf-8", **headers: str) -> None:
    """Send a complete response without Django."""
    body = text.encode()
    named = {"content_type": kind, "content_length": str(len(body)), "cache_control": "no-store"}
    named |= {"x_content_type_options": "nosniff"} | headers
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
