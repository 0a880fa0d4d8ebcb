"""Live pages: one LISTEN connection per web process, fanned out to the open tabs.

A process asks the database once a second for the runs on open pages, whether one tab is open or two
hundred, and at once for notifications when PostgreSQL signals some. Deliveries themselves signal nothing. The number of
replies that wait is counted again soon after a new one, and now and then because others handle them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.db import connection as django_connection
from django.db.models import Q
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from psycopg.rows import dict_row

from accounts import access
from accounts.inputs import as_id, as_ids
from config.web import light
from fanout.admin.notifications import waiting_replies
from fanout.database import conninfo
from fanout.models import Notification, Run

log = logging.getLogger("crier.stream")

CHANNEL = "crier_news"  # as the trigger in the migration names it
TICK = 1.0
MOST_WATCHED = 100  # runs of one tab
MOST_MISSED = 100  # notifications that a returning tab gets
MOST_QUEUED = 100  # events a slow tab may be behind before it is told to fetch everything again
HEARTBEAT = 20.0  # proxies cut silent connections
# Replies are counted for each person with an open tab: at most so often while new ones come, and at least so often.
COUNT_APART, COUNT_EVERY = 3.0, 15.0
RETRY = 2.0
# Open tabs of one person and of one web process; hidden tabs close their stream.
MOST_EACH = 10
MOST = 300
# Ids are given before commit, so a lower one may appear after a higher one: look back this far.
LOOK_BACK = 200
OVERLAP = timedelta(minutes=1)

RUNS = """
SELECT id, status, total, pending, sending, sent, failed, skipped, unconfirmed
  FROM fanout_run WHERE id = ANY(%s)
"""
NOTIFICATIONS = """
SELECT id, user_id, run_id, account_id, reminder_id, title, body, level, created_at, read_at
  FROM fanout_notification WHERE id > %s ORDER BY id
"""
NEWEST = "SELECT coalesce(max(id), 0) AS id FROM fanout_notification"
# The condition is that of its index (inbound_replies).
NEWEST_REPLY = """
SELECT coalesce(max(id), 0) AS id FROM fanout_inboundevent
 WHERE kind = 'reply' AND run_target_id IS NOT NULL AND address <> ''
"""

Row = dict[str, Any]


async def live(request: HttpRequest) -> StreamingHttpResponse:
    """Stream this person's notifications and the progress of the runs on the page as server-sent events."""
    if request.method != "GET":
        raise PermissionDenied
    user_id, runs = await sync_to_async(_user_and_runs)(request, request.user)

    async def missed() -> list[str]:
        return await light.run(_missed, request, user_id)

    async def still_allowed() -> list[int] | None:
        return await light.run(_still_allowed, request, user_id)

    response = StreamingHttpResponse(events(user_id, runs, missed, still_allowed), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def _still_allowed(request: HttpRequest, user_id: int) -> list[int] | None:
    """Return the runs that the person may see now; None when their session or their permission has ended."""
    now = HttpRequest()
    now.session = SessionStore(request.session.session_key)
    try:
        who, runs = _user_and_runs(request, get_user(now))
    except PermissionDenied:
        return None
    return runs if who == user_id else None


def _user_and_runs(request: HttpRequest, user: Any) -> tuple[int, list[int]]:
    """Return the user's id, and the requested runs that they may see."""
    if not (user.is_active and user.is_staff):
        raise PermissionDenied
    wanted = as_ids(request.GET.get("runs", "").split(","))[:MOST_WATCHED]
    runs: list[int] = []
    if wanted and user.has_perm("fanout.view_run"):
        runs = list(access.visible(user, Run.objects.filter(pk__in=wanted)).values_list("pk", flat=True))
    return user.pk, runs


def _missed(request: HttpRequest, user_id: int) -> list[str]:
    after = request.headers.get("Last-Event-ID") or request.GET.get("after", "")
    last = as_id(after)
    return missed_notifications(user_id, last, timezone.now()) if last is not None else []


def missed_notifications(user_id: int, after: int, now: datetime) -> list[str]:
    """Return the notifications that a returning tab has not seen, as frames.

    A later commit may carry a lower id, so those of the last minute are sent again; the page drops repeats.
    """
    late = Q(id__gt=after - LOOK_BACK, created_at__gte=now - OVERLAP)
    unread = Notification.objects.filter(user_id=user_id, read_at=None)
    rows = unread.filter(Q(id__gt=after) | late).order_by("-id")[:MOST_MISSED]
    return [notification_frame(row.__dict__) for row in reversed(rows)]


# --- the hub of one web process ---------------------------------------------------------------------------


def frame(event: str, data: Any, event_id: int | None = None) -> str:
    """Return one event as it goes over the wire.

    Only notifications are numbered: a browser that reconnects repeats the last number and gets the ones it missed.
    """
    number = "" if event_id is None else f"id: {event_id}\n"
    return f"{number}event: {event}\ndata: {json.dumps(data)}\n\n"


RESYNC = frame("resync", {})
# The page closes its stream and tries again in a minute. Without this event it would reconnect after two seconds.
FULL = frame("full", {})


@dataclass(eq=False)
class Watcher:
    """One open tab."""

    user_id: int
    runs: frozenset[int]
    #: the number of replies that the tab was told last
    replies: str | None = None
    queue: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(MOST_QUEUED))

    def push(self, text: str) -> None:
        try:
            self.queue.put_nowait(text)
        except asyncio.QueueFull:
            self._only(RESYNC)

    def end(self) -> None:
        self._only(FULL)

    def _only(self, text: str) -> None:
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(text)


