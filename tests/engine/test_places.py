"""Places of targets that are between two parts, when their run may not go on."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fanout.engine.lane_loop import Lane
from fanout.engine.loading import LaneRun, TargetQueue
from fanout.models import Run
from fanout.models.run import PauseReason
from fanout.rules.gates import AccountFacts, Close, RunFacts
from fanout.runs import self_test
from reminders.window import BusinessHours
from tests.engine.stage import MONDAY, Stage


def test_a_run_whose_window_closes_between_two_parts_gives_its_places_back(stage: Stage) -> None:
    """A test message came meanwhile: it is first in the lane, and the only place belongs to the other run."""
    stage.now = MONDAY.replace(hour=17, minute=59, second=50)
    account = stage.account(group_concurrency=1, part_jitter_min_ms=20_000, part_jitter_max_ms=20_000)
    reminder = stage.reminder(account, groups=1, parts=("text", "text"))
    run = stage.fire(reminder)
    me = "120363999999999999@g.us"
    at = stage.now + timedelta(seconds=5)

    stage.play(60, [(at, lambda now: self_test.send_test(reminder, me, stage.user, now))])

    assert [d.to for d in stage.book.deliveries()].count(me) == 2
    run.refresh_from_db()
    assert (run.status, run.pause_reason) == (Run.Status.PAUSED, "window_closed")


OPEN = RunFacts(MONDAY, MONDAY + timedelta(hours=1))
OVER = RunFacts(MONDAY, MONDAY)


@pytest.mark.parametrize(
    ("facts", "closing", "places", "given_back"),
    [
        pytest.param(OPEN, None, 1, False, id="its next part comes"),
        pytest.param(OVER, None, 1, True, id="its window is over"),
        pytest.param(OPEN, Close(PauseReason.CIRCUIT_BREAKER, "too many"), 1, True, id="it is to be closed"),
        pytest.param(OVER, None, 0, False, id="there is another place"),
    ],
)
def test_blocked_runs_release_targets_between_parts(
    facts: RunFacts, closing: Close | None, places: int, given_back: bool
) -> None:
    between: Any = object()
    queue = TargetQueue(between_parts=[between])
    other = LaneRun(1, "running", "message", 1, MONDAY, facts, [], True, closing=closing, queue=queue)
    wants = LaneRun(2, "running", "message", 1, MONDAY, OPEN, [], True)
    gave: list[LaneRun] = []

    def give_back(run: LaneRun) -> None:
        gave.append(run)
        dispatcher.open.in_flight -= 1

    dispatcher: Any = SimpleNamespace(
        account=SimpleNamespace(
            concurrency=1, facts={"message": AccountFacts("active", "", None, BusinessHours("UTC"))}
        ),
        open=SimpleNamespace(in_flight=places),
        ready=lambda run, now: None,
        release_between_parts=give_back,
    )
    lane = Lane.__new__(Lane)
    lane.dispatcher, lane.runs = dispatcher, [other, wants]

    assert lane._make_room(wants, MONDAY) is (given_back or places == 0)
    assert gave == ([other] if given_back else [])
