"""The follow-ups of a reminder in its form, and from the shell."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from reminders.models import Reminder
from tests.admin.conftest import login
from tests.admin.forms import filled, parts, save
from tests.commands.calling import bad_input, data, written
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db


def with_steps(account: Any, days: str, *steps: int, **changes: Any) -> dict[str, Any]:
    texts = parts(*(f"Again {step}" for step in steps), prefix="follow_up_parts")
    numbers = {f"follow_up_parts-{n}-step": step for n, step in enumerate(steps)}
    return filled(account, follow_up_days=days) | texts | numbers | changes


def test_they_are_saved_with_their_parts(operator: Any) -> None:
    account = AccountFactory.create(owner=operator)
    save(operator, with_steps(account, "2, 5", 1, 2, 2))
    reminder = Reminder.objects.get()
    assert reminder.follow_up_days == [2, 5]
    assert list(reminder.follow_up_parts.values_list("step", "text")) == [
        (1, "Again 1"),
        (2, "Again 2"),
        (2, "Again 2"),
    ]
    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert 'value="2, 5"' in page


@pytest.mark.parametrize(
    ("days", "steps", "problem"),
    [
        ("2, 5", (1,), "Follow-up 2 has no message"),
        ("2", (1, 2), "There is a part of follow-up 2, but no day for it"),
        ("5, 2", (1, 2), "ascending order"),
        ("2, 2", (1, 2), "ascending order"),
        ("0", (1,), "1 to 90 days"),
        ("x", (1,), "whole numbers of days"),
        ("1, 2, 3, 4", (1, 2, 3), "at most 3"),
    ],
)
def test_what_does_not_fit_is_refused(operator: Any, days: str, steps: tuple[int, ...], problem: str) -> None:
    account = AccountFactory.create(owner=operator)
    assert problem in save(operator, with_steps(account, days, *steps)).content.decode()
    assert not Reminder.objects.exists()


def test_the_review_names_them_and_their_words_are_checked(operator: Any) -> None:
    account = AccountFactory.create(owner=operator)
    asked = with_steps(account, "2, 5", 1, 2, **{"follow_up_parts-0-text": "Hi {nope}"})
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), asked).json()
    assert "follow-ups after 2 and 5 days to those who have not replied" in answer["review"]
    assert "part of the follow-ups" in answer["wording"]


def test_from_the_shell(tmp_path: Any) -> None:
    AccountFactory.create(label="Line")
    words = ("reminder", "add", "--account", "Line", "--text", "Hi", "--to", written(tmp_path, "+60123456789\n"))
    made = data(
        *words,
        "--window",
        "0-24",
        "--then-after",
        "2",
        "--then-text",
        "Again",
        "--then-text",
        "Please",
        "--then-after",
        "5",
        "--then-text",
        "Last",
    )
    reminder = Reminder.objects.get(pk=made["reminder"])
    assert made["follow_up_days"] == reminder.follow_up_days == [2, 5]
    assert list(reminder.follow_up_parts.values_list("step", "text")) == [(1, "Again"), (1, "Please"), (2, "Last")]
    later = data("forecast", str(reminder.pk))["follow_ups"]
    assert [(one["at_most"], one["parts"]) for one in later] == [(1, 2), (1, 1)]
    for wrong in (
        ("--then-text", "x"),
        ("--then-after", "x"),
        ("--then-after", "2"),
        ("--then-after", "99", "--then-text", "x"),
    ):
        assert bad_input(*words, *wrong)