class Hub:
    """The open tabs of one web process, and the last events they were sent."""

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] = {}  # a set that keeps the order
        self.seen: dict[int, Row] = {}
        self.sent: set[int] = set()
        self.newest = 0
        self.newest_reply = 0
        self.counted_at = -COUNT_EVERY
        self.task: asyncio.Task[None] | None = None

    def join(self, watcher: Watcher) -> bool:
        """Add a tab and return whether there was room.

        A person's oldest tab makes way for a new one: it may belong to a closed laptop, whose connection takes
        minutes to end.
        """
        mine = [other for other in self.watchers if other.user_id == watcher.user_id]
        if len(mine) >= MOST_EACH:
            mine[0].end()
            self.leave(mine[0])
        if len(self.watchers) >= MOST:
            return False
        self.watchers[watcher] = None
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._work())
        return True

    def leave(self, watcher: Watcher) -> None:
        self.watchers.pop(watcher, None)

    async def _work(self) -> None:
        lost = False
        while self.watchers:
            try:
                await self._listen(lost)
            except (psycopg.Error, OSError) as problem:
                log.warning("live pages lost their connection: %s", problem)
                lost = True
                await asyncio.sleep(RETRY)

    async def _listen(self, lost: bool) -> None:
        info = conninfo(django_connection.settings_dict)
        link = await psycopg.AsyncConnection.connect(info, autocommit=True, row_factory=dict_row)
        async with link:
            await link.execute(f"LISTEN {CHANNEL}")
            await self._catch_up(link)
            if lost:
                self._tell_all(RESYNC)
            while self.watchers:
                signals = [signal async for signal in link.notifies(timeout=TICK, stop_after=1)]
                if signals:
                    await self._tell_notifications(link)
                await self._tell_progress(link)
                await self._tell_replies(link)

    async def _catch_up(self, link: psycopg.AsyncConnection[Row]) -> None:
        """Send notifications written while there was no LISTEN connection; a tab drops those it has shown already."""
        self.newest = (await self._rows(link, NEWEST))[0]["id"]
        old = datetime.now(UTC) - OVERLAP
        rows = await self._rows(link, NOTIFICATIONS, [self.newest - LOOK_BACK])
        self.sent = {row["id"] for row in rows if row["created_at"] < old}
        await self._tell_notifications(link)

    async def _rows(self, link: psycopg.AsyncConnection[Row], statement: str, params: Any = None) -> list[Row]:
        return await (await link.execute(statement, params)).fetchall()

    async def _tell_notifications(self, link: psycopg.AsyncConnection[Row]) -> None:
        rows = await self._rows(link, NOTIFICATIONS, [self.newest - LOOK_BACK])
        for row in rows:
            if row["id"] not in self.sent:
                self.sent.add(row["id"])
                if row["read_at"] is None:  # else the person wants no bell, or has read it in another tab
                    self._tell_user(row)
        self.newest = max([self.newest, *(row["id"] for row in rows)])
        self.sent = {pk for pk in self.sent if pk > self.newest - LOOK_BACK}

    def _tell_user(self, row: Row) -> None:
        text = notification_frame(row)
        for watcher in self.watchers:
            if watcher.user_id == row["user_id"]:
                watcher.push(text)

    async def _tell_progress(self, link: psycopg.AsyncConnection[Row]) -> None:
        watched = set().union(*(watcher.runs for watcher in self.watchers))
        if not watched:
            return
        rows = {row["id"]: row for row in await self._rows(link, RUNS, [list(watched)])}
        for run_id, row in rows.items():
            if self.seen.get(run_id) != row:
                self._tell_watching(run_id, frame("run", row))
        self.seen = rows

    async def _tell_replies(self, link: psycopg.AsyncConnection[Row]) -> None:
        """Tell each tab how many replies wait for its person, where it shows another number."""
        new_tab = any(watcher.replies is None for watcher in self.watchers)
        since = time.monotonic() - self.counted_at
        if since < COUNT_APART:
            return
        newest = (await self._rows(link, NEWEST_REPLY))[0]["id"]
        if newest == self.newest_reply and since < COUNT_EVERY and not new_tab:
            return
        self.newest_reply = newest
        counted = await light.run(waiting_replies, {watcher.user_id for watcher in self.watchers})
        self.counted_at = time.monotonic()
        for watcher in self.watchers:
            shown = counted.get(watcher.user_id, "")
            if watcher.replies != shown:
                watcher.replies = shown
                watcher.push(frame("replies", {"shown": shown}))

    def _tell_watching(self, run_id: int, text: str) -> None:
        for watcher in self.watchers:
            if run_id in watcher.runs:
                watcher.push(text)

    def _tell_all(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.push(text)


def notification_frame(row: Row) -> str:
    columns = {key: row[key] for key in ("id", "title", "body", "level")}
    about = Notification(run_id=row["run_id"], account_id=row["account_id"], reminder_id=row["reminder_id"])
    return frame("notification", columns | {"url": about.get_absolute_url()}, row["id"])


# A hub belongs to an event loop; a web process has one.
_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()


def hub() -> Hub:
    return _hubs.setdefault(asyncio.get_running_loop(), Hub())


async def events(
    user_id: int,
    runs: Iterable[int],
    missed: Callable[[], Awaitable[list[str]]],
    still_allowed: Callable[[], Awaitable[list[int] | None]],
) -> AsyncIterator[str]:
    """Yield the events of one tab until it closes: first the missed ones, then new ones.

    At every heartbeat, even on a busy stream, `still_allowed` returns the runs that the person may see. None ends the
    stream, and so does a database that does not answer.
    """
    watcher = Watcher(user_id, frozenset(runs))
    if not hub().join(watcher):
        yield FULL
        return
    try:
        yield "retry: 2000\n\n"
        # Read after joining, so that none is lost in between; the page drops repeats.
        for text in await missed():
            yield text
        beat_at = time.monotonic() + HEARTBEAT
        while True:
            text = ": still here\n\n"
            # Not by wait_for: in Python 3.11 an event that comes at the moment of the cancellation swallows it, and the
            # stream of a closed tab would go on for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(beat_at - time.monotonic()):
                    text = await watcher.queue.get()
            if time.monotonic() >= beat_at:
                allowed = await still_allowed()
                if allowed is None:
                    return
                watcher.runs, beat_at = frozenset(allowed), time.monotonic() + HEARTBEAT
            yield text
            if text == FULL:
                return
    except DatabaseError:
        return  # the hub has logged it; the browser comes back by itself
    finally:
        hub().leave(watcher)
