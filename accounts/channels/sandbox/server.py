"""The sandbox provider as an HTTP server in a process of its own: a development tool, for tests and the demo.

`python -m accounts.channels.sandbox.server --port 8765 --book PATH` runs it without Django: it must outlive the death
of everything that it judges.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import html
import json
import math
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import FileBook, Line
from accounts.channels.sandbox.provider import CLOSED, SILENT, Hook, Provider
from accounts.channels.sandbox.reports import Reporter, report_on
from accounts.channels.sandbox.script import Script, ScriptError

DEFAULT_PORT = 8765
KEY_HEADER = "X-Sandbox-Key"
# A caller that waits longer than this for an answer has given up by itself.
SILENCE_SECONDS = 3600.0


class BadRequest(Exception):
    """Raised for a request that the provider cannot read."""


class App:
    """Reads requests, asks the provider, writes answers.

    It is a low-level handler without routing table or middleware, so that the provider never slows down a measurement
    of Crier.
    """

    def __init__(self, provider: Provider, book: FileBook, reporter: Reporter, token: str = "") -> None:
        self.provider = provider
        self.reporter = reporter
        self.book = book
        self.token = token
        self.pages: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.Response]]] = {
            ("GET", "/"): self.front_page,
            ("GET", "/book"): self.read_book,
            ("GET", "/stats"): self.read_stats,
            ("GET", "/script"): self.read_script,
            ("PUT", "/script"): self.replace_script,
            ("PUT", "/hooks"): self.set_hooks,
            ("PUT", "/past"): self.add_past,
            ("POST", "/report"): self.report,
            ("GET", "/healthz"): self.healthz,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if problem := from_elsewhere(request.headers):
            return as_json(403, {"code": "forbidden", "message": problem})
        try:
            if path.startswith("/v1/"):
                return await self.answer(request, await self.call(request, path))
            page = self.pages.get((request.method, path))
            return await page(request) if page else as_json(404, {"code": "no_such_path", "message": path})
        except web.HTTPSeeOther as elsewhere:
            return web.Response(status=elsewhere.status, headers={"Location": str(elsewhere.location)})
        except (BadRequest, ScriptError) as error:
            return as_json(400, {"code": "bad_request", "message": str(error)})

    async def call(self, request: web.BaseRequest, path: str) -> Answer:
        account, _, action = path[len("/v1/") :].partition("/")
        account, key = unquote(account), request.headers.get(KEY_HEADER)
        if (request.method, action) == ("POST", "messages"):
            return await self.message(account, key, await request.read())
        if (request.method, action) == ("POST", "media"):
            return await self.media(account, key, request)
        if (request.method, action) == ("GET", "status"):
            return await self.provider.status(account, key)
        return Answer(405, {"code": "no_such_call", "message": f"{request.method} {path}"})

    async def message(self, account: str, key: str | None, raw: bytes) -> Answer:
        body = read_object(raw)
        try:
            fields = (str(body["to"]), int(body["part"]), str(body["kind"]), str(body["text"]))
            media, message_id = body.get("media"), str(body["message_id"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequest(f"A message needs to, part, kind, text and message_id: {error!r}") from None
        return await self.provider.accept(account, *fields, media, message_id, key=key)

    async def media(self, account: str, key: str | None, request: web.BaseRequest) -> Answer:
        digest, size = hashlib.sha256(), 0
        async for chunk in request.content.iter_any():
            digest.update(chunk)
            size += len(chunk)
        return await self.provider.upload(account, digest.hexdigest(), size, key)

    async def answer(self, request: web.BaseRequest, reply: Answer) -> web.Response:
        if reply.status == SILENT:
            await asyncio.sleep(SILENCE_SECONDS)
        if reply.status in (SILENT, CLOSED):
            hang_up(request)
            return web.Response()
        return as_json(reply.status, reply.body)

    # -- for people and tests -----------------------------------------------------------------------------

    async def front_page(self, request: web.BaseRequest) -> web.Response:
        return web.Response(
            text=page_of(list(self.provider.latest), sorted(self.provider.hooks)), content_type="text/html"
        )

    async def read_book(self, request: web.BaseRequest) -> web.Response:
        account, since = request.query.get("account"), read_number(request.query.get("since", "0"))
        lines = await asyncio.to_thread(lambda: [line for line in self.book.lines() if wanted(line, account, since)])
        return as_json(200, lines)

    async def read_stats(self, request: web.BaseRequest) -> web.Response:
        return as_json(200, {**self.provider.stats, "refused": self.provider.refusals})

    async def read_script(self, request: web.BaseRequest) -> web.Response:
        return as_json(200, self.provider.script.raw)

    async def replace_script(self, request: web.BaseRequest) -> web.Response:
        self.provider.set_script(Script(read_object(await request.read())))
        return as_json(200, {"ok": True})

    async def set_hooks(self, request: web.BaseRequest) -> web.Response:
        """Take {account: {"url": its webhook address, "key": the key that signs its reports}}."""
        for account, hook in read_object(await request.read()).items():
            try:
                self.provider.set_hook(account, Hook(str(hook["url"]), str(hook["key"])))
            except (KeyError, TypeError):
                raise BadRequest("A hook needs url and key") from None
        return as_json(200, {"ok": True})

    async def add_past(self, request: web.BaseRequest) -> web.Response:
        """Take {"name": …, "lines": […]}: lines of a book from before, once."""
        body = read_object(await request.read())
        name, lines = body.get("name"), body.get("lines")
        if not isinstance(name, str) or not isinstance(lines, list):
            raise BadRequest("A past needs name and lines")
        if not all(isinstance(line, dict) and {"t", "account"} <= line.keys() for line in lines):
            raise BadRequest("A line of the past needs t and account")
        return as_json(200, {"added": self.provider.add_past(name, lines)})

    async def report(self, request: web.BaseRequest) -> web.Response:
        """Send the report of one of the page's buttons: about one of the messages on it, or about the account."""
        form = await request.post()
        account, kind, text = (str(form.get(name, "")) for name in ("account", "kind", "text"))
        line = next((line for line in self.provider.latest if line["provider_id"] == form.get("message")), None)
        suffix = f"-{self.provider.now():.3f}"
        if kind == "junk":
            self.reporter.send_junk(account)
        elif kind == "session":
            report = {"id": f"ev-session{suffix}", "kind": kind, "detail": {"state": text}}
            self.reporter.send(account, report)
        elif line is not None:
            self.reporter.send(account, report_on(line, kind, text, suffix=suffix))
        raise web.HTTPSeeOther("/")

    async def healthz(self, request: web.BaseRequest) -> web.Response:
        return as_json(200, {"ok": True, "pid": os.getpid(), "token": self.token})


