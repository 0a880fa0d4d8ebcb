"""Placeholders while typing, and erasing, in a real browser."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from reminders.models import Recipient
from tests.browser.conftest import Server
from tests.factories import AccountFactory, RecipientFactory


def test_the_form_shows_how_it_reads_for_some_recipients(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Water")
    page.select_option("#id_account", label="Community line")
    page.fill("#id_paste", "address,name,flat\n+60123456789,Ann Lee,7\n+60123456788,Bob,8")
    page.fill("#id_messages-0-text", "Flat {falt}")
    expect(page.locator("#examples .problem")).to_contain_text("there is no {falt}")
    page.fill("#id_messages-0-text", "Hi {first_name}, <b>flat</b> {flat}")
    expect(page.locator("#examples .example")).to_have_count(2)
    expect(page.locator("#examples .example").first).to_contain_text("Hi Ann, <b>flat</b> 7")
    page.fill("#id_messages-0-text", "Hi all")
    expect(page.locator("#examples")).to_be_empty()


def test_erasing_asks_first(operator: User, server: Server, page: Any) -> None:
    RecipientFactory.create(owner=operator, kind="mailbox", address="ann@example.com", name="Ann")
    page.goto(server.url(reverse("admin:reminders_recipient_changelist")))
    page.check(".action-select")
    page.select_option("select[name=action]", "erase_selected")
    page.click("button[name=index]")
    expect(page.locator("#content")).to_contain_text("This cannot be undone.")
    page.click("text=Erase 1 recipient")
    expect(page.locator(".messagelist")).to_contain_text("Erased: 1 of 1.")
    assert not Recipient.objects.exists()
