"""Providers' webhooks, `/hooks/<channel>/<token>`: check, store and answer requests.

They are answered before Django's own stack, whose sessions and middleware they do not need and which would take longer
than everything they do. Requests at the same moment share one look-up and one commit. The response comes when the
events are durable; the inbound worker decides later what follows from them (fanout.inbound.worker).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import psycopg
from django.db import connection
from django.utils import timezone
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from accounts.channels import registry
from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import HookRequest, ProviderEvent, Unreadable, Webhook
from accounts.channels.registry import config_of
from accounts.crypto import CredentialError
from fanout.database import Gathering, conninfo
from fanout.inbound.event_store import storing

log = logging.getLogger("crier.webhooks")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Row = dict[str, Any]
T = TypeVar("T")
Batch = list[tuple[int, ProviderEvent]]  # what one request brings, with the account it came to

ADDRESS = re.compile(r"/hooks/([^/]+)/([^/]+)")
TOKEN = re.compile(r"[0-9A-Za-z-]{1,36}")
MOST_BYTES = 1_000_000
#: events of one request; providers send far fewer
MOST_EVENTS = 1_000
#: bytes and events from which a thread reads them: pages and streams are served by the same event loop
LARGE_BODY, MANY_EVENTS = 20_000, 100
#: seconds, while a provider waits for the response
CONNECT_TIMEOUT = 5
#: requests that share one look-up or one commit
AT_ONCE = 500


class Refused(Exception):
    """A response other than 200, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Webhooks:
    """Middleware around the web application that answers requests to webhook addresses."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.intake: Intake | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = ADDRESS.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is None:
            await self.app(scope, receive, send)
            return
        # Not before the first request: it belongs to the event loop that serves them.
        self.intake = self.intake or Intake()
        status, text = await self._answer(match[1], match[2], scope, receive)
        await respond(send, status, text)

    async def _answer(self, channel: str, token: str, scope: Scope, receive: Receive) -> tuple[int, str]:
        assert self.intake is not None
        try:
            return 200, await self.intake.take(channel, token, scope, receive)
        except Refused as refusal:
            return refusal.status, str(refusal)
        except psycopg.Error as problem:
            log.warning("a webhook could not be stored: %s", problem)
            return 503, "try again later"
        except (registry.ChannelUnavailable, CredentialError) as problem:
            log.error("a webhook could not be checked: %s", problem)
            return 503, "try again later"


class Intake:
    """The steps of one request: find the account, check authenticity, parse, store."""

    def __init__(self) -> None:
        self.accounts, self.events = Database(), Database()
        # One at a time: more threads would only compete with the loop.
        self.reader = ThreadPoolExecutor(1, "webhooks")
        self.find = Gathering(self._find, AT_ONCE, retry_alone=False)
        self.store = Gathering(self._store, AT_ONCE, retry_alone=False)

    async def take(self, channel: str, token: str, scope: Scope, receive: Receive) -> str:
        """Return the text of the response; raises Refused."""
        account, webhook = await self._whose(channel, token)
        if scope["method"] not in ("GET", "POST"):
            raise Refused(405, "not by this method")
        request = await read(scope, receive)
        if request.method == "GET":
            return greeting(webhook, request, account)
        if not webhook.authentic(request, account):
            raise Refused(403, "the signature does not fit")
        try:
            meant = [account, *await self._others(webhook, request, account)]
            events = await self._beside(
                len(request.body) > LARGE_BODY,
                lambda: [(one.id, event) for one in meant for event in webhook.parse(request, one)],
            )
            learned = [(one.id, told) for one in meant if (told := webhook.learned(request, one))]
        except Unreadable as problem:
            raise Refused(400, str(problem)) from None
        if len(events) > MOST_EVENTS:
            raise Refused(413, f"more than {MOST_EVENTS} events at once")
        if events and not await self.store(events):
            raise Refused(400, "the events cannot be stored")
        for account_id, told in learned:
            await self.accounts.query(LEARN, {"account": account_id, "told": Jsonb(told), "names": list(told)})
        return "ok"

    async def _beside(self, heavy: bool, work: Callable[[], T]) -> T:
        """Return the result of the work, done by the reading thread if it is heavy."""
        return await asyncio.get_running_loop().run_in_executor(self.reader, work) if heavy else work()

    async def _others(self, webhook: Webhook, request: HookRequest, account: AccountConfig) -> list[AccountConfig]:
        """Return the other accounts that an authentic request is about and for which it is authentic as well."""
        named = sorted(webhook.about_others(request, account))
        if not named:
            return []
        settings = {"names": [name for name, _ in named], "values": [value for _, value in named]}
        rows = await self.accounts.query(OTHERS, settings | {"channel": account.channel, "account": account.id})
        return [other for other in map(config_of, rows) if webhook.authentic(request, other)]

    async def _whose(self, channel: str, token: str) -> tuple[AccountConfig, Webhook]:
        """Return account and webhook. Every wrong address gets the same response."""
        row = await self.find(token) if TOKEN.fullmatch(token) else None
        webhook = registry.webhook(channel) if row and row["channel"] == channel else None
        if row is None or webhook is None:
            raise Refused(404, "not found")
        return config_of(row), webhook

    async def _find(self, tokens: list[str]) -> list[Row | None]:
        rows = await self.accounts.query(FIND, {"tokens": tokens})
        by_token = {row["hook_token"]: row for row in rows}
        return [by_token.get(token) for token in tokens]

    async def _store(self, batches: list[Batch]) -> list[bool]:
        """Return whether each batch was stored. One that PostgreSQL refuses must not keep out those that came with
        it."""
        if await self._stored([event for batch in batches for event in batch]):
            return [True] * len(batches)
        return [await self._stored(batch) for batch in batches]

    async def _stored(self, events: Batch) -> bool:
        try:
            statement = await self._beside(len(events) > MANY_EVENTS, lambda: storing(events, timezone.now()))
            await self.events.query(*statement)
        except psycopg.DataError as problem:
            log.error("PostgreSQL refused a provider's events: %s", problem)
            return False
        return True


FIND = """
SELECT id, channel, label, address, config, credentials, hook_token FROM accounts_account
 WHERE hook_token = ANY(%(tokens)s)
