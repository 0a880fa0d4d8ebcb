"""A two-line reminder for a Cloud account, in a real browser: what Meta will do with it is shown before saving."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from accounts.channels.templates import Template
from accounts.models import MessageTemplate
from reminders.models import Reminder
from tests.browser.conftest import Server
from tests.factories import AccountFactory

NEWS = Template(
    "choir_news", "en", body="News from the choir:\n\n{{1}}\n\nReply STOP to get no more.", footer="Harbour choir"
)


def test_the_form_shows_what_meta_will_send(operator: User, server: Server, page: Any) -> None:
    config = {"phone_number_id": "10200", "business_account_id": "20400"}
    account = AccountFactory.create(
        owner=operator, label="Choir number", channel="cloud", config=config, templates_read_at=timezone.now()
    )
    MessageTemplate.objects.create(account=account, name=NEWS.name, language=NEWS.language, content=asdict(NEWS))
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Doors")
    page.select_option("#id_account", label="Choir number")
    page.fill("#id_paste", "address,name\n+60123456789,Ann Lee\n+60123456788,Bob")
    page.fill("#id_messages-0-text", "Doors open at nine.\nBring a friend.")
    shown = page.locator("#by-template")
    expect(shown).to_contain_text("2 of 2 people will not have written within 24 hours before it goes out.")
    expect(shown.locator(".problem").last).to_contain_text("part 1 has no template. Choose one for it.")
    expect(page.locator("#within")).to_have_text("To people who wrote within 24 hours")
    expect(page.locator("#review [data-unreached]")).to_contain_text("2 of 2 people get nothing")

    page.select_option("#id_messages-0-template_key", "choir_news:en")
    value = page.locator("#messages-0 .template-values input")
    expect(shown.locator(".preview .problem")).to_contain_text("Fill in {{1}} in the body.")
    value.fill("doors open at nine, {first_name}")
    expect(shown.locator(".bubble .words")).to_contain_text("doors open at nine, Ann")
    expect(shown.locator(".preview .problem")).to_have_count(0)
    expect(page.locator("#review [data-unreached]")).to_have_text("")
    # The whole value can be read while it is written.
    assert value.evaluate("input => input.scrollWidth <= input.clientWidth")

    page.click("[name=_draft]")
    expect(page.locator(".messagelist")).to_contain_text("kept as a draft")
    part = Reminder.objects.get().messages.get()
    assert part.template is not None
    assert part.template["values"] == {"body.1": "doors open at nine, {first_name}"}
    expect(page.locator("#messages-0 .template-values input")).to_have_value("doors open at nine, {first_name}")
