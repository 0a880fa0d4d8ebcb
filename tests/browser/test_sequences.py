"""Follow-ups from the form to the run that goes to those who have not replied."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from fanout.models import Run, RunTarget
from fanout.runs import sequences
from reminders.models import Recipient, Reminder
from tests.browser.conftest import Server
from tests.factories import AccountFactory


def test_follow_ups_are_written_and_go_to_those_who_have_not_replied(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Community line")
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Can you help?")
    page.fill("#id_messages-0-text", "On Saturday?")
    page.fill("#id_paste", "Ann, +60 12 345 6789\nBen, +60 12 345 6780")
    page.fill("#id_delivery_window_start_hour", "0")
    page.fill("#id_delivery_window_end_hour", "24")
    page.click("summary:has-text('Follow-up and sharing')")
    page.fill("#id_follow_up_days", "2")
    page.click("summary:has-text('Follow-ups: sent some days later')")
    page.click("#follow_up_parts-group [data-add=text]")
    page.fill("#id_follow_up_parts-0-text", "We still need hands.")
    expect(page.locator("[data-review]")).to_contain_text("follow-up after 2 days to those who have not replied")
    page.click("input[name=_draft]")
    assert Reminder.objects.get().follow_up_parts.get().text == "We still need hands."

    page.click("text=Fire now")
    expect(page.locator(".messagelist")).to_contain_text("Fired: 2 people queued.")
    run = Run.objects.get()
    expect(page.locator("#live")).to_contain_text("to those who have not replied")
    page.click("text=Calendar")
    day = run.scheduled_for + timedelta(days=2)
    page.goto(server.url(f"{reverse('admin:calendar')}?day={timezone.localtime(day):%Y-%m-%d}"))
    expect(page.locator("li.entry", has_text="Can you help? (follow-up 1)").first).to_contain_text("without a reply")

    # Two days later: both got it, and one has replied.
    now = timezone.now() + timedelta(days=2)
    RunTarget.objects.update(status="sent", claimed_at=run.scheduled_for, settled_at=run.scheduled_for)
    Recipient.objects.filter(name="Ann").update(replied_at=run.scheduled_for + timedelta(hours=1))
    (later,) = sequences.fire_follow_ups(now)
    page.goto(server.url(reverse("admin:fanout_run_change", args=[later.pk])))
    expect(page.locator("#live")).to_contain_text(f"follow-up 1 of run {run.pk}")
    assert list(later.targets.values_list("recipient__name", flat=True)) == ["Ben"]
