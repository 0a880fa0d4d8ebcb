"""The parts of a dispatcher: open targets, and what it learns: each run is judged by its own outcomes, and the pace
adapts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fanout.engine.dispatcher import Learning, OpenTargets
from fanout.engine.loading import LaneRun
from fanout.models import LaneState, Run
from fanout.rules import breaker
from fanout.rules.gates import RunFacts
from fanout.rules.outcomes import Consequence
from fanout.rules.pace import PaceState
from fanout.runs import controls
from tests.engine.stage import Stage, fresh
from tests.engine.test_protection import faults


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


# --- learning ---------------------------------------------------------------------------------------------

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def lane_run(pk: int, **fields: Any) -> LaneRun:
    facts = RunFacts(NOW, NOW + timedelta(hours=3))
    return LaneRun(pk, "running", "message", 1, NOW, facts, [], attempted=True, **fields)


def test_each_run_is_judged_by_its_own_outcomes() -> None:
    account: Any = SimpleNamespace(on_trial=False, sample="", sample_run=None, outage="")
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
        on_trial=False, sample="." * 30, sample_run=1, pace=PaceState(slow_factor=1.5), slowdown_at=0.05, outage=""
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
