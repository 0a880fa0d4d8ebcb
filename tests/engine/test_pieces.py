"""Small decisions of lanes and senders, each by itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.db import connection

from accounts.channels.sandbox.script import Script
from fanout.database import conninfo
from fanout.engine import closing
from fanout.engine.connection import BlockingLink, by_key
from fanout.engine.lane import FIRST_TARGETS, Lane, _merged
from fanout.engine.learning import Learning
from fanout.engine.loading import LaneRun
from fanout.lanes.wake import wake_lanes
from fanout.models import LaneState
from fanout.rules import breaker
from fanout.rules.gates import RunFacts
from fanout.rules.outcomes import Consequence
from fanout.rules.pace import PaceSettings, PaceState
from fanout.runs import transitions
from tests.engine.stage import Stage, fresh

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def lane_run(pk: int, **fields: Any) -> LaneRun:
    facts = RunFacts(NOW, NOW + timedelta(hours=3))
    return LaneRun(pk, "running", "message", 1, NOW, facts, [], attempted=True, **fields)


@pytest.mark.django_db
@pytest.mark.parametrize("way", ["enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"])
def test_look_ups_are_planned_by_key(way: str) -> None:
    async def shown() -> str:
        link = await by_key(BlockingLink.open(conninfo(connection.settings_dict)))
        (row,) = await link.query(f"SHOW {way}")
        await link.close()
        return str(row[way])

    assert asyncio.run(shown()) == "off"


def test_a_run_that_is_under_way_keeps_its_targets_and_is_otherwise_as_the_database_says() -> None:
    targets: deque[Any] = deque(["a target"])
    kept = lane_run(1, buffer=targets, dry_until=NOW, over=True)
    later = RunFacts(NOW, NOW + timedelta(hours=9))
    read = lane_run(1)
    read.status, read.facts = "waiting", later
    merged = _merged(kept, read)
    assert merged is kept
    assert (merged.buffer, merged.status, merged.facts) == (targets, "waiting", later)
    assert (merged.dry_until, merged.over) == (None, False)
    assert _merged(None, read) is read


@pytest.mark.parametrize(
    ("per_minute", "fetched", "targets"),
    [
        (0, False, FIRST_TARGETS),
        (0, True, 500),
        (40, True, 20),
        (600, False, FIRST_TARGETS),
        (600, True, 300),
        (6000, True, 500),
        (3, False, 10),
        (3, True, 10),
    ],
)
def test_a_run_begins_with_a_few_targets_and_then_reads_half_a_minutes_worth(
    per_minute: int, fetched: bool, targets: int
) -> None:
    run = lane_run(1, fetched=fetched)
    lane: Any = SimpleNamespace(account=SimpleNamespace(pace_settings=PaceSettings(per_minute=per_minute)))
    assert Lane._chunk(lane, run) == targets


def test_each_run_is_judged_by_its_own_outcomes() -> None:
    account: Any = SimpleNamespace(on_trial=False, sample="", sample_run=None)
    learning = Learning(account)
    learning.judge_by(lane_run(1))
    assert (account.sample_run, learning.samples) == (1, {})
    account.sample = ".e."
    learning.judge_by(lane_run(2))
    assert (account.sample_run, account.sample, learning.samples) == (2, "", {1: ".e."})
    learning.judge_by(lane_run(3, is_test=True))  # it adds to the sample at hand
    assert account.sample_run == 2
    learning.judge_by(lane_run(1))
    assert (account.sample_run, account.sample, learning.samples) == (1, ".e.", {2: ""})


def test_a_lane_that_reads_again_keeps_its_sample_and_sends_as_before(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=60), groups=20))
    stage.play(60, [(stage.now + timedelta(seconds=8), lambda now: wake_lanes([run.account_id], now))])
    lane = LaneState.objects.get()
    assert (lane.sample, lane.probing) == ("." * 20, False)
    assert len(stage.book.deliveries()) == 20


def test_a_final_failure_while_nothing_else_is_left_to_fetch_troubles_nobody(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=0, group_concurrency=3), groups=3))
    gone = run.targets.order_by("position")[1].address
    faults = [{"match": {"address": gone}, "effect": "recipient_gone"}]
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "faults": faults}}))
    stage.play(60)
    assert sorted(run.targets.values_list("status", flat=True)) == ["failed", "sent", "sent"]
    assert fresh(run).status == "partial"
    assert "a lane failed" not in caplog.text


@pytest.mark.parametrize("runs", [[1], [2, 1]], ids=["one", "two"])
def test_several_runs_that_end_together_are_locked_before_any_of_them_changes(runs: list[int]) -> None:
    written: list[Any] = []

    async def write(statements: Any) -> list[list[Any]]:
        written.extend(statement for statement, _ in statements)
        return [[] for _ in statements]

    @asynccontextmanager
    async def together() -> AsyncIterator[Any]:
        yield write

    def steps() -> Any:
        yield "a change", {}

    changes = [closing.Change(run, steps) for run in runs]
    asyncio.run(closing._change_all(cast(Any, SimpleNamespace(together=together)), changes))
    assert written == [*([transitions.LOCK] if len(runs) > 1 else []), *["a change"] * len(runs)]


@pytest.mark.parametrize(
    ("letter", "factor"), [(breaker.SENT, 1.49), (breaker.UNREACHABLE, 1.5), (breaker.LIMITED, 1.5), (None, 1.5)]
)
def test_who_could_not_be_reached_says_nothing_about_the_pace(letter: str | None, factor: float) -> None:
    account: Any = SimpleNamespace(
        on_trial=False, sample="." * 30, sample_run=1, pace=PaceState(slow_factor=1.5), slowdown_at=0.05
    )
    Learning(account).learn(lane_run(1), Consequence("pending", letter))
    assert account.pace.slow_factor == factor
