"""Actions on many rows: asking first with numbers, reasons for refusals, and the archive in lists."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import urljoin

import time_machine
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from fanout.admin.list_actions import reasons
from fanout.models import Run
from fanout.runs import corrections
from reminders.models import Recipient, ReminderTarget
from tests.admin.conftest import login
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, RunFactory


def test_many_reasons_are_cut_short():
    assert reasons(["a", "b", "a"]) == "2 × a 1 × b"
    assert reasons("abcdef").endswith("And 2 other reasons.")


YES = {"confirmed": "yes"}


def test_firing_many_says_how_many_and_what_went_out_already(operator):
    one, two = (
        ReminderFactory.create(owner=operator, account__owner=operator, title=title, targets=n)
        for title, n in (("Rent", 3), ("Water", 2))
    )
    RunFactory.create(reminder=one, status="success", targets={"sent": 1}, finished_at=timezone.now())
    Run.objects.update(created_at=timezone.now() - timedelta(minutes=1))
    client, path = login(operator), reverse("admin:reminders_reminder_changelist")
    data = {"action": "fire_selected", "_selected_action": [one.pk, two.pk]}
    asked = client.post(path, data).content.decode()
    assert "Fire 2 reminders now" in asked
    assert "5 groups in all." in asked
    assert "3 groups via " in asked
    assert "Sent in the last 24 hours, or going out now: 1 reminder." in asked
    assert "was sent now" in asked
    assert Run.objects.count() == 1
    answer = client.post(path, data | YES, follow=True)
    assert "Fired: 2 of 2. 5 groups queued." in [str(message) for message in answer.context["messages"]]
    assert Run.objects.filter(status="queued").count() == 2


def test_firing_many_says_who_is_left_out(operator):
    one, two = (ReminderFactory.create(owner=operator, account__owner=operator, targets=2) for _ in range(2))
    who = {"kind": "person", "address": "+4917612345678", "status": "opted_out"}
    ReminderTarget.objects.create(reminder=two, recipient=RecipientFactory.create(owner=operator, **who), position=9)
    data = {"action": "fire_selected", "_selected_action": [one.pk, two.pk]} | YES
    answer = login(operator).post(reverse("admin:reminders_reminder_changelist"), data, follow=True)
    said = [str(message) for message in answer.context["messages"]]
    assert said == ["Fired: 2 of 2. 4 recipients queued; 1 left out: 1 opted out."]


def test_reminders_outside_their_window_are_not_fired(operator):
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


def test_after_the_window_the_button_fires_at_the_next_opening(operator):
    hours = {"delivery_window_start_hour": 6, "delivery_window_end_hour": 18, "timezone": "UTC"}
    reminder = ReminderFactory.create(owner=operator, account__owner=operator, targets=1, **hours)
    with time_machine.travel(datetime(2026, 1, 5, 19, tzinfo=UTC), tick=False):
        client = login(operator)
        for page in ("changelist", "change"):
            args = [reminder.pk] if page == "change" else []
            html = client.get(reverse(f"admin:reminders_reminder_{page}", args=args)).content.decode()
            assert ">Fire when the window opens</button>" in html
            assert ">Fire now</button>" not in html
        url = reverse("admin:reminders_reminder_fire", args=[reminder.pk])
        assert "Fire when the window opens" in client.post(url, {"when": "opening"}).content.decode()
        client.post(url, {"when": "opening"} | YES)
    run = Run.objects.get()
    assert (run.status, run.scheduled_for) == ("queued", datetime(2026, 1, 6, 6, tzinfo=UTC))


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


def test_unpaired_numbers_are_not_reactivated(operator):
    number = AccountFactory.create(owner=operator, channel="whatsapp", status="unpaired", address="+60123456789")
    data = {"action": "reactivate", "_selected_action": [number.pk]}
    asked = login(operator).post(reverse("admin:accounts_account_changelist"), data)
    assert asked.context["question"].button == ""
    assert "<h1>Nothing to reactivate</h1>" in asked.content.decode()
    assert reverse("admin:accounts_account_pair", args=[number.pk]) in asked.content.decode()
    assert "1 selected account is not connected to its phone: pair instead of reactivating." in asked.content.decode()


def test_a_button_asks_where_no_script_did(operator):
    """Fire, and Cancel: nothing brings back what they do."""
    reminder = ReminderFactory.create(owner=operator, account__owner=operator, title="Rent", targets=3)
    client, fire = login(operator), reverse("admin:reminders_reminder_fire", args=[reminder.pk])
    page = reverse("admin:reminders_reminder_change", args=[reminder.pk])
    asked = client.post(fire, {"x": "kept"}, headers={"Referer": f"http://testserver{page}"})
    assert "Send “Rent” to 3 groups now?" in asked.content.decode()
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
