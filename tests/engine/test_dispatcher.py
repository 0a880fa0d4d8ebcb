"""The parts of a dispatcher: open targets, uploads, and one time limit for many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accounts.channels.registry import channel
from accounts.channels.sandbox.script import Script
from fanout.engine import dispatcher
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.dispatcher import OpenTargets, TimeLimit
from fanout.engine.loading import LaneRun, Uploaded, frozen_part
from tests.engine.stage import Stage


def thing(number: int) -> Any:
    return SimpleNamespace(id=number)


def test_a_target_has_a_place_until_only_its_result_is_left() -> None:
    targets, run = OpenTargets(), thing(1)
    assert (bool(targets), targets.in_flight, targets.being_written, targets.of(run)) == (False, 0, 0, set())
    targets.add(run, thing(5))
    targets.add(run, thing(6))
    assert (bool(targets), targets.in_flight, targets.being_written) == (True, 2, 0)
    targets.release(thing(5))
    assert (bool(targets), targets.in_flight, targets.being_written) == (True, 1, 1)
    assert targets.of(run) == {5, 6}


def test_targets_are_counted_by_their_runs() -> None:
    targets = OpenTargets()
    for run, target in ((1, 5), (2, 6), (2, 7)):
        targets.add(thing(run), thing(target))
    targets.release(thing(6))
    targets.remove(thing(2), thing(6))
    assert (targets.of(thing(1)), targets.of(thing(2)), targets.in_flight, targets.being_written) == ({5}, {7}, 2, 0)
    targets.remove(thing(2), thing(7))
    assert (targets.of(thing(2)), targets.in_flight, bool(targets)) == (set(), 1, True)
    targets.remove(thing(1), thing(5))
    assert (targets.in_flight, targets.being_written, bool(targets)) == (0, 0, False)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
SONG = {"sha256": "a" * 64, "filename": "song.ogg", "mime": "audio/ogg", "size": 4}
#: the song by itself, with a caption, as a document, and by itself again
PARTS: list[dict[str, Any]] = [
    {"kind": "audio", "text": "", "media": SONG},
    {"kind": "audio", "text": "Hello {name}", "media": SONG, "personal": True},
    {"kind": "document", "text": "", "media": SONG},
    {"kind": "audio", "text": "", "media": SONG},
]


def uploads(channel_key: str) -> list[tuple[str, str]]:
    """The keys of the uploads that a lane makes before it sends."""
    parts = [frozen_part(1, n, part, "message", channel(channel_key)) for n, part in enumerate(PARTS)]
    run = cast(LaneRun, SimpleNamespace(parts=parts))
    transport: Any = SimpleNamespace(uploads_media=True)
    account: Any = dispatcher.Uploads(cast(Any, None), cast(Any, None), transport, 1, {}, None)
    while (file := account.missing(run, NOW)) is not None:
        account.handles[file.key] = Uploaded("handle", None)
    return list(account.handles)


@pytest.mark.parametrize(("key", "kinds"), [("whatsapp", ["audio", "document"]), ("cloud", [""]), ("wassenger", [""])])
def test_a_file_is_uploaded_once_for_each_way_it_is_sent(key: str, kinds: list[str]) -> None:
    assert uploads(key) == [("a" * 64, kind) for kind in kinds]


START = datetime(2026, 1, 5, tzinfo=UTC)


def virtually(play: Callable[[TimeLimit, asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        await play(TimeLimit(10), asyncio.get_running_loop())

    run_virtual(main, START)


async def answer(after: float) -> float:
    await asyncio.sleep(after)
    return after


def test_each_call_has_its_own_time() -> None:
    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        ended: dict[str, float] = {}

        async def call(name: str, begins: float, takes: float) -> object:
            await asyncio.sleep(begins)
            try:
                return await limit.keep(answer(takes))
            except TimeoutError:
                return "late"
            finally:
                ended[name] = loop.time()

        calls = [("quick", 0, 9), ("late", 0, 99), ("later", 4, 99), ("in time", 5, 9.5), ("after all", 40, 99)]
        answers = await asyncio.gather(*(asyncio.create_task(call(*one)) for one in calls))
        assert answers == [9, "late", "late", 9.5, "late"]
        assert ended == pytest.approx({"quick": 9, "late": 10, "later": 14, "in time": 14.5, "after all": 50})

    virtually(play)


def test_a_task_whose_call_was_late_goes_on() -> None:
    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        with pytest.raises(TimeoutError):
            await limit.keep(answer(11))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert await limit.keep(answer(1)) == 1

    virtually(play)


@pytest.mark.parametrize("at", [3, 10], ids=["before the limit", "at the same moment"])
def test_a_task_cancelled_from_outside_ends(at: float) -> None:
    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.create_task(limit.keep(answer(11)))
        await asyncio.sleep(at)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    virtually(play)


def test_an_answer_that_comes_although_the_call_was_ended_counts() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(99)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "it went out"

    async def play(limit: TimeLimit, loop: asyncio.AbstractEventLoop) -> None:
        assert await limit.keep(stubborn()) == "it went out"
        assert loop.time() == pytest.approx(11)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    virtually(play)


def test_an_upload_does_not_eat_the_gap(stage: Stage) -> None:
    account = stage.account(min_gap_seconds=5, max_gap_seconds=6)
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "upload_latency_ms": 15000}}))
    stage.fire(stage.reminder(account, groups=5, parts=("image",)))
    stage.play(60)
    assert min(b - a for a, b in pairwise(d.t for d in stage.book.deliveries())) > 4.5
