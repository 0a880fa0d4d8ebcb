"""A reminder that is shared may hold what is not, or no longer is: an account, a file, recipients."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from accounts import access
from fanout.models import Run
from fanout.runs import controls, firing, self_test
from reminders.models import MediaFile, Reminder, ReminderMessage
from tests.admin.conftest import login, member
from tests.factories import AccountFactory, MediaFileFactory, RecipientFactory, ReminderFactory, RunFactory


@pytest.fixture
def jonas(team: Any) -> Any:
    user = member("jonas", "operators")
    user.groups.add(team)
    return user


@pytest.fixture
def reminder(operator: Any, team: Any) -> Reminder:
    account = AccountFactory.create(owner=operator, team=team)
    made = ReminderFactory.create(owner=operator, team=team, account=account, targets=2)
    made.recipients.update(owner=operator, team=team)
    media = MediaFileFactory.create(owner=operator, team=team)
    ReminderMessage.objects.create(reminder=made, position=5, kind="image", media=media)
    return made


def take_back(reminder: Reminder, what: str) -> None:
    if what == "account":
        type(reminder.account).objects.update(team=None)
    elif what == "senders":
        reminder.set_further_senders([AccountFactory.create(owner=reminder.owner)])
    elif what == "media":
        MediaFile.objects.update(team=None)
    else:
        reminder.recipients.update(team=None)
    reminder.refresh_from_db()


@pytest.mark.parametrize("what", ["account", "senders", "media", "recipients"])
def test_objects_no_longer_shared_are_not_used(reminder, jonas, what):
    assert access.may_act(jonas, reminder)
    take_back(reminder, what)
    now = timezone.now()
    answers = [controls.fire(reminder, jonas, now), self_test.send_test(reminder, "+4917612345678", jonas, now)]
    login(jonas).post(reverse("admin:reminders_reminder_duplicate", args=[reminder.pk]))
    assert [answer.ok for answer in answers] == [False, False]
    assert all("shared with you" in answer.text for answer in answers)
    assert not Run.objects.exists()
    assert Reminder.objects.count() == 1


def test_shared_objects_are_used(reminder, jonas):
    login(jonas).post(reverse("admin:reminders_reminder_duplicate", args=[reminder.pk]))
    assert controls.fire(reminder, jonas, timezone.now()).run is not None
    assert Reminder.objects.filter(owner=jonas).exists()


def test_the_owner_may_use_what_is_their_own(reminder, operator):
    take_back(reminder, "account")
    assert controls.fire(reminder, operator, timezone.now()).run is not None


def test_a_schedule_does_not_outlive_the_right_to_the_account(reminder, operator, colleague):
    type(reminder.account).objects.update(owner=colleague, team=None)
    reminder.refresh_from_db()
    run = firing.make_run(reminder, timezone.now(), timezone.now())
    assert run is not None
    assert run.status == Run.Status.SKIPPED
    assert "Its owner may not send this any more. You may not use" in run.error_summary


def test_a_shared_account_does_not_tell_of_private_runs(operator, team, jonas):
    account = AccountFactory.create(owner=operator, team=team)
    RunFactory.create(reminder__owner=operator, reminder__account=account, title="Redundancies")
    RunFactory.create(reminder__owner=operator, reminder__account=account, title="Picnic", team=team)
    page = login(jonas).get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()
    assert "Picnic" in page
    assert "Redundancies" not in page


def test_a_run_does_not_tell_of_private_ones_of_the_same_reminder(operator, team, jonas):
    reminder = ReminderFactory.create(owner=operator, team=team, account__owner=operator)
    shared = RunFactory.create(reminder=reminder, team=team, title="Picnic")
    RunFactory.create(reminder=reminder, team=None, title="Redundancies")
    page = login(jonas).get(reverse("admin:fanout_run_change", args=[shared.pk])).content.decode()
    assert "Picnic" in page
    assert "Redundancies" not in page


def test_recipients_are_counted_not_named(reminder, jonas):
    RecipientFactory.create(owner=reminder.owner, name="Secret circle")
    take_back(reminder, "recipients")
    assert controls.fire(reminder, jonas, timezone.now()).text.startswith("2 recipients are not shared with you")
