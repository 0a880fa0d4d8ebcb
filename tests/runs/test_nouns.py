"""What a run's recipients are called wherever they are counted: groups only where all of them are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection

from fanout.models import Run
from fanout.plans.reminder_forecast import forecast_reminder
from fanout.plans.run_forecast import forecast_run
from fanout.runs import controls, texts, transitions
from reminders.models import Reminder
from tests.factories import ReminderFactory, ReminderTargetFactory

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def reminder_to(groups: int, people: int) -> Reminder:
    reminder = ReminderFactory.create(targets=groups)
    for n in range(people):
        ReminderTargetFactory.create(
            reminder=reminder,
            recipient__owner=reminder.owner,
            recipient__kind="person",
            recipient__address=f"6012345670{n}",
            position=groups + n,
        )
    return reminder


@pytest.mark.parametrize(
    ("groups", "people", "words"),
    [(2, 0, "2 groups"), (1, 0, "1 group"), (0, 2, "2 recipients"), (1, 1, "2 recipients"), (0, 1, "1 recipient")],
)
def test_only_groups_are_called_groups(groups: int, people: int, words: str) -> None:
    reminder = reminder_to(groups, people)
    assert words in forecast_reminder(reminder, NOON).sentence
    answer = controls.fire(reminder, reminder.owner, NOON)
    assert f"Fired: {words} queued" in answer.text
    run = Run.objects.get()
    assert words in forecast_run(run, NOON).sentence
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {transitions.CHANNEL} FROM fanout_run")
        assert cursor.fetchone()[0] == run.facts()["channel"]
    assert texts.recipients(run.facts()) == words
