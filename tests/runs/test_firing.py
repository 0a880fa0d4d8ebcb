"""A reminder that is due becomes one run, whatever the number of clusters and whatever was missed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection

from fanout.models import LaneState, Run
from fanout.runs import firing
from tests.engine.stage import MONDAY, Stage, fresh

pytestmark = pytest.mark.django_db(transaction=True)


def scheduled(stage: Stage, cron: str = "", **fields: object) -> object:
    reminder = stage.reminder(stage.account(), groups=3, **fields)  # type: ignore[arg-type]
    if cron:
        reminder.schedule, reminder.cron = "cron", cron
    else:
        reminder.fire_at = MONDAY + timedelta(minutes=5)
    reminder.plan_next(after=MONDAY)
    reminder.save()
    return reminder


def test_a_run_is_made_a_minute_ahead_and_starts_on_its_second(stage: Stage) -> None:
    scheduled(stage)
    assert firing.fire_due(MONDAY) == []
    (run,) = firing.fire_due(MONDAY + timedelta(minutes=4, seconds=10))
    assert run.status == Run.Status.QUEUED
    assert run.pending == 3
    stage.now = MONDAY + timedelta(minutes=4, seconds=10)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    first = min(stage.times())
    assert timedelta(0) <= first - run.scheduled_for < timedelta(seconds=1.5)


def test_many_clusters_make_one_run(stage: Stage) -> None:
    scheduled(stage)
    now = MONDAY + timedelta(minutes=5)

    def fire() -> None:
        firing.fire_due(now)
        connection.close()

    threads = [threading.Thread(target=fire) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Run.objects.count() == 1
    assert Run.objects.get().total == 3


def test_a_missed_firing_is_made_up_for_within_its_window(stage: Stage) -> None:
    scheduled(stage)
    (run,) = firing.fire_due(MONDAY + timedelta(hours=3))
    stage.now = MONDAY + timedelta(hours=3)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 3


def test_a_missed_firing_is_recorded_as_failed_after_its_window(stage: Stage) -> None:
    scheduled(stage)
    (run,) = firing.fire_due(MONDAY + timedelta(hours=12))
    assert run.status == Run.Status.FAILED
    assert fresh(run).skipped == 3
    assert list(run.events.values_list("verb", flat=True)) == ["fired", "failed"]
    stage.now = MONDAY + timedelta(hours=12)
    stage.play(5)
    assert not stage.book.deliveries()


def test_of_many_missed_firings_only_the_last_is_made_up_for(stage: Stage) -> None:
    reminder = scheduled(stage, cron="*/10 * * * *")
    runs = firing.fire_due(MONDAY + timedelta(hours=1, minutes=5))
    assert [run.status for run in runs] == ["skipped"] * 5 + ["queued"]
    reminder.refresh_from_db()  # type: ignore[attr-defined]
    assert reminder.next_fire_at == MONDAY + timedelta(hours=1, minutes=10)  # type: ignore[attr-defined]


def test_an_account_that_is_not_active_skips_the_firing(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(status="suspended", status_reason="banned"), groups=3)
    run = stage.fire(reminder)
    assert run.status == Run.Status.SKIPPED
    assert "suspended: banned" in run.error_summary
    assert run.total == 0
    assert not LaneState.objects.exists()


def test_two_firings_within_the_next_minute_are_both_made(stage: Stage) -> None:
    scheduled(stage, cron="* * * * *")
    runs = firing.fire_due(MONDAY + timedelta(seconds=60))
    assert [run.status for run in runs] == ["queued", "queued"]