"""


OTHERS = """
SELECT id, channel, label, address, config, credentials FROM accounts_account a
 WHERE channel = %(channel)s AND id <> %(account)s
   AND EXISTS (SELECT FROM unnest(%(names)s::text[], %(values)s::text[]) AS s(name, value)
                WHERE a.config ->> s.name = s.value)
"""


# Only what the account lacks: an operator's own entry stays.
LEARN = """
UPDATE accounts_account SET config = config || %(told)s, updated_at = now()
 WHERE id = %(account)s AND NOT EXISTS (SELECT FROM unnest(%(names)s::text[]) AS name WHERE config ->> name <> '')
RETURNING id
"""


class Database:
    """One session, opened when it is needed. Its statements can be run twice: a lost session costs one more try."""

    def __init__(self) -> None:
        self.link: psycopg.AsyncConnection[Row] | None = None
        self.turn = asyncio.Lock()

    async def query(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        async with self.turn:
            try:
                return await self._query(statement, parameters)
            except psycopg.OperationalError:
                await self.close()
                return await self._query(statement, parameters)

    async def _query(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        if self.link is None:
            self.link = await psycopg.AsyncConnection.connect(
                conninfo(connection.settings_dict),
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=CONNECT_TIMEOUT,
            )
        return await (await self.link.execute(statement, parameters)).fetchall()

    async def close(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            await link.close()


async def read(scope: Scope, receive: Receive) -> HookRequest:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    length = headers.get("content-length", "")
    if length.isdigit() and (len(length) > 9 or int(length) > MOST_BYTES):
        raise Refused(413, "the body is too large")
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    return HookRequest(scope["method"], headers, query, await read_body(receive))


async def read_body(receive: Receive) -> bytes:
    """Read the body, counting it as it comes: it may have no length, or a wrong one."""
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the body is not complete")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > MOST_BYTES:
            raise Refused(413, "the body is too large")
        if not message.get("more_body"):
            return b"".join(chunks)


def greeting(webhook: Webhook, request: HookRequest, account: AccountConfig) -> str:
    text = webhook.greeting(request, account)
    if text is None:
        raise Refused(405, "not by this method")
    return text


async def respond(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
