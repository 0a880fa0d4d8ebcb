"""One reminder that cannot be fired, or that ends its worker, holds up no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.urls import reverse

from fanout.database import conninfo
from fanout.models import Notification, Run
from fanout.ops import tasks
from fanout.runs import controls, firing
from reminders import readiness
from reminders.models import Reminder
from tests.channels.mail_server import wait_until
from tests.crier_processes import MANAGE, environment
from tests.engine.stage import MONDAY, Stage, fresh
from tests.engine.test_lock_order import waits

pytestmark = pytest.mark.django_db(transaction=True)

FIRE = """
import sys
from datetime import datetime
import django
django.setup()
from fanout.runs import firing
now = datetime.fromisoformat(sys.argv[1])
firing.fire_due(now)
firing.fire_after_failures(now)
"""
MINUTE = timedelta(minutes=1)


def due(stage: Stage, title: str, place: int) -> Reminder:
    """A reminder to one group that is due at 9:00 and so many milliseconds."""
    at = MONDAY + timedelta(milliseconds=place)
    return stage.reminder(stage.account(), groups=1, first=place, title=title, fire_at=at, next_fire_at=at)


def titles(runs: list[Run]) -> list[str]:
    return sorted(run.title for run in runs)


# --- one that ends its worker -------------------------------------------------------------------------------


@pytest.fixture
def watcher() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as session:
        yield session


@pytest.fixture
def kill_while_firing(watcher: psycopg.Connection[Any]) -> Callable[[Stage], None]:
    """Fires in a process of its own, and kills it as soon as it can get no further."""

    def kill(stage: Stage) -> None:
        command = [sys.executable, "-c", FIRE, stage.now.isoformat()]
        settings = {"DJANGO_SETTINGS_MODULE": "config.settings"}
        with subprocess.Popen(command, env=os.environ | environment() | settings, cwd=MANAGE.parent) as worker:
            wait_until(lambda: waits(watcher) or worker.poll() is not None)
            assert worker.poll() is None, "it was not held up"
            os.kill(worker.pid, signal.SIGKILL)
        # Its session waits for a lock, and so PostgreSQL would not notice for a while that the client is gone.
        watcher.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        wait_until(lambda: not waits(watcher))

    return kill


@pytest.mark.slow
def test_a_reminder_that_ends_its_worker_is_set_aside_and_the_others_go_out(
    stage: Stage, kill_while_firing: Callable[[Stage], None]
) -> None:
    """Thirty are due. They are fired 25 at a time: the bad one is among the first, and five come behind them."""
    reminders = [due(stage, f"good {n:02}", n) for n in range(29)]
    bad = due(stage, "bad", 10)
    in_chunk, behind = reminders[:24], reminders[24:]
    with psycopg.connect(conninfo(connection.settings_dict)) as session:
        # Every firing through its account waits for ever.
        session.execute("SELECT 1 FROM accounts_account WHERE id = %s FOR UPDATE", [bad.account_id])

        kill_while_firing(stage)
        assert Run.objects.count() == 0
        begun = Reminder.objects.filter(firing_attempts=1)
        assert set(begun) == {bad, *in_chunk}, "the attempt is durable"

        # In the next minute reminders that were not being fired go at once, then the others singly, until the bad one.
        stage.now += MINUTE
        assert titles(firing.fire_due(stage.now)) == titles_of(behind)
        kill_while_firing(stage)
        fresh_of(bad)
        assert bad.firing_attempts == 2
        assert titles(list(Run.objects.all())) == titles_of([*behind, *in_chunk[:11]])

        stage.now += MINUTE
        kill_while_firing(stage)
        assert titles(list(Run.objects.all())) == titles_of(reminders)
        assert Reminder.objects.exclude(firing_attempts=0).get() == bad

        # After the third time it is left alone.
        stage.now += MINUTE
        assert firing.fire_due(stage.now) == firing.fire_after_failures(stage.now) == []
        fresh_of(bad)
        assert (bad.enabled, bad.set_aside, bad.firing_attempts) == (False, True, 0)

    # They were late by our fault, inside their window: they go out.
    stage.play()
    assert len(stage.book.deliveries()) == 29
    told = Notification.objects.get(title="Reminder switched off")
    assert (told.user, told.reminder, told.level) == (bad.owner, bad, "warning")
    assert told.get_absolute_url() == reverse("admin:reminders_reminder_change", args=[bad.pk])
    assert "“bad”: It was switched off" in told.body
    assert "switch it on again" in told.body
    assert "Nothing was sent" in told.body
    stage.now += MINUTE
    assert firing.fire_due(stage.now) == firing.fire_after_failures(stage.now) == []
    assert Notification.objects.filter(reminder=bad).count() == 1


def titles_of(reminders: list[Reminder]) -> list[str]:
    return sorted(reminder.title for reminder in reminders)


def fresh_of(reminder: Reminder) -> None:
    reminder.refresh_from_db()


def test_a_reminder_that_another_worker_fires_does_not_hold_up_others(
    stage: Stage, watcher: psycopg.Connection[Any]
) -> None:
    """Another worker may never end, or the reminder is being saved at this moment."""
    locked, free = due(stage, "locked", 0), due(stage, "free", 1)
    failed_before = due(stage, "failed before", 2), due(stage, "locked failed before", 3)
    Reminder.objects.filter(pk__in=[one.pk for one in failed_before]).update(firing_attempts=3)
    with psycopg.connect(conninfo(connection.settings_dict)) as session:
        session.execute(
            "SELECT 1 FROM reminders_reminder WHERE id = ANY(%s) FOR NO KEY UPDATE", [[locked.pk, failed_before[1].pk]]
        )
        assert titles(firing.fire_due(MONDAY)) == ["free"]
        assert firing.fire_after_failures(MONDAY) == []
    assert set(Reminder.objects.filter(enabled=True)) == {locked, free, failed_before[1]}, (
        "what is being fired has not ended"
    )
    assert titles(firing.fire_due(MONDAY)) == ["locked"]


def test_a_worker_that_was_killed_by_chance_costs_a_reminder_nothing(stage: Stage) -> None:
    """After a deploy, for example, it is fired alone in the next minute, and stands as before."""
    reminder = due(stage, "unlucky", 0)
    Reminder.objects.filter(pk=reminder.pk).update(firing_attempts=2)
    assert firing.fire_due(MONDAY) == []
    assert titles(firing.fire_after_failures(MONDAY)) == ["unlucky"]
    fresh_of(reminder)
    assert (reminder.firing_attempts, reminder.enabled, reminder.next_fire_at) == (0, True, None)


def test_a_reminder_that_was_set_aside_has_all_its_attempts_again_when_it_is_switched_on(stage: Stage) -> None:
    reminder = due(stage, "bad", 0)
    Reminder.objects.filter(pk=reminder.pk).update(firing_attempts=3)
    firing.fire_after_failures(MONDAY)
    fresh_of(reminder)
    assert reminder.set_aside
    copy = readiness.duplicate(reminder, reminder.owner)
    assert (copy.set_aside, copy.firing_attempts) == (False, 0)
    Reminder.objects.filter(pk=reminder.pk).update(enabled=True)  # in a shell
    assert titles(firing.fire_due(MONDAY) + firing.fire_after_failures(MONDAY)) == ["bad"]
    fresh_of(reminder)
    assert (reminder.firing_problem, reminder.enabled) == ("", True)


# --- one that raises ----------------------------------------------------------------------------------------


def test_a_reminder_that_cannot_be_fired_holds_up_no_other(stage: Stage) -> None:
    first, broken, last = due(stage, "first", 0), due(stage, "broken", 1), due(stage, "last", 2)
    Reminder.objects.filter(pk=broken.pk).update(timezone="Nowhere/Nothing")
    assert titles(firing.fire_due(MONDAY)) == ["first", "last"]
    fresh_of(broken)
    assert (broken.enabled, broken.firing_attempts) == (True, 0)
    assert "an error in Crier (ZoneInfoNotFoundError)" in broken.firing_problem
    told = Notification.objects.get()
    assert (told.title, told.reminder) == ("Reminder could not be fired", broken)

    # Tried again every minute, behind the others, and told once. It is never set aside: the error may be ours.
    for minute in range(5):
        assert firing.fire_due(MONDAY + minute * MINUTE) == firing.fire_after_failures(MONDAY + minute * MINUTE) == []
    assert Notification.objects.count() == 1
    Reminder.objects.filter(pk=broken.pk).update(timezone="UTC")
    assert titles(firing.fire_after_failures(MONDAY + 6 * MINUTE)) == ["broken"]
    fresh_of(broken)
    assert (broken.firing_problem, first.enabled, last.enabled) == ("", True, True)
    stage.now += 6 * MINUTE
    stage.play()
    assert len(stage.book.deliveries()) == 3


def test_a_run_that_cannot_be_resumed_holds_up_no_other(stage: Stage) -> None:
    runs = [stage.fire(due(stage, title, n)) for n, title in enumerate(("first", "broken", "last"))]
    Run.objects.update(status="paused", pause_reason="window_closed", resume_at=MONDAY)
    Run.objects.filter(title="broken").update(timezone="Nowhere/Nothing")
    assert controls.resume_due(MONDAY) == 2
    assert [fresh(run).status for run in runs] == ["queued", "paused", "queued"]


def test_a_run_that_cannot_be_prepared_holds_up_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "LARGE", 0)
    first, second = (stage.fire(due(stage, title, n)) for n, title in enumerate(("broken", "good")))
    Run.objects.filter(pk=first.pk).update(timezone="Nowhere/Nothing")
    tasks.prepare_runs()
    assert (fresh(first).status, fresh(second).status) == ("preparing", "queued")
