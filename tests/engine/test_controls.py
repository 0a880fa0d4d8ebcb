"""Operators' controls beside the engine: offloading, settling and resuming, judged by the provider's book."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fanout.models import Activity, Event, Run
from fanout.runs import controls, corrections
from tests.engine.stage import MONDAY, Stage, fresh
from tests.engine.test_protection import cap, faults


def test_offload_from_an_account_at_its_cap(stage: Stage) -> None:
    a, b = stage.account(), stage.account()
    cap(a, 5)
    run = stage.fire(stage.reminder(a, groups=40))
    stage.play(60)
    assert fresh(run).status == Run.Status.PAUSED
    assert corrections.offload(run, b, stage.user, stage.now).ok
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play(90)
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries(b.address)) == 35


def test_offload_from_a_suspended_account(stage: Stage) -> None:
    a, b = stage.account(), stage.account()
    faults(stage, {"match": {"after_accepted": 5}, "effect": "auth"})
    run = stage.fire(stage.reminder(a, groups=40))
    stage.play(60)
    faults(stage)
    assert corrections.offload(run, b, stage.user, stage.now).ok
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play(90)
    assert fresh(run).status == Run.Status.SUCCESS


def test_send_again_does_not_resume_what_the_operator_paused(stage: Stage) -> None:
    faults(stage, {"match": {"first": 1}, "effect": "drop_after_accept"})
    run = stage.fire(stage.reminder(stage.account(), groups=60))
    stage.play(5)
    controls.pause(run, stage.user, stage.now)
    stage.play(3)
    sent = len(stage.book.deliveries())
    target = run.targets.get(status="unconfirmed")
    assert corrections.settle(run, [target.pk], False, stage.user, stage.now).ok
    stage.play(30)
    assert len(stage.book.deliveries()) == sent
    assert fresh(run).status == Run.Status.PAUSED


@pytest.mark.parametrize("delivered", [True, False], ids=["was delivered", "send again"])
def test_settling_many_targets_of_a_canceled_run_takes_few_queries(
    stage: Stage, django_assert_max_num_queries: Any, delivered: bool
) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=40, parts=("text", "text")))
    first, second = run.targets.order_by("position")[:20], run.targets.order_by("position")[20:]
    run.targets.filter(pk__in=[target.pk for target in second]).update(parts_sent=1)
    run.targets.update(status="unconfirmed", claimed_at=stage.now)
    Run.objects.filter(pk=run.pk).update(status="canceled", finished_at=stage.now)
    ids = [target.pk for target in (*first, *second)]
    with django_assert_max_num_queries(20):
        assert corrections.settle(fresh(run), ids, delivered, stage.user, stage.now).ok
    sent = run.targets.filter(status="sent")
    assert (fresh(run).sent, run.skipped) == ((20, 20) if delivered else (0, 40))
    assert set(sent.values_list("parts_sent", flat=True)) <= {2}
    assert not run.targets.filter(settled_at=None).exists()
    assert Activity.objects.filter(kind="settled").count() == (40 if delivered else 0)


def test_resume_at_opening_means_the_next_one(stage: Stage) -> None:
    account = stage.account()
    cap(account, 5)
    run = stage.fire(stage.reminder(account, groups=20))
    stage.play(60)
    assert controls.resume_at_opening(run, stage.user, stage.now).ok
    assert fresh(run).resume_at == MONDAY.replace(hour=6) + timedelta(days=1)


def test_a_late_auto_resume_waits_for_the_next_opening_without_a_word_a_minute(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=60, delivery_window_end_hour=10))
    stage.play(10)
    controls.pause(run, stage.user, stage.now)
    Run.objects.filter(pk=run.pk).update(resume_at=MONDAY + timedelta(minutes=30))
    for minute in range(5):
        controls.resume_due(MONDAY + timedelta(hours=2, minutes=minute))
    assert Event.objects.filter(run=run, verb="resume refused").count() == 1
    assert fresh(run).resume_at == MONDAY.replace(hour=6) + timedelta(days=1)
