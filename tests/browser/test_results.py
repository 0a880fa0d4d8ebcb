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
    fates: dict[str, dict[str, Any]] = {
        "Ann": {"status": "sent", "parts_sent": 1, "delivered_at": now, "read_at": now},
        "Ben": {"status": "sent", "parts_sent": 1, "delivered_at": now},
        "Cem": {"status": "failed", "error_kind": "recipient_gone", "error": "No such number"},
    }
    for n, (name, fields) in enumerate(fates.items()):
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
    expect(page.locator(".top-nav .count")).to_be_hidden()
    page.locator(".pill", has_text="All").click()
    expect(page.locator(".replies .card")).to_have_count(2)


def test_results_over_time_and_two_runs_side_by_side(operator: User, server: Server, page: Any) -> None:
    first = run_with_replies(operator)
    second = RunFactory.create(reminder=first.reminder, status="success", scheduled_for=timezone.now())
    RunTargetFactory.create(run=second, status="sent", settled_at=timezone.now(), recipient=person(operator, 9))
    page.goto(server.url(reverse("admin:fanout_run_changelist")))
    page.click("text=Results over time")
    expect(page.locator("#whole")).to_contain_text("3 sent")
    expect(page.locator("#whole")).to_contain_text("2 replied")
    assert_it_fits(page, "results")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.click("#accounts >> text=Events line")
    expect(page.locator("#days tbody tr").first).to_contain_text("3")
    page.click("text=26 weeks")
    expect(page.locator("#content")).to_contain_text("Account: Events line")
    page.goto(server.url(reverse("admin:fanout_run_change", args=[second.pk])))
    page.click("text=compare")
    expect(page.locator("#compared")).to_contain_text("-100.0")
    widths = {one.bounding_box()["width"] for one in page.locator(".columns > .card").all()}
    assert len(widths) == 1, "the same time is as long in both charts"
    assert_it_fits(page, "two runs")


def test_a_warning_before_it_hurts(operator: User, server: Server, page: Any) -> None:
    """Three of the people who got it opt out: the overview says so, and the account's page explains it."""
    now = timezone.now()
    account = AccountFactory.create(owner=operator, label="Events line", channel="sandbox")
    run = RunFactory.create(reminder__account=account, status="success", scheduled_for=now)
    for n in range(30):
        opted_out_at = now if n < 3 else None
        RunTargetFactory.create(run=run, status="sent", settled_at=now, opted_out_at=opted_out_at)
    page.goto(server.url())
    expect(page.locator(".needs")).to_contain_text("Opt-outs rise")
    page.click(".needs >> text=Events line")
    expect(page.locator(".account-head .problem")).to_contain_text("100 per 1,000 messages in the last seven days")
    expect(page.locator("#reputation")).to_contain_text("100.0 per 1,000 messages, 0.0 in the seven days before")
    page.click("#content >> text=Results over time")
    expect(page.locator("#whole")).to_contain_text("3 opted out")
