"""The calendar: a look at the week, a reminder in a free time, a conflict, and the address for calendar programs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.request import urlopen
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from accounts.models import Profile
from reminders.models import Reminder
from tests.browser.conftest import Server, assert_it_fits
from tests.factories import AccountFactory, DailyLimitFactory, RecipientFactory, ReminderFactory

ZONE = ZoneInfo("Asia/Kuala_Lumpur")


def test_a_free_time_becomes_a_reminder_and_a_conflict_is_named(operator: User, server: Server, page: Any) -> None:
    Profile.objects.create(user=operator, timezone=ZONE.key)
    account = AccountFactory.create(owner=operator, label="Community line", timezone=ZONE.key)
    DailyLimitFactory.create(account=account, limit=5)
    RecipientFactory.create_batch(3, owner=operator, tags=["north"])
    day = (timezone.now().astimezone(ZONE) + timedelta(days=8)).date()
    ten = datetime.combine(day, datetime.min.time(), ZONE).replace(hour=10)
    hours = {"delivery_window_start_hour": 6, "delivery_window_end_hour": 18, "timezone": ZONE.key}
    ReminderFactory.create(account=account, title="Market", fire_at=ten, next_fire_at=ten, targets=4, **hours)

    page.goto(server.url(f"{reverse('admin:calendar')}?day={day}"))
    cell = page.locator("td", has_text="Market")
    expect(cell).to_contain_text("10:00")
    expect(cell).to_contain_text("4 planned, 1 free")
    assert_it_fits(page, reverse("admin:calendar"))
    # On a tablet nothing is hidden beside the screen.
    page.set_viewport_size({"width": 820, "height": 1180})
    assert page.locator(".calendar-scroll").evaluate("box => box.scrollWidth <= box.clientWidth")
    page.set_viewport_size({"width": 1280, "height": 900})
    # A free time of that day starts a reminder through this account.
    cell.locator("a.free").last.click()
    expect(page.locator("#id_account option:checked")).to_have_text("Community line")
    expect(page.locator("#id_fire_at")).to_have_value(f"{day}T10:05")
    page.fill("#id_title", "Choir")
    page.fill("#id_messages-0-text", "At 7.")
    page.fill("#id_tag", "north")
    expect(page.locator("[data-forecast]")).to_contain_text("3 groups")
    page.click("input[name=_save]")
    assert Reminder.objects.get(title="Choir").enabled

    # It does not fit any more: the calendar says so in words.
    page.click("text=Calendar")
    page.goto(server.url(f"{reverse('admin:calendar')}?day={day}&view=month"))
    expect(page.locator("li.entry.bad", has_text="Choir").first).to_contain_text("Conflict:")
    expect(page.locator(".capacity.full").first).to_contain_text("Full: Community line")

    # A program reads the same under a secret address, until it is revoked.
    page.click("text=Calendar address")
    page.click("text=Make an address")
    address = page.locator("#calendar-address").input_value()
    with urlopen(address) as answer:
        text = answer.read().decode()
    assert "SUMMARY:Market (Community line)" in text
    page.click("text=Revoke it")
    expect(page.locator(".messagelist")).to_contain_text("Revoked")
    expect(page.locator("text=You have no address.")).to_be_visible()
