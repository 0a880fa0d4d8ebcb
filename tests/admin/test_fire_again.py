"""The button "Fire now" asks when the reminder was fired a moment ago."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from reminders.models import Reminder
from tests.runs.test_fired_twice import ready_reminder  # noqa: F401


@pytest.mark.django_db
def test_the_button_asks_again(reminder: Reminder, client: Any) -> None:
    reminder.owner.is_superuser = reminder.owner.is_staff = True
    reminder.owner.save()
    client.force_login(reminder.owner)
    url = reverse("admin:reminders_reminder_fire", args=[reminder.pk])
    assert client.post(url, {"confirmed": "yes"}).status_code == 302
    page = client.post(url, {"confirmed": "yes"})  # a second click in the same dialog
    assert (page.status_code, reminder.runs.count()) == (200, 1)
    assert "s ago already. Fire it again?" in page.content.decode()
    posted = dict(page.context["posted"])
    assert client.post(url, posted | {"confirmed": "yes"}).status_code == 302
    assert reminder.runs.count() == 2
