"""Scripted gateways: servers that answer as WAHA, Evolution, Meta, Wassenger and Unipile document it.

`python -m tests.gateways.server waha --port 0 --book PATH` runs one in a process of its own. Book, script and faults
are the sandbox provider's; a dialect turns requests into its calls, and its refusals into the gateway's words.
"""

from __future__ import annotations

import abc
import argparse
import asyncio
import importlib
import json
import random
import re
import sys
import time
from typing import Any, ClassVar, NamedTuple

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import FileBook, Line
from accounts.channels.sandbox.provider import CLOSED, SILENT, Provider
from accounts.channels.sandbox.reports import Reporter
from accounts.channels.sandbox.server import (
    SILENCE_SECONDS,
    App,
    add_arguments,
    announce,
    hang_up,
    listen,
    load_script,
    stop_signal,
)

PART = re.compile(r"crier-\d+-(\d+)")
#: Ids of older numbers in Brazil lack the digit that was added to all of them later.
NINTH_DIGIT, OLD_ID = re.compile(r"(55[1-9][0-9])9([0-9]{8})(?![0-9])"), r"\1\2"
GROUPS = [{"id": f"12036300000000{n:04d}@g.us", "name": f"Group {n}", "size": 10 + n} for n in range(1, 8)]


class Malformed(Exception):
    """A request that the gateway refuses, with its documented answer."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(body))
        self.reply = Answer(status, body)


NOT_SCRIPTED = {"message": "This gateway does not report that."}


class Hooked(NamedTuple):
    """A request to an account's webhook address."""

    headers: dict[str, str]
    body: bytes


def hidden_id(number: str) -> str:
    """The hidden id of the person with this number."""
    return f"{10**14 + int(number.removeprefix('+'))}@lid"


def number_behind(hidden: str) -> str:
    """The digits of the number of the person with this hidden id."""
    return str(int(hidden.partition("@")[0]) - 10**14)


def whatsapp_id(number: str) -> str:
    """The digits of the WhatsApp id of a number. Older Brazilian ids lack the ninth digit."""
    return NINTH_DIGIT.sub(OLD_ID, number.removeprefix("+"))


class Dialect(App, abc.ABC):
    """One gateway's way to speak."""

    #: kind of refusal → the gateway's status and body, with the provider's words for %s
    refusals: ClassVar[dict[str, tuple[int, str]]]

    def __init__(self, provider: Provider, book: FileBook, token: str = "") -> None:
        super().__init__(provider, book, Reporter(provider), token)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        page = self.pages.get((request.method, request.rel_url.raw_path))
        try:
            if page is not None:
                return await page(request)
            reply = await self.reply(request, request.rel_url.path)
        except Malformed as refused:
            reply = refused.reply
        return await self.speak(request, reply)

    @abc.abstractmethod
    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        """The gateway's answer to one of its calls."""

    @abc.abstractmethod
    def accepted(self, provider_id: str, to: str) -> Answer:
        """How it says that it took a message."""

    def incoming(self, line: Line, text: str, hidden: str, key: str) -> Hooked:
        """What the gateway reports when the person whom a message of the book went to answers it.

        `hidden` says how the sender is named: by number where it is empty, else by a hidden id, with the number in the
        place that this word stands for, or nowhere.
        """
        raise Malformed(404, NOT_SCRIPTED)

    def reaction(self, line: Line, emoji: str, key: str) -> Hooked:
        """What the gateway reports when that person reacts to the message, which is not an answer."""
        raise Malformed(404, NOT_SCRIPTED)

    def late_refusal(self, line: Line, key: str) -> Hooked:
        """What the gateway reports when WhatsApp refuses a message of the book that the gateway has accepted."""
        raise Malformed(404, NOT_SCRIPTED)

    async def report(self, request: web.BaseRequest) -> web.Response:
        """Something happens to the form's message: its recipient answers it with the form's text or reacts to it, or
        WhatsApp refuses it. Returns what the webhook said to the report of it."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        line = next(line for line in self.provider.latest if line["provider_id"] == form["message"])
        hook, kind = self.provider.hooks[line["account"]], form.get("kind", "reply")
        if kind == "reply":
            told = self.incoming(line, form["text"], form.get("hidden", ""), hook.key)
        elif kind == "reaction":
            told = self.reaction(line, form["text"], hook.key)
        elif kind == "refusal":
            told = self.late_refusal(line, hook.key)
        else:
            raise Malformed(404, NOT_SCRIPTED)
        async with self.reporter.session.post(hook.url, data=told.body, headers=told.headers) as response:
            return web.json_response({"status": response.status})

    async def deliver(
        self, account: str, to: str, kind: str, text: str, media: str | None, message_id: str, key: str | None
    ) -> Answer:
        part = PART.search(message_id)
        number = int(part[1]) if part else 0
        answer = await self.provider.accept(account, to, number, kind, text, media, message_id, key)
        return self.accepted(answer.body["id"], to) if answer.status == 200 else self.refused(answer)

    def refused(self, answer: Answer) -> Answer:
        if answer.status in (CLOSED, SILENT):
            return answer
        status, template = self.refusals[answer.body["code"]]
        words = json.dumps(answer.body["message"])[1:-1]
        wait = answer.body.get("retry_after")
        return Answer(status, json.loads(template.replace("%s", words)), str(int(wait)) if wait else "")

    async def speak(self, request: web.BaseRequest, reply: Answer) -> web.Response:
        if reply.status == SILENT:
            await asyncio.sleep(SILENCE_SECONDS)
        if reply.status in (SILENT, CLOSED):
            hang_up(request)
            return web.Response()
        headers = {"Retry-After": reply.retry_after} if reply.retry_after else None
        return web.json_response(reply.body, status=reply.status, headers=headers)


async def serve(dialect: type[Dialect], options: argparse.Namespace) -> None:
    book = FileBook(options.book)
    provider = Provider(book, load_script(options.script), time.time, random.Random(options.seed))
    app = dialect(provider, book, options.token)
    server = web.Server(app.handle, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.5)
    await runner.setup()
    try:
        announce(options, await listen(runner, options.host, options.port))
        await stop_signal()
    finally:
        await runner.cleanup()
        await app.reporter.close()
        book.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripted gateway")
    parser.add_argument("dialect", help="waha, evolution, cloud, wassenger or unipile")
    add_arguments(parser)
    options = parser.parse_args(argv)
    dialect: type[Dialect] = importlib.import_module(f"tests.gateways.{options.dialect}").DIALECT
    asyncio.run(serve(dialect, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
