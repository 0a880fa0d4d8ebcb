"""`manage.py retention`: old rows are deleted, live ones stay."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from axes.models import AccessAttempt
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.utils import timezone

from fanout.database import conninfo
from fanout.models import Activity, InboundEvent, Run
from fanout.runs.controls import retry_failed
from tests.channels.mail_server import wait_until
from tests.commands.calling import bad_input, data
from tests.engine.test_lock_order import waits
from tests.factories import (
    ActivityFactory,
    InboundEventFactory,
    MediaFileFactory,
    NotificationFactory,
    RunFactory,
)
from tests.lanes.test_deleting import scans

pytestmark = pytest.mark.django_db


# --- retention ----------------------------------------------------------------------------------------------


@pytest.fixture
def old_and_new():
    long_ago = timezone.now() - timedelta(days=400)
    old = RunFactory.create(targets={"sent": 2}, scheduled_for=long_ago)
    Run.objects.filter(pk=old.pk).update(status="success", finished_at=long_ago)
    ActivityFactory(account=old.account, run_target=old.targets.first(), at=long_ago)
    NotificationFactory(created_at=long_ago)
    paused = RunFactory.create(status="paused", pause_reason="operator", finished_at=long_ago)
    recent = RunFactory.create(status="success", finished_at=timezone.now())
    return {paused.pk, recent.pk}


def test_retention_deletes_what_is_old_and_finished(old_and_new):
    counted = data("retention", "--dry-run")
    assert (counted["runs"], counted["targets"], counted["activity"], counted["notifications"]) == (1, 2, 1, 1)
    done = data("retention")
    assert {word: done[word] for word in ("runs", "targets", "activity", "notifications")} == {
        word: counted[word] for word in ("runs", "targets", "activity", "notifications")
    }
    assert set(Run.objects.values_list("pk", flat=True)) == old_and_new
    assert data("retention")["runs"] == 0


@pytest.mark.parametrize(
    ("next_in_days", "follow_up", "deleted"),
    [(None, None, 1), (1, None, 0), (None, "preparing", 0), (None, "paused", 0), (None, "success", 2)],
)
def test_a_run_stays_until_its_follow_ups_are_over(next_in_days, follow_up, deleted):
    now, long_ago = timezone.now(), timezone.now() - timedelta(days=400)
    next_step_at = now + timedelta(days=next_in_days) if next_in_days else None
    times = {"finished_at": long_ago, "scheduled_for": long_ago, "next_step_at": next_step_at}
    parent = RunFactory.create(status="success", **times)
    if follow_up:
        why = {"pause_reason": "operator"} if follow_up == "paused" else {}
        finished_at = long_ago if follow_up == "success" else None
        one = {"reminder": parent.reminder, "follows": parent, "step": 1, "follow_up": True}
        RunFactory.create(status=follow_up, finished_at=finished_at, scheduled_for=now, **one, **why)
    assert data("retention")["runs"] == deleted


def test_follow_ups_are_deleted_before_the_run_that_they_follow():
    """Each call deletes a few runs; a follow-up that is left still knows who has replied to the message before it."""
    long_ago = timezone.now() - timedelta(days=400)
    parent = RunFactory.create(status="success", finished_at=long_ago, scheduled_for=long_ago)
    for step in (1, 2):
        one = {"reminder": parent.reminder, "follows": parent, "step": step, "follow_up": True}
        RunFactory.create(status="failed", finished_at=long_ago, scheduled_for=long_ago + timedelta(days=step), **one)
    left = [
        data("retention", "--most-runs", "1")["runs_left"] and set(Run.objects.values_list("step", flat=True))
        for _ in range(2)
    ]
    assert left == [{0, 2}, {0}]
    assert not Run.objects.filter(step__gt=0, follows=None).exists()
    assert data("retention")["runs"] == 1


def test_retention_does_not_search_all_activity_for_every_run():
    long_ago = timezone.now() - timedelta(days=400)
    for _ in range(6):
        run = RunFactory.create(targets={"sent": 2}, scheduled_for=long_ago)
        Run.objects.filter(pk=run.pk).update(status="success", finished_at=long_ago)
        ActivityFactory(account=run.account, run_target=run.targets.first())
    before = scans("fanout_activity")
    assert data("retention")["runs"] == 6
    assert scans("fanout_activity") - before <= 2
    # What the account did lately goes on counting, and the books are still in order.
    assert Activity.objects.count() == 6
    assert data("limits") == {"violations": [], "repaired": []}


def test_retention_clears_sessions_that_ended_and_old_failed_logins(db):
    now, old = timezone.now(), timezone.now() - timedelta(days=400)
    for name, ends in (("over", now - timedelta(hours=1)), ("live", now + timedelta(hours=1))):
        Session.objects.create(session_key=name, session_data="x", expire_date=ends)
    for name, at in (("old", old), ("new", now)):
        attempt = AccessAttempt.objects.create(username=name, ip_address="203.0.113.1", failures_since_start=1)
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=at)
    assert (data("retention", "--dry-run")["sessions"], Session.objects.count()) == (1, 2)
    done = data("retention")
    assert (done["sessions"], done["lockouts"]) == (1, 1)
    assert (Session.objects.get().pk, AccessAttempt.objects.get().username) == ("live", "new")


def test_retention_of_what_providers_reported(settings):
    settings.INBOUND_KEEP_DAYS, settings.REPLY_TEXT_KEEP_DAYS = 100, 10
    ages = {"young": 5, "older": 50, "old": 200}
    for key, days in ages.items():
        for state in ("done", "new"):
            came = timezone.now() - timedelta(days=days)
            InboundEventFactory(key=f"{key} {state}", state=state, came_at=came, words={"text": key})
    counted = data("retention", "--dry-run")
    assert (counted["reports"], counted["texts"]) == (1, 2)
    done = data("retention")
    assert (done["reports"], done["texts"]) == (1, 1), "what is deleted needs no blanking"
    assert {event.key: event.text for event in InboundEvent.objects.all()} == {
        "young done": "young",
        "older done": "",
        "young new": "young",
        "older new": "older",
        "old new": "old",
    }


def retention_beside(change: Callable[[], object]) -> dict[str, Any]:
    """Return the result of `retention` when it lists rows before the change and waits for its commit."""
    answers: list[dict[str, Any]] = []

    def retain() -> None:
        try:
            answers.append(data("retention"))
        finally:
            connection.close()

    thread = threading.Thread(target=retain)
    with transaction.atomic(), psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as watcher:
        change()
        thread.start()
        wait_until(lambda: waits(watcher) or not thread.is_alive())
        assert thread.is_alive(), "it did not meet the change"
    thread.join(30)
    return answers[0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("which", ["the run", "its Message 2"])
def test_retention_leaves_a_run_that_goes_on_at_this_moment(which):
    long_ago = timezone.now() - timedelta(days=400)
    run = RunFactory.create(targets={"sent": 1, "failed": 2}, scheduled_for=long_ago)
    child = RunFactory.create(answers=run, targets={"sent": 1, "failed": 2}, scheduled_for=long_ago)
    other = RunFactory.create(targets={"sent": 1}, scheduled_for=long_ago)
    Run.objects.update(status="partial", finished_at=long_ago)
    going_on = run if which == "the run" else child
    going_on.refresh_from_db()
    answer = retention_beside(lambda: retry_failed(going_on, None, timezone.now()))
    # Without the one that goes on; a Message 1 stays with its Message 2.
    assert (answer["runs"], answer["targets"]) == ((2, 4) if which == "the run" else (1, 1))
    assert not Run.objects.filter(pk=other.pk).exists()
    going_on.refresh_from_db()
    assert (going_on.status, going_on.pending, going_on.total) == ("queued", 2, 3)
    assert Run.objects.filter(pk=run.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_a_run_is_kept_whose_follow_up_is_tried_again_meanwhile():
    long_ago = timezone.now() - timedelta(days=400)
    times = {"finished_at": long_ago, "scheduled_for": long_ago}
    parent = RunFactory.create(status="success", **times)
    one = {"reminder": parent.reminder, "follows": parent, "step": 1, "follow_up": True}
    follow_up = RunFactory.create(targets={"failed": 1}, scheduled_for=long_ago + timedelta(days=1), **one)
    Run.objects.filter(pk=follow_up.pk).update(status="failed", finished_at=long_ago)
    answer = retention_beside(lambda: retry_failed(follow_up, follow_up.owner, timezone.now()))
    assert answer["runs"] == 0
    assert Run.objects.get(pk=follow_up.pk).follows_id == parent.pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("word", ["sessions", "lockouts", "reports", "texts"])
def test_retention_leaves_what_is_used_again_at_this_moment(settings, word):
    settings.INBOUND_KEEP_DAYS = 100 if word == "reports" else 1000
    now, old = timezone.now(), timezone.now() - timedelta(days=400)
    Session.objects.create(session_key="renewed", session_data="x", expire_date=old)
    AccessAttempt.objects.create(username="anna", ip_address="203.0.113.1", failures_since_start=1)
    AccessAttempt.objects.update(attempt_time=old)
    InboundEventFactory(state="failed", came_at=old, words={"text": "yes"})
    changes = {
        "sessions": lambda: Session.objects.update(expire_date=now + timedelta(hours=1)),
        "lockouts": lambda: AccessAttempt.objects.update(attempt_time=now),
        "reports": lambda: InboundEvent.objects.update(state="new"),
        "texts": lambda: InboundEvent.objects.update(state="new"),
    }
    answer = retention_beside(changes[word])
    assert answer[word] == 0
    kept = {"sessions": Session, "lockouts": AccessAttempt}.get(word, InboundEvent)
    assert kept._default_manager.count() == 1
    if word == "texts":
        assert InboundEvent.objects.get().text == "yes"


def test_retention_removes_conversions_that_are_old_or_have_no_original(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    kept = MediaFileFactory.create().sha256
    folder = tmp_path / "converted"
    folder.mkdir()
    for name, days in ((f"{kept}-a.mp4", 29), (f"{kept}-b.mp4", 31), (f"{'0' * 64}-a.mp4", 0)):
        (folder / name).touch()
        os.utime(folder / name, (0, time.time() - days * 86_400))

    assert data("retention", "--dry-run")["conversions"] == 2
    assert data("retention")["conversions"] == 2
    assert [file.name for file in folder.iterdir()] == [f"{kept}-a.mp4"]


def test_retention_is_bounded(old_and_new):
    assert "at least 30" in bad_input("retention", "--days", "5")
    assert "--days takes a whole number from 30 to 36500" in bad_input("retention", "--days", "999999")
    assert "--most-runs" in bad_input("retention", "--most-runs", "0")
