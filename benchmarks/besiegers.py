"""The hostile side of `benchmarks.siege`: bounded, on loopback, from addresses of their own."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any, Self

import aiohttp

#: Loopback addresses of the besiegers: Crier bounds what comes from one address, and people come from another.
ADDRESSES = [f"127.0.1.{n}" for n in range(1, 31)]
HOST = "127.0.0.1"
DRIP_SECONDS = 1.0
#: between two hostile forms: about two a second from one operator
FORM_SECONDS = 0.3
REPLY_SECONDS = 2.0
LONGEST = 60_000

TEXTS = {
    # In an order that Unicode sorts one by one: normalising it takes quadratic time.
    "combining marks": "a" + "\u0301\u0316" * (LONGEST // 2),
    "braces": "{" * LONGEST,
    "placeholders": "{a|" * (LONGEST // 3),
    "mailboxes": "a@" * (LONGEST // 2),
    "numbers": "+49 " * (LONGEST // 4),
    "spaces": " " * LONGEST + "x",
    "lines": "x,\n" * (LONGEST // 3),
    "quotes": "\"'" * (LONGEST // 2),
    "brackets": "[" * LONGEST,
}

#: pages with a form, and lists whose search takes a text
FORMS = (
    "login",
    "my_notifications",
    "my_timezone",
    "second_factor_code",
    "confirm",
    "accounts_account_add",
    "reminders_reminder_add",
    "reminders_recipient_add",
    "reminders_recipient_import",
    "reminders_suppression_add",
    "reminders_suppression_import",
)
LISTS = (
    "fanout_run_changelist",
    "fanout_runtarget_changelist",
    "fanout_inboundevent_changelist",
    "reminders_reminder_changelist",
    "reminders_recipient_changelist",
    "reminders_suppression_changelist",
    "accounts_account_changelist",
)


class Besiegers:
    """Everything that is hostile, from `start` until the block ends."""

    def __init__(self, port: int, connections: int, cookies: dict[str, str], file: str) -> None:
        self.port, self.connections, self.cookies, self.file = port, connections, cookies, file
        self.addresses = itertools.cycle(ADDRESSES)
        self.tasks: list[asyncio.Task[None]] = []
        self.open: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}
        self.silent_url = ""

    async def __aenter__(self) -> Self:
        self.silent = await asyncio.start_server(self._never_answer, HOST, 0)
        self.silent_url = f"http://{HOST}:{self.silent.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.silent.close()

    def start(self, hook: str, key: str) -> None:
        """Begin. `hook` and `key`: the webhook of an account of the hostile operator."""
        kinds: list[Callable[[str], Awaitable[None]]] = [self._slow_headers, self._slow_body, self._stop_reading]
        for _, kind in zip(range(self.connections), itertools.cycle(kinds)):
            self.tasks.append(asyncio.create_task(self._again_and_again(kind, next(self.addresses))))
        self.tasks += [asyncio.create_task(self._post_forms()), asyncio.create_task(self._reply(hook, key))]

    def figures(self) -> dict[str, Any]:
        """Return the open connections by kind, the answers to hostile texts by status, and the slowest of them."""
        slowest = sorted(self.slowest.items(), key=lambda one: -one[1])[:3]
        return {
            "open": dict(self.open),
            "answers": dict(self.answers),
            "slowest_answers": {what: round(seconds, 1) for what, seconds in slowest},
        }

    # --- connections --------------------------------------------------------------------------------------

    async def _again_and_again(self, kind: Callable[[str], Awaitable[None]], address: str) -> None:
        name = kind.__name__.strip("_")
        while True:
            self.open[name] += 1
            try:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await kind(address)
            finally:
                self.open[name] -= 1
            await asyncio.sleep(DRIP_SECONDS)

    async def _connect(self, address: str, head: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.port, limit=1024, local_addr=(address, 0))
        writer.write(head.encode())
        await writer.drain()
        return reader, writer

    async def _drip(self, writer: asyncio.StreamWriter, drop: bytes) -> None:
        try:
            while not writer.is_closing():
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(DRIP_SECONDS)
        finally:
            writer.close()

    async def _slow_headers(self, address: str) -> None:
        _, writer = await self._connect(address, f"GET /admin/login/ HTTP/1.1\r\nHost: {HOST}\r\n")
        await self._drip(writer, b"X-Slow: yes\r\n")

    async def _slow_body(self, address: str) -> None:
        head = f"POST /admin/login/ HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000000\r\n\r\n"
        _, writer = await self._connect(address, head)
        await self._drip(writer, b"x")

    async def _stop_reading(self, address: str) -> None:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        head = f"GET {self.file} HTTP/1.1\r\nHost: {HOST}\r\nCookie: {cookie}\r\n\r\n"
        reader, writer = await self._connect(address, head)
        try:
            await reader.readexactly(1)
            # The reader's buffer is full now, so nothing more is read.
            await asyncio.Event().wait()
        finally:
            writer.close()

    async def _never_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read on, so that a caller who gives up is noticed, and say nothing."""
        # Cancelled at the end of the loop, which would be logged for each connection.
        with suppress(OSError, asyncio.CancelledError):
            while await reader.read(65536):
                pass
        writer.close()

    # --- texts --------------------------------------------------------------------------------------------

    async def _post_forms(self) -> None:
        from django.urls import reverse

        connector = aiohttp.TCPConnector(local_addr=(ADDRESSES[0], 0))
        timeout = aiohttp.ClientTimeout(total=120)
        base = f"http://{HOST}:{self.port}"
        # A jar that keeps the CSRF cookie of an address without a name.
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(
            base, connector=connector, cookie_jar=jar, cookies=self.cookies, timeout=timeout
        ) as session:
            for text, name in itertools.cycle(itertools.product(TEXTS, (*FORMS, *LISTS))):
                path = reverse(f"admin:{name}")
                if name == "accounts_account_add":
                    path += "?channel=sandbox"
                began = time.monotonic()
                try:
                    status = await self._post(session, name, path, TEXTS[text])
                except (aiohttp.ClientError, TimeoutError) as problem:
                    status = type(problem).__name__
                self.answers[status] += 1
                what, seconds = f"{name}: {text}", time.monotonic() - began
                self.slowest[what] = max(seconds, self.slowest.get(what, 0.0))
                await asyncio.sleep(FORM_SECONDS)

    async def _post(self, session: aiohttp.ClientSession, name: str, path: str, text: str) -> str:
        """Put the text into every field that takes one, as a browser would send the form; return the status."""
        if name in LISTS:
            # As long as a request line may be.
            async with session.get(path, params={"q": text[:8_000]}, allow_redirects=False) as answer:
                await answer.read()
                return str(answer.status)
        async with session.get(path) as page:
            form = Form()
            form.feed(await page.text())
        fields = {field: text if kind == "text" else value for field, (kind, value) in form.fields.items()}
        headers = {"Referer": f"http://{HOST}:{self.port}{path}"}
        async with session.post(path, data=fields, headers=headers, allow_redirects=False) as answer:
            await answer.read()
            return str(answer.status)

    async def _reply(self, hook: str, key: str) -> None:
        """Answer with a hostile text, from a different number each time."""
        from accounts.channels.sandbox.webhook import SIGNATURE_HEADER, signature

        connector = aiohttp.TCPConnector(local_addr=(ADDRESSES[-1], 0))
        async with aiohttp.ClientSession(f"http://{HOST}:{self.port}", connector=connector) as session:
            for number, text in enumerate(itertools.cycle(TEXTS.values())):
                sender = f"+49152{number:08d}"
                event = {"id": f"hostile {number}", "kind": "reply", "at": time.time(), "from": sender, "text": text}
                body = json.dumps({"events": [event]}).encode()
                with suppress(aiohttp.ClientError):
                    async with session.post(
                        hook, data=body, headers={SIGNATURE_HEADER: signature(key, body)}
                    ) as answer:
                        self.answers[f"reply {answer.status}"] += 1
                await asyncio.sleep(REPLY_SECONDS)


class Form(HTMLParser):
    """The fields of a page's forms by name: "text" for those that take one, and the value they start with."""

    TEXT = {"text", "search", "email", "url", "tel", "password", ""}

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, tuple[str, str]] = {}
        self.select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "textarea" and name:
            self.fields[name] = ("text", "")
        elif tag == "select" and name:
            self.select = name
        elif tag == "option" and self.select and ("selected" in given or self.select not in self.fields):
            self.fields[self.select] = ("choice", given.get("value", ""))
        elif tag == "input" and name:
            kind = given.get("type", "")
            if kind in ("checkbox", "radio") and "checked" not in given:
                return
            if kind not in ("file", "submit"):
                self.fields[name] = ("text" if kind in self.TEXT else kind, given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self.select = ""