def from_elsewhere(headers: Mapping[str, str]) -> str:
    """Return why a request must not be answered, or "": a browser sent it for a page of another site.

    Such a page may post forms to this machine, or read answers through a name of its own that it lets point to this
    machine. So a name with dots in it, which strangers can own, is refused; addresses and names such as localhost or a
    container's are answered.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return "The Host header cannot be read."
    if "." in name and not is_ip_address(name):
        return f"This provider is not called {name}: use this machine's address, or localhost."
    if origin is not None and origin != f"http://{host}":
        return "The request comes from a page of another site."
    return ""


def is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def hang_up(request: web.BaseRequest) -> None:
    """Close without an answer; what the handler returns afterwards goes nowhere."""
    if request.transport is not None:
        request.transport.abort()


def as_json(status: int, body: Any) -> web.Response:
    response = web.Response(body=json.dumps(body).encode(), status=status, content_type="application/json")
    if isinstance(body, dict) and "retry_after" in body:
        # The header takes whole seconds only; rounded up, so that no caller comes too early.
        response.headers["Retry-After"] = str(math.ceil(body["retry_after"]))
    return response


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequest("The body is not a JSON object")
    return body


def read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"{text!r} is not a number") from None


def wanted(line: Line, account: str | None, since: float) -> bool:
    return account in (None, line.get("account")) and line["t"] >= since


def page_of(lines: list[Line], accounts: list[str]) -> str:
    rows = "".join(row_of(line) for line in reversed(lines)) or "<tr><td colspan=7>Nothing yet.</td></tr>"
    about = "".join(f"<p>{html.escape(account)}: {buttons(account, ACCOUNT_BUTTONS)}</p>" for account in accounts)
    return (
        "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=5>"
        "<title>Sandbox provider</title>"
        "<style>body{font:14px system-ui;margin:2rem}td,th{padding:.25rem .75rem;text-align:left}"
        "tr:nth-child(even){background:#f4f4f4}form{display:inline}</style><h1>Sandbox provider</h1>"
        "<p>The last 50 messages it accepted, newest first. The buttons play the recipient: Crier gets it through "
        "the account's webhook.</p>"
        f"<table><tr><th>time (UTC)<th>account<th>to<th>part<th>kind<th>text<th>report</tr>{rows}</table>{about}"
    )


#: label, kind of report and text
MESSAGE_BUTTONS = (
    ("delivered", "delivered", ""),
    ("read", "read", ""),
    ("“Yes, I will come”", "reply", "Yes, I will come"),
    ("“STOP”", "reply", "STOP"),
    ("bounce", "bounce", ""),
    ("complain", "complaint", ""),
)
ACCOUNT_BUTTONS = (
    ("log out", "session", "unpaired"),
    ("ban", "session", "banned"),
    ("connect", "session", "active"),
    ("send junk", "junk", ""),
)


def row_of(line: Line) -> str:
    moment = datetime.fromtimestamp(line["t"], UTC).strftime("%H:%M:%S.%f")[:-3]
    cells = (moment, line["account"], line["to"], line["part"], line["kind"], line["text"])
    shown = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
    return f"<tr>{shown}<td>{buttons(line['account'], MESSAGE_BUTTONS, line['provider_id'])}</td></tr>"


def buttons(account: str, reports: tuple[tuple[str, str, str], ...], message: str = "") -> str:
    """Return a form for each button, which works without scripts."""
    return "".join(
        "<form method=post action=/report>"
        + "".join(
            f'<input type=hidden name={name} value="{html.escape(value)}">'
            for name, value in (("account", account), ("message", message), ("kind", kind), ("text", text))
        )
        + f"<button>{html.escape(label)}</button></form>"
        for label, kind, text in reports
    )


# -- the process ------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 picks a free one")
    parser.add_argument("--book", type=Path, required=True, help="file the provider writes its book to")
    parser.add_argument("--script", type=Path, help="JSON file with latency and faults")
    parser.add_argument("--port-file", type=Path, help="file to write the port to, once it answers")
    parser.add_argument("--token", default="", help="shown by /healthz, to recognise this provider")
    parser.add_argument("--seed", type=int, help="makes latencies reproducible")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sandbox provider", description="A provider that keeps its own book.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(options: argparse.Namespace) -> int:
    allow_many_connections()
    try:
        asyncio.run(serve(options))
    except (OSError, ScriptError) as error:
        sys.stderr.write(f"The sandbox provider did not start: {error}\n")
        return 1
    return 0


async def serve(options: argparse.Namespace) -> None:
    script = load_script(options.script)
    book = FileBook(options.book)
    provider = Provider(book, script, time.time, random.Random(options.seed))
    reporter = Reporter(provider)
    app = App(provider, book, reporter, options.token)
    runner = web.ServerRunner(web.Server(app.handle, access_log=None), shutdown_timeout=0.5)
    await runner.setup()
    try:
        port = await listen(runner, options.host, options.port)
        announce(options, port)
        await stop_signal()
    finally:
        await runner.cleanup()
        await reporter.close()
        book.close()


def load_script(path: Path | None) -> Script:
    if path is None:
        return Script()
    try:
        return Script(json.loads(path.read_text()))
    except json.JSONDecodeError as error:
        raise ScriptError(f"{path} is not JSON: {error}") from None


async def listen(runner: web.ServerRunner, host: str, port: int) -> int:
    site = web.TCPSite(runner, host, port, backlog=4096)
    await site.start()
    address: tuple[str, int] = runner.addresses[0]
    return address[1]


def announce(options: argparse.Namespace, port: int) -> None:
    if options.port_file:
        # Renamed into place, so that a reader sees the whole number.
        part = options.port_file.with_suffix(".part")
        part.write_text(str(port))
        part.replace(options.port_file)
    sys.stdout.write(f"sandbox provider on http://{options.host}:{port} book {options.book}\n")
    sys.stdout.flush()


async def stop_signal() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def allow_many_connections() -> None:
    """Raise the limit of open files: thousands of lanes hold a connection each, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
