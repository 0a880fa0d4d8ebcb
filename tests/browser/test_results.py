"""What came back, clicked through: from a run's numbers to a person, and the replies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from fanout.models import Run
from reminders.models import Recipient, Suppression
from tests.browser.conftest import Server, assert_it_fits
from tests.factories import AccountFactory, RunFactory, RunTargetFactory
from tests.inbound.people import person, say


def run_with_replies(operator: User) -> Run:
    """Three people got it: Ann read and replied, Ben asks to be left alone, Cem could not be reached."""
    now = timezone.now()
    account = AccountFactory.create(owner=operator, label="Events line", channel="sandbox")
    run: Run = RunFactory.create(
        reminder__account=account, reminder__title="Market", status="partial", first_attempt_at=now, kinds=["person"]
    )
    common = {"run": run, "claimed_at": now - timedelta(minutes=9), "settled_at": now - timedelta(minutes=9)}
    for n, (name, fields) in enumerate(
        {
            "Ann": {"status": "sent", "parts_sent": 1, "delivered_at": now, "read_at": now},
            "Ben": {"status": "sent", "parts_sent": 1, "delivered_at": now},
            "Cem": {"status": "failed", "error_kind": "recipient_gone", "error": "No such number"},
        }.items()
    ):
        RunTargetFactory.create(recipient=person(operator, n, name=name), **common, **fields)
    say(account, 0, now, "Yes, I will be there")
    say(account, 1, now, "I moved away, this is not for me")
    return run


def test_from_a_number_of_the_funnel_to_the_person(operator: User, server: Server, page: Any) -> None:
    run = run_with_replies(operator)
    page.goto(server.url(reverse("admin:fanout_run_change", args=[run.pk])))
    page.click(".funnel >> text=2 replied")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    with page.expect_download() as download:
        page.click("text=Export as CSV")
    assert download.value.path().read_text().count("\n") == 3
    page.go_back()
    page.click(".groups a")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    page.click("#result_list >> text=Cem")
    expect(page.locator("#timeline")).to_contain_text("No such number")
    page.goto(server.url(reverse("admin:reminders_recipient_change", args=[Recipient.objects.get(name="Ann").pk])))
    expect(page.locator("#timeline .theirs")).to_contain_text("Yes, I will be there")
    expect(page.locator("#timeline .ours")).to_contain_text("read")
    assert_it_fits(page, "the person's page")


def test_replies_are_dealt_with(operator: User, server: Server, page: Any) -> None:
    run_with_replies(operator)
    page.goto(server.url())
    expect(page.locator(".top-nav .count")).to_have_text("2")
    page.click(".top-nav >> text=Replies")
    expect(page.locator(".replies .card")).to_have_count(2)
    expect(page.locator(".replies .card").first).to_contain_text("I moved away")
    assert_it_fits(page, "replies")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator(".replies .card", has_text="I moved away").get_by_text("Opt out").click()
    expect(page.locator(".messagelist")).to_contain_text("gets no messages any more")
    assert Suppression.objects.get().source == "operator"
    page.locator(".replies .card", has_text="I will be there").get_by_text("Converted").click()
    expect(page.locator(".replies")).to_contain_text("Nothing waits for you.")
    expect(page.locator(".top-nav .count")).to_have_count(0)
    page.locator(".pill", has_text="All").click()
    expect(page.locator(".replies .card")).to_have_count(2)
