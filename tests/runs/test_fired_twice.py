"""A reminder that was fired a moment ago is not fired again without a question."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection
from django.utils import timezone

from fanout.models import Run
from fanout.runs import controls
from reminders.models import Reminder, ReminderMessage, ReminderTarget
from tests.commands.calling import data, not_done
from tests.engine.stage import whole_day
from tests.factories import RecipientFactory, ReminderFactory


@pytest.fixture(name="reminder")
def ready_reminder() -> Reminder:
    made = ReminderFactory.create(title="Rent", **whole_day(timezone.now()))
    ReminderMessage.objects.filter(reminder=made).delete()
    ReminderMessage.objects.create(reminder=made, position=0, text="Please pay")
    person = RecipientFactory.create(owner=made.owner)
    ReminderTarget.objects.create(reminder=made, recipient=person, position=0)
    return made


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("seconds", "status", "asks"),
    [(5, "running", True), (5, "success", True), (31, "running", False), (5, "failed", False), (5, "skipped", False)],
)
def test_a_second_fire_within_seconds_asks(reminder: Reminder, seconds: int, status: str, asks: bool) -> None:
    now = timezone.now()
    first = controls.fire(reminder, None, now).run
    assert first is not None
    if status != "running":
        first.targets.all().delete()
    Run.objects.filter(pk=first.pk).update(created_at=now - timedelta(seconds=seconds), status=status)
    answer = controls.fire(reminder, None, now + timedelta(milliseconds=1))
    assert (answer.asks, answer.ok) == (asks, not asks)
    if asks:
        assert (answer.text, answer.run) == ("“Rent” was fired 5 s ago already. Fire it again?", first)
        assert controls.fire(reminder, None, now + timedelta(milliseconds=2), after=first.pk).ok
        third = controls.fire(reminder, None, now + timedelta(milliseconds=3), after=first.pk)
        assert third.asks  # there is a newer one, of which the person does not know
    assert reminder.runs.count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_operators_at_the_same_moment_one_fires(reminder: Reminder) -> None:
    together = Barrier(2)

    def fire(n: int) -> controls.ControlResult:
        try:
            together.wait(30)
            return controls.fire(Reminder.objects.get(pk=reminder.pk), None, timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(fire, range(2)))
    assert sorted((answer.ok, answer.asks) for answer in answers) == [(False, True), (True, False)]
    assert reminder.runs.count() == 1


@pytest.mark.django_db
def test_the_command_asks_for_again(reminder: Reminder) -> None:
    assert data("fire", "Rent")["status"] == "queued"
    assert "Add --again if you want that." in not_done("fire", "Rent")
    assert data("fire", "Rent", "--again")["status"] == "queued"
    assert reminder.runs.count() == 2
