"""Learning from outcomes: each run is judged by its own, and the pace adapts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fanout.engine.learning import Learning
from fanout.engine.loading import LaneRun
from fanout.models import LaneState, Run
from fanout.rules import breaker
from fanout.rules.gates import RunFacts
from fanout.rules.outcomes import Consequence
from fanout.rules.pace import PaceState
from fanout.runs import controls
from tests.engine.stage import Stage, fresh
from tests.engine.test_protection import faults

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def lane_run(pk: int, **fields: Any) -> LaneRun:
    facts = RunFacts(NOW, NOW + timedelta(hours=3))
    return LaneRun(pk, "running", "message", 1, NOW, facts, [], attempted=True, **fields)


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


@pytest.mark.parametrize(
    ("letter", "factor"), [(breaker.SENT, 1.49), (breaker.UNREACHABLE, 1.5), (breaker.LIMITED, 1.5), (None, 1.5)]
)
def test_an_unreachable_provider_does_not_change_the_pace(letter: str | None, factor: float) -> None:
    account: Any = SimpleNamespace(
        on_trial=False, sample="." * 30, sample_run=1, pace=PaceState(slow_factor=1.5), slowdown_at=0.05
    )
    Learning(account).learn(lane_run(1), Consequence("pending", letter))
    assert account.pace.slow_factor == factor


@pytest.mark.slow
def test_a_slow_account_adapts_too(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=10, send_burst=1, circuit_breaker=1, bounce_rate_pause=1)
    faults(stage, {"match": {"every": 4}, "effect": "recipient_gone"})
    stage.fire(stage.reminder(account, groups=100))
    stage.play(400)
    assert LaneState.objects.get(account=account).slow_factor == 1.5


def test_the_breakers_sample_does_not_outlive_its_run(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=120, bounce_rate_pause=1)
    faults(stage, {"match": {"after_accepted": 15}, "effect": "content_rejected"})
    run = stage.fire(stage.reminder(account, groups=80))
    stage.play()
    assert fresh(run).pause_reason == "circuit_breaker"
    controls.cancel(run, stage.user, stage.now)
    faults(stage)
    stage.now += timedelta(days=1)
    healthy = stage.fire(stage.reminder(account, groups=80, first=500))
    stage.play()
    assert fresh(healthy).status == Run.Status.SUCCESS
