"""What is archived sends nothing, is hidden, and comes back when somebody restores it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import IntegrityError, transaction

from accounts.models import Account
from fanout.models import Run, TrailEntry
from fanout.runs import controls, corrections, firing
from reminders import targets
from reminders.imports import Entry
from reminders.models import Recipient, Reminder
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, RunFactory

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 6, 12, tzinfo=UTC)


def test_an_archived_reminder_never_fires():
    reminder = ReminderFactory.create(targets=1, next_fire_at=NOON)
    assert corrections.archive_reminder(reminder, reminder.owner, NOON).ok
    assert firing.fire_due(NOON) == []
    reminder.refresh_from_db()
    assert controls.fire(reminder, reminder.owner, NOON).text == "This reminder is archived: restore it first."
    assert not Run.objects.exists()
    with pytest.raises(IntegrityError), transaction.atomic():
        Reminder.objects.update(enabled=True)
    assert corrections.restore_reminder(reminder, reminder.owner, NOON).ok
    reminder.refresh_from_db()
    assert (reminder.archived, reminder.enabled) == (False, False)
    assert list(TrailEntry.objects.order_by("pk").values_list("verb", flat=True)) == ["archived", "restored"]


def test_a_reminder_that_is_going_out_is_not_archived():
    run = RunFactory.create(status="running", targets={"pending": 1})
    answer = corrections.archive_reminder(run.reminder, None, NOON)
    assert "is going out now" in answer.text


def test_an_archived_account_is_never_active():
    account = AccountFactory.create(label="Line")
    assert corrections.archive_account(account, account.owner, NOON).ok
    account.refresh_from_db()
    assert (account.archived, account.status) == (True, "paused")
    assert controls.reactivate(account, account.owner, NOON).text == "Line is archived: restore it first."
    with pytest.raises(IntegrityError), transaction.atomic():
        Account.objects.update(status="active")
    assert corrections.restore_account(account, account.owner, NOON).ok
    account.refresh_from_db()
    assert controls.reactivate(account, account.owner, NOON).ok


def test_an_archived_recipient_leaves_its_reminders_and_comes_back_when_it_is_added_again():
    reminder = ReminderFactory.create(targets=2)
    gone, stays = (target.recipient for target in reminder.targets.all())
    Recipient.objects.update(tags=["choir"])
    RunFactory.create(reminder=reminder, status="success", targets={"sent": 1})
    assert corrections.archive_recipient(gone, reminder.owner, NOON).ok
    assert [target.recipient for target in reminder.targets.all()] == [stays]
    other = ReminderFactory.create(account=reminder.account, owner=reminder.owner)
    assert targets.add_tagged(other, other.owner, "choir") == 1
    listed = Entry(1, gone.kind, gone.address, "", [], {})
    assert targets.add_listed(other, other.owner, [listed]) == 1
    gone.refresh_from_db()
    assert not gone.archived


def test_an_import_brings_back_whom_it_names():
    recipient = RecipientFactory.create(archived=True)
    assert targets.store_recipients([Entry(1, recipient.kind, recipient.address, "", [], {})], recipient.owner) == 0
    recipient.refresh_from_db()
    assert not recipient.archived


def test_an_account_in_use_is_not_archived():
    reminder = ReminderFactory.create(account__label="Line")
    further = AccountFactory.create(label="Second")
    reminder.set_further_senders([further])
    for account in (reminder.account, further):
        assert "is used by 1 reminder that is switched on" in corrections.archive_account(account, None, NOON).text
    Reminder.objects.update(enabled=False)
    run = RunFactory.create(reminder=reminder, status="waiting", targets={"pending": 1})
    assert "is sending for a run" in corrections.archive_account(run.account, None, NOON).text
