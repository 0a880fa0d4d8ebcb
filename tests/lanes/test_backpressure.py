"""What stands in an account's queue of follow-ups."""

from __future__ import annotations

from typing import Any

import pytest

from fanout.lanes import account_limits
from tests.factories import AccountFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db

WAITING = ("preparing", "queued", "running", "waiting", "paused")


@pytest.mark.parametrize("status", [*WAITING, "skipped", "canceled"])
@pytest.mark.parametrize("follow_up", [True, False])
def test_which_runs_stand_in_the_queue(status: str, follow_up: bool) -> None:
    reason = "operator" if status == "paused" else ""
    run = RunFactory.create(status=status, pause_reason=reason, follow_up=follow_up, targets={"pending": 2})
    assert account_limits.queued([run.account_id], 9) == {run.account_id: 2 if follow_up and status in WAITING else 0}


@pytest.mark.parametrize("status", ["running", "paused", "preparing"])
def test_what_an_account_stepped_aside_from_is_not_in_its_queue(status: str) -> None:
    run = RunFactory.create(status=status, pause_reason="operator" if status == "paused" else "", follow_up=True)
    aside = AccountFactory.create()
    RunTargetFactory.create(run=run, account=aside)
    assert account_limits.queued([aside.pk, run.account_id], 9) == {aside.pk: 0, run.account_id: 0}


def test_a_queue_is_what_is_pending_of_that_account_and_counted_up_to_a_limit() -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    run = RunFactory.create(account=one, lanes=[one.pk, two.pk], follow_up=True, status="running")
    for status in ("pending", "pending", "sending", "sent", "unconfirmed", "skipped"):
        RunTargetFactory.create(run=run, account=one, status=status)
    RunTargetFactory.create(run=run, account=two)
    RunFactory.create(account=one, follow_up=True, status="queued", targets={"pending": 2})
    assert account_limits.queued([one.pk, two.pk], 9) == {one.pk: 4, two.pk: 1}
    assert account_limits.queued([one.pk, two.pk], 3) == {one.pk: 3, two.pk: 1}


@pytest.mark.parametrize(("pending", "pressed"), [(1, False), (2, False), (3, True)])
def test_pressure_begins_above_the_threshold(settings: Any, pending: int, pressed: bool) -> None:
    settings.BOT_BACKPRESSURE_THRESHOLD, settings.BOT_QUEUE_MAX = 2, 5
    run = RunFactory.create(follow_up=True, status="running", targets={"pending": pending})
    assert account_limits.under_backpressure(run.account_id) is pressed
    limits = account_limits.queue_limits()
    assert account_limits.up_to_threshold([7], limits) == {"accounts": [7], "most": 3}
