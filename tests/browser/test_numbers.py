"""Numbers that stay true while one looks at them: in a real browser, without a reload."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from fanout.models import Run
from tests.browser.conftest import PASSWORD, Server, log_in
from tests.factories import RunFactory


def test_the_overview_refreshes_itself_when_a_status_changes(operator: User, server: Server, page: Any) -> None:
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        title="Town hall",
        status="running",
        targets={"sent": 2, "pending": 2},
    )
    page.goto(server.url())
    expect(page.locator("#live-overview")).to_contain_text("Nothing at the moment.")
    Run.objects.filter(pk=run.pk).update(status="paused", pause_reason="window_closed", finished_at=timezone.now())
    expect(page.locator(".needs")).to_contain_text("Town hall")


def test_it_goes_on_after_a_click_and_keeps_what_was_opened(operator: User, server: Server, page: Any) -> None:
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        title="Town hall",
        status="running",
        targets={"sent": 2, "pending": 2},
    )
    page.goto(server.url())
    page.get_by_text("Last signs of life").click()
    Run.objects.filter(pk=run.pk).update(status="paused", pause_reason="window_closed", finished_at=timezone.now())
    expect(page.locator(".needs")).to_contain_text("Town hall")
    expect(page.locator("details[open] > summary", has_text="Last signs of life")).to_be_focused()


def test_times_tick_and_what_comes_next_is_never_past(operator: User, server: Server, page: Any) -> None:
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="success",
        scheduled_for=timezone.now() - timedelta(seconds=30),
        targets={"sent": 1},
    )
    page.goto(server.url(reverse("admin:fanout_run_change", args=[run.pk])))
    ago = page.locator(".facts time [data-away]").first
    before = ago.inner_text()
    expect(ago).not_to_have_text(before)
    page.evaluate(
        """() => {
          const time = document.createElement("time");
          time.dateTime = new Date(Date.now() - 60000).toISOString();
          time.innerHTML = '<span data-away="ahead" id="next">in 2 s</span>';
          document.body.append(time);
        }"""
    )
    expect(page.locator("#next")).to_have_text("now")


def test_the_clock_is_guessed_from_the_browser(operator: User, server: Server, chromium: Any) -> None:
    page = chromium.new_context(timezone_id="Asia/Kuala_Lumpur").new_page()
    log_in(page, server, "mei", PASSWORD)
    expect(page.locator(".my-zone")).to_have_text("Times in Asia/Kuala_Lumpur")


def test_numbers_shown_twice_on_a_page_agree_between_two_fetches(operator: User, server: Server, page: Any) -> None:
    """Counts come by the stream every second, the rest of the page now and then: no number may wait for that."""
    now = timezone.now()
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        reminder__account__channel="sandbox",
        status="running",
        first_attempt_at=now,
        targets={"sent": 3, "pending": 40},
    )
    run.targets.filter(status="sent").update(settled_at=now)
    page.goto(server.url(reverse("admin:fanout_run_change", args=[run.pk])))
    expect(page.locator(".funnel li").first).to_contain_text("3 sent")
    page.route("**/live/", lambda route: None)  # which never answers
    done = run.targets.filter(status="pending").values_list("pk", flat=True)[:10]
    run.targets.filter(pk__in=list(done)).update(status="sent", settled_at=timezone.now())
    expect(page.locator(".figures-row [data-count=sent]")).to_have_text("13")
    expect(page.locator(".funnel li").first).to_contain_text("13 sent")
    expect(page.locator(".head .forecast")).to_contain_text("30 groups at")


def test_a_list_follows_its_runs(operator: User, server: Server, page: Any) -> None:
    """Rate and end too, not only the counts."""
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        reminder__account__max_send_per_minute=1,
        status="running",
        targets={"pending": 50},
    )
    page.goto(server.url(reverse("admin:fanout_run_changelist")))
    done = page.locator(".field-expected time")
    before = done.get_attribute("datetime")
    run.targets.exclude(pk=run.targets.order_by("pk")[0].pk).update(status="sent", settled_at=timezone.now())
    expect(done).not_to_have_attribute("datetime", before)
