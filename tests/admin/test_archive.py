"""The archive in the operators' lists."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from fanout.runs import corrections
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.factories import RecipientFactory, ReminderFactory, RunFactory


def follow(client: Client, address: str, words: str) -> str:
    """The page behind the link of these words on the page at this address."""
    page = client.get(address).content.decode()
    links = re.findall(r'<a\s+href="([^"]*)"[^>]*>([^<]*)', page)
    (target,) = [link for link, text in links if text.strip() == words]
    return client.get(urljoin(address, unescape(target))).content.decode()


def test_lists_and_choices_hide_the_archive(boss):
    reminder = ReminderFactory.create(owner=boss, account__owner=boss, title="Rent", account__label="Old line")
    RunFactory.create(reminder=reminder, status="success", targets={"sent": 1})
    client = login(boss)
    listing = reverse("admin:reminders_reminder_changelist")
    assert "Rent" in client.get(listing).content.decode()
    client.post(listing, {"action": "archive", "_selected_action": [reminder.pk]})
    corrections.archive_account(reminder.account, boss, timezone.now())
    assert "Rent" not in client.get(listing).content.decode()
    archive = follow(client, listing, "Archived")
    assert "Rent" in archive
    assert "Restore" in archive
    accounts = reverse("admin:accounts_account_changelist")
    assert "Old line" not in client.get(accounts).content.decode()
    assert "Old line" in follow(client, accounts, "Archived")
    assert "Old line" not in client.get(reverse("admin:reminders_reminder_add")).content.decode()


def test_a_reminder_that_has_fired_offers_no_delete(boss):
    fired, fresh = ReminderFactory.create_batch(2, owner=boss)
    RunFactory.create(reminder=fired, status="success", targets={"sent": 1})
    client = login(boss)
    assert client.get(reverse("admin:reminders_reminder_delete", args=[fired.pk])).status_code == 403
    assert client.get(reverse("admin:reminders_reminder_delete", args=[fresh.pk])).status_code == 200


def test_a_recipient_is_archived_in_the_list_and_restored(operator):
    recipient = RecipientFactory.create(owner=operator, name="Choir")
    client, listing = login(operator), reverse("admin:reminders_recipient_changelist")
    client.post(listing, {"action": "archive", "_selected_action": [recipient.pk]})
    assert "Choir" not in client.get(listing).content.decode()
    assert "Choir" in client.get(f"{listing}?archive=yes").content.decode()
    assert client.get(reverse("admin:reminders_recipient_find"), {"q": "Choir"}).json() == {"recipients": []}
    client.post(f"{listing}?archive=yes", {"action": "restore", "_selected_action": [recipient.pk]})
    assert "Choir" in client.get(listing).content.decode()


def test_of_many_recipients_those_with_deliveries_are_archived_instead_of_deleted(operator):
    kept = RunFactory.create(reminder__owner=operator, targets={"sent": 1}).targets.get().recipient
    Recipient.objects.update(owner=operator)
    fresh = RecipientFactory.create(owner=operator)
    client, listing = login(operator), reverse("admin:reminders_recipient_changelist")
    data = {"action": "remove", "_selected_action": [kept.pk, fresh.pk]}
    assert "1 recipient with deliveries will be archived" in client.post(listing, data).content.decode()
    assert Recipient.objects.filter(archived=False).count() == 2
    client.post(listing, data | {"confirmed": "yes"})
    assert list(Recipient.objects.values_list("pk", "archived")) == [(kept.pk, True)]


def test_a_recipient_with_deliveries_offers_no_delete(operator):
    run = RunFactory.create(reminder__owner=operator, targets={"sent": 1})
    recipient = run.targets.get().recipient
    Recipient.objects.update(owner=operator)
    fresh = RecipientFactory.create(owner=operator)
    client = login(operator)
    assert client.get(reverse("admin:reminders_recipient_delete", args=[recipient.pk])).status_code == 403
    assert client.get(reverse("admin:reminders_recipient_delete", args=[fresh.pk])).status_code == 200


def test_an_archived_reminder_offers_no_firing(boss):
    reminder = ReminderFactory.create(owner=boss, account__owner=boss, targets=1)
    client, page = login(boss), reverse("admin:reminders_reminder_change", args=[reminder.pk])
    assert "Fire now" in client.get(page).content.decode()
    corrections.archive_reminder(reminder, boss, timezone.now())
    assert "Fire now" not in client.get(page).content.decode()
