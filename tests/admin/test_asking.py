"""Bulk Fire and Reactivate ask first, with numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import time_machine
from django.urls import reverse
from django.utils import timezone

from fanout.models import Run
from tests.admin.conftest import login
from tests.factories import AccountFactory, ReminderFactory, RunFactory

YES = {"confirmed": "yes"}


def test_firing_many_says_how_many_and_what_went_out_already(operator):
    one, two = (
        ReminderFactory.create(owner=operator, account__owner=operator, title=title, targets=n)
        for title, n in (("Rent", 3), ("Water", 2))
    )
    RunFactory.create(reminder=one, status="success", targets={"sent": 1}, finished_at=timezone.now())
    client, path = login(operator), reverse("admin:reminders_reminder_changelist")
    data = {"action": "fire_selected", "_selected_action": [one.pk, two.pk]}
    asked = client.post(path, data).content.decode()
    assert "Fire 2 reminders now" in asked
    assert "5 targets in all." in asked
    assert "Sent in the last 24 hours, or going out now: 1 reminder." in asked
    assert "was delivered now" in asked
    assert Run.objects.count() == 1
    answer = client.post(path, data | YES, follow=True)
    assert "Fired: 2 of 2." in [str(message) for message in answer.context["messages"]]
    assert Run.objects.filter(status="queued").count() == 2


def test_what_is_outside_its_window_is_left_alone(operator):
    open_now, closed = (
        ReminderFactory.create(
            owner=operator,
            account__owner=operator,
            targets=1,
            delivery_window_start_hour=6,
            delivery_window_end_hour=end,
        )
        for end in (18, 10)
    )
    path = reverse("admin:reminders_reminder_changelist")
    data = {"action": "fire_selected", "_selected_action": [open_now.pk, closed.pk]}
    with time_machine.travel(datetime(2026, 1, 6, 12, tzinfo=UTC), tick=False):
        client = login(operator)
        asked = client.post(path, data).content.decode()
        assert "Fire 1 reminder now" in asked
        assert "1 reminder will not be fired: outside the delivery window." in asked
        client.post(path, data | YES)
    assert [run.reminder for run in Run.objects.all()] == [open_now]


def test_reminders_without_targets_are_not_fired(operator):
    empty = ReminderFactory.create(owner=operator, account__owner=operator)
    data = {"action": "fire_selected", "_selected_action": [empty.pk]}
    asked = login(operator).post(reverse("admin:reminders_reminder_changelist"), data)
    assert asked.context["question"].button == ""


def test_reactivating_many_says_what_waits_for_them(operator):
    down = AccountFactory.create(owner=operator, status="suspended", status_reason="login refused")
    up = AccountFactory.create(owner=operator)
    RunFactory.create(reminder__account=down, status="paused", pause_reason="account_down", targets={"pending": 4})
    client, path = login(operator), reverse("admin:accounts_account_changelist")
    data = {"action": "reactivate", "_selected_action": [down.pk, up.pk]}
    asked = client.post(path, data).content.decode()
    assert "1 paused run with 4 still to send can then be resumed" in asked
    assert "1 selected account is active already." in asked
    assert "suspended: login refused" in asked
    down.refresh_from_db()
    assert down.status == "suspended"
    client.post(path, data | YES)
    down.refresh_from_db()
    assert down.status == "active"


def test_a_button_asks_where_no_script_did(operator):
    """Fire, and Cancel: nothing brings back what they do."""
    reminder = ReminderFactory.create(owner=operator, account__owner=operator, title="Rent", targets=3)
    client, fire = login(operator), reverse("admin:reminders_reminder_fire", args=[reminder.pk])
    page = reverse("admin:reminders_reminder_change", args=[reminder.pk])
    asked = client.post(fire, {"x": "kept"}, headers={"Referer": f"http://testserver{page}"})
    assert "Send “Rent” to 3 recipients now?" in asked.content.decode()
    assert ("x", "kept") in asked.context["posted"]
    assert not Run.objects.exists()
    client.post(fire, dict(asked.context["posted"]) | YES)
    run = Run.objects.get()
    cancel = reverse("admin:fanout_run_do", args=[run.pk, "cancel"])
    listing = f"{reverse('admin:fanout_run_changelist')}?status=waiting"
    asked = client.post(cancel, headers={"Referer": f"http://testserver{listing}"})
    assert "Pending targets will be skipped, and it cannot be resumed." in asked.content.decode()
    run.refresh_from_db()
    assert run.status == "queued"
    answer = client.post(cancel, dict(asked.context["posted"]) | YES, headers={"Referer": f"http://testserver{cancel}"})
    assert answer["Location"].endswith(listing), "not to the page with the question, which has no address of its own"
    run.refresh_from_db()
    assert run.status == "canceled"


def test_sending_again_asks_too(operator):
    run = RunFactory.create(
        reminder__owner=operator, reminder__account__owner=operator, status="partial", targets={"unconfirmed": 2}
    )
    path, ids = reverse("admin:fanout_run_settle", args=[run.pk]), [target.pk for target in run.targets.all()]
    asked = login(operator).post(path, {"verdict": "again", "target": ids})
    assert "Those who did get it will get it twice." in asked.content.decode()
    assert [value for key, value in asked.context["posted"] if key == "target"] == [str(pk) for pk in ids]
    assert run.targets.filter(status="unconfirmed").count() == 2
