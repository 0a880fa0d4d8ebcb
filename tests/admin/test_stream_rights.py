"""An open stream ends when the permission ends, even a busy one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import AsyncClient
from django.urls import reverse

from fanout.admin import stream
from fanout.models import Run
from tests.admin.conftest import member
from tests.factories import NotificationFactory, RunFactory, TeamFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.5)


def frames_after(user: Any, change: Callable[[], Any], seconds: float, **query: str) -> list[str]:
    """Return the frames of a person's tab within these seconds after a change; "end" is last if the stream ended."""
    frames: list[str] = []

    async def read(chunks: Any) -> None:
        async for chunk in chunks:
            frames.append(chunk.decode())  # noqa: PERF401 - as they come: the test looks meanwhile
        frames.append("end")

    async def story() -> None:
        client = AsyncClient()
        await sync_to_async(client.force_login)(user, backend="django.contrib.auth.backends.ModelBackend")
        answer: Any = await client.get(reverse("admin:live_stream"), query)
        reading = asyncio.create_task(read(answer.streaming_content))
        while not frames:  # noqa: ASYNC110 - no event to wait for: the stream is read elsewhere
            await asyncio.sleep(0.1)
        frames.clear()
        await sync_to_async(change)()
        await asyncio.wait([reading], timeout=seconds)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await sync_to_async(connections.close_all)()

    asyncio.run(story())
    return frames


def deactivate(user: Any) -> None:
    type(user).objects.filter(pk=user.pk).update(is_active=False)


def demote(user: Any) -> None:
    type(user).objects.filter(pk=user.pk).update(is_staff=False)


def new_password(user: Any) -> None:
    user.set_password("another one, longer")
    user.save()


def log_out(user: Any) -> None:
    Session.objects.all().delete()


def remove(user: Any) -> None:
    user.delete()


@pytest.mark.parametrize("change", [log_out, deactivate, demote, new_password, remove])
def test_it_ends_with_the_session(change):
    user = member("mei", "operators")
    assert frames_after(user, lambda: change(user), 60)[-1] == "end"


@pytest.mark.slow
def test_it_goes_on_with_the_session():
    user = member("mei", "operators")
    frames = frames_after(user, lambda: None, 6)
    assert len(frames) >= 2
    assert frames[-1] != "end"


def test_a_busy_stream_ends_too():
    user = member("mei", "operators")

    def change() -> None:
        log_out(user)
        for _ in range(50):
            NotificationFactory.create(user=user)

    assert frames_after(user, change, 60)[-1] == "end"


@pytest.mark.slow
def test_a_run_that_is_taken_back_is_no_longer_told():
    mei, team = member("mei", "operators"), TeamFactory.create()
    mei.groups.add(team)
    run = RunFactory.create(status="running", targets={"pending": 3}, team=team)

    def change() -> None:
        Run.objects.update(team=None)

    frames_after(mei, change, 1.2, runs=str(run.pk))

    def progress() -> None:
        run.targets.update(status="sent")

    assert not [f for f in frames_after(mei, progress, 2.5, runs=str(run.pk)) if "event: run" in f]
