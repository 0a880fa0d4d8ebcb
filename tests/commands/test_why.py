"""`manage.py why` and `manage.py forecast`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.management.commands.forecast import days
from fanout.plans.forecast import Forecast
from fanout.plans.outlook import DayPlan
from tests.commands.calling import bad_input, data, text
from tests.factories import (
    AccountFactory,
    ReminderFactory,
    RunFactory,
)

pytestmark = pytest.mark.django_db


def test_why_a_reminder_does_not_fire():
    reminder = ReminderFactory.create(title="Rent", enabled=False, firing_problem="It stopped the worker.")
    ReminderFactory.create(title="Water")
    others = ReminderFactory.create(title="Light", firing_problem="It could not be fired.")
    others.set_further_senders([reminder.account])
    lines = {line["what"]: line["why"] for line in data("why")["why"] if line["what"].startswith("reminder")}
    assert lines == {
        f"reminder {reminder.pk}": "It stopped the worker.",
        f"reminder {others.pk}": "It could not be fired.",
    }
    assert f"reminder {reminder.pk}" in text("why", "--account", reminder.account.label)
    assert f"reminder {reminder.pk}" not in text("why", "--account", others.account.label)
    assert {row["title"]: row["problem"] for row in data("reminder", "list")["reminders"]}["Water"] == ""
    assert "It stopped the worker." in text("reminder", "list")


# --- forecast and why ---------------------------------------------------------------------------------------


def test_forecast_of_a_reminder_and_a_run():
    ReminderFactory(title="Market", targets=3)
    found = data("forecast", "Market")
    assert {"ends_at", "fits", "bound_by", "days", "sentence"} <= set(found)
    run = RunFactory.create(targets={"pending": 2}, status="running")
    assert "2 groups" in text("forecast", "--run", str(run.pk))
    assert "Name either" in bad_input("forecast")


@pytest.mark.parametrize(
    ("number", "lines"),
    [
        pytest.param(1, [], id="one day: the sentence has it all"),
        pytest.param(2, ["day", "2026-03-02", "2026-03-03"], id="two days"),
    ],
)
def test_several_days_of_a_forecast_are_a_table(number: int, lines: list[str]) -> None:
    first = datetime(2026, 3, 2, 17, tzinfo=UTC)
    plan = [first + timedelta(days=n) for n in range(number)]
    known = Forecast(None, None, False, 0, "", [DayPlan(at.date(), 10, 20, at, at) for at in plan], "")
    assert [line.split()[0] for line in days(known, "UTC")] == lines


def test_why_says_what_binds():
    run = RunFactory.create(targets={"pending": 1}, status="running")
    AccountFactory(label="Banned", status="suspended", status_reason="too fast")
    lines = {line["label"]: line["why"] for line in data("why")["why"]}
    assert lines["Banned"] == "account suspended: too fast"
    assert "no driver is alive" in lines[run.title]
    assert [line["what"] for line in data("why", "--run", str(run.pk))["why"]] == [f"run {run.pk}"]
    assert len(data("why", "--account", run.account.label)["why"]) == 2
    assert "Name either" in bad_input("why", "--run", "1", "--account", "x")
    assert "named by its number" in bad_input("why", "--run", "²")
