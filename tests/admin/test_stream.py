"""The live stream: a reconnect loses nothing, tabs are bounded, and it costs few queries."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from fanout.admin import stream
from fanout.admin.stream import FULL, MOST_QUEUED, RESYNC, RUNS, Hub, Watcher, events, hub, missed_notifications
from fanout.models import InboundEvent, Notification, RunTarget
from tests.admin.conftest import member
from tests.factories import AccountFactory, NotificationFactory, RunFactory, RunTargetFactory


def told(frames: list[str]) -> list[int]:
    return [json.loads(line[6:])["id"] for text in frames for line in text.splitlines() if line.startswith("data: ")]


def test_a_reconnecting_tab_gets_missed_notifications(operator, colleague):
    first, second, third = NotificationFactory.create_batch(3, user=operator)
    NotificationFactory.create(user=colleague)
    old = timezone.now() - timedelta(hours=1)
    Notification.objects.update(created_at=old)
    assert told(missed_notifications(operator.pk, first.pk, timezone.now())) == [second.pk, third.pk]


def test_a_late_commit_with_a_lower_id_is_not_lost(operator):
    late, seen = NotificationFactory.create_batch(2, user=operator)
    assert late.pk in told(missed_notifications(operator.pk, seen.pk, timezone.now()))


def test_the_stream_is_for_staff_only(client, db):
    assert client.get(reverse("admin:live_stream")).status_code == 403


# --- the stream itself -----------------------------------------------------------------------------------


async def first_frames(chunks: Any, wanted: str, patience: float = 60.0) -> list[str]:
    """Everything up to the first frame that contains `wanted`."""
    frames: list[str] = []

    async def read() -> None:
        async for chunk in chunks:
            frames.append(chunk.decode() if isinstance(chunk, bytes) else chunk)
            if wanted in frames[-1]:
                return

    await asyncio.wait_for(read(), patience)
    return frames


@pytest.mark.django_db(transaction=True)
def test_notifications_and_progress_arrive_live():
    operator = member("mei", "operators", is_superuser=True)
    run = RunFactory.create(reminder__owner=operator, status="running", targets={"pending": 3})

    async def story() -> None:
        client = AsyncClient()
        await sync_to_async(client.force_login)(operator, backend="django.contrib.auth.backends.ModelBackend")
        answer: Any = await client.get(reverse("admin:live_stream"), {"runs": str(run.pk), "after": "0"})
        assert answer["Content-Type"] == "text/event-stream"
        chunks = answer.streaming_content
        await first_frames(chunks, "event: run")
        await sync_to_async(NotificationFactory.create)(user=operator, title="Reminder paused")
        frames = await first_frames(chunks, "Reminder paused")
        assert "\nevent: notification" in frames[-1]
        await sync_to_async(RunTarget.objects.filter(run=run).update)(status="sent")
        frames = await first_frames(chunks, '"sent": 3')
        # The server cancels the task that reads when the tab goes away.
        reading = asyncio.create_task(first_frames(chunks, "never"))
        await asyncio.sleep(0.1)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        assert not hub().watchers
        # Of the thread that sync_to_async works in: it lives on, and would keep its connection.
        await sync_to_async(connections.close_all)()

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_two_hundred_tabs_cost_one_query_a_second(monkeypatch):
    """Counted at the hub: what it asks does not depend on how many listen."""
    operator = member("mei", "operators", is_superuser=True)
    run = RunFactory.create(reminder__owner=operator, status="running", targets={"pending": 3})
    asked: list[str] = []
    rows = Hub._rows

    async def counted(self: Hub, link: Any, statement: str, given: Any = None) -> Any:
        asked.append(statement)
        return await rows(self, link, statement, given)

    monkeypatch.setattr(Hub, "_rows", counted)

    async def story() -> None:
        watchers = [Watcher(person, frozenset({run.pk})) for person in range(200)]
        assert all(hub().join(watcher) for watcher in watchers)
        began = asyncio.get_running_loop().time()
        while any(watcher.queue.empty() for watcher in watchers) or asked.count(RUNS) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        seconds = asyncio.get_running_loop().time() - began
        for watcher in watchers:
            hub().leave(watcher)
        await hub_ended()
        assert asked.count(RUNS) <= seconds + 3

    asyncio.run(story())


@pytest.mark.django_db(transaction=True)
def test_the_number_of_replies_is_live_and_each_persons_own(monkeypatch):
    monkeypatch.setattr(stream, "COUNT_APART", 0.0)
    monkeypatch.setattr(stream, "COUNT_EVERY", 1.0)
    mei, noor = member("mei", "operators"), member("noor", "operators")
    line = AccountFactory.create(owner=mei)
    target = RunTargetFactory.create(run__reminder__account=line, status="sent")

    async def told_number(watcher: Watcher) -> str:
        shown: str = json.loads((await asyncio.wait_for(watcher.queue.get(), 30)).splitlines()[1][6:])["shown"]
        return shown

    async def story() -> None:
        mine, theirs = Watcher(mei.pk, frozenset()), Watcher(noor.pk, frozenset())
        assert hub().join(mine)
        assert hub().join(theirs)
        assert [await told_number(one) for one in (mine, theirs)] == ["", ""]
        words = {"account": line, "key": "1", "kind": "reply", "address": target.address, "run_target_id": target.pk}
        now = timezone.now()
        event = await InboundEvent.objects.acreate(**words, happened_at=now, came_at=now, state="done")
        assert await told_number(mine) == "1"
        # Another operator handles it.
        await InboundEvent.objects.filter(pk=event.pk).aupdate(handled_at=now)
        assert await told_number(mine) == ""
        assert theirs.queue.empty()
        hub().leave(mine)
        hub().leave(theirs)
        await hub_ended()
        await sync_to_async(connections.close_all)()

    asyncio.run(story())


async def hub_ended() -> None:
    """It closes its connection when it notices that no tab is left."""
    task = hub().task
    assert task is not None
    await asyncio.wait_for(task, 30)


@pytest.mark.django_db(transaction=True)
def test_a_person_keeps_the_newest_tabs_and_all_tabs_are_bounded(monkeypatch):
    monkeypatch.setattr(stream, "MOST_EACH", 2)
    monkeypatch.setattr(stream, "MOST", 3)

    async def nothing() -> list[Any]:
        return []

    def tab(person: int) -> Any:
        return events(person, [], nothing, nothing)

    async def story() -> None:
        first, second, third, other, late = tabs = [tab(person) for person in (1, 1, 1, 2, 3)]
        assert [await anext(one) for one in (first, second, third)] == ["retry: 2000\n\n"] * 3
        assert [text async for text in first] == [FULL]
        assert await anext(other) == "retry: 2000\n\n"
        assert [text async for text in late] == [FULL]
        await second.aclose()
        tabs.append(tab(3))
        assert await anext(tabs[-1]) == "retry: 2000\n\n"
        for one in tabs:
            await one.aclose()
        assert not hub().watchers
        await hub_ended()

    asyncio.run(story())


@pytest.mark.django_db(transaction=True)
def test_a_stream_ends_while_rights_cannot_be_looked_up(monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT", 0.1)

    async def nothing() -> list[Any]:
        return []

    async def away() -> list[int]:
        raise OperationalError("the database is away")

    async def story() -> list[str]:
        texts = [text async for text in events(1, [], nothing, away)]
        await hub_ended()
        return texts

    assert asyncio.run(story()) == ["retry: 2000\n\n"]


@pytest.mark.django_db(transaction=True)
def test_a_closed_tab_ends_its_stream_although_an_event_comes_at_that_moment():
    async def nothing() -> list[Any]:
        return []

    async def story() -> None:
        async def read() -> None:
            async for _ in events(1, [], nothing, nothing):
                pass

        task = asyncio.create_task(read())
        while not hub().watchers:  # noqa: ASYNC110
            await asyncio.sleep(0)
        (watcher,) = hub().watchers
        watcher.push("event")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=30)
        assert task.cancelled()
        assert not hub().watchers
        await hub_ended()

    asyncio.run(story())


def test_a_slow_tab_is_told_to_fetch_everything_again():
    async def story() -> list[str]:
        watcher = Watcher(1, frozenset())
        for number in range(MOST_QUEUED + 1):
            watcher.push(str(number))
        return [watcher.queue.get_nowait() for _ in range(watcher.queue.qsize())]

    assert asyncio.run(story()) == [RESYNC]
