"""An operator's day, clicked through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from accounts.models import Account
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Driver, Event, Notification, Run, RunTarget
from fanout.plans.forecast import forecast_run
from reminders.models import Reminder
from tests.browser.conftest import Complaints, Server, assert_it_fits, open_live, wait_for
from tests.crier_processes import clusters
from tests.factories import AccountFactory, DailyLimitFactory, NotificationFactory, ReminderFactory, RunFactory
from tests.sandbox_server import SandboxServer

GROUPS = 60
SLOWER = 90  # messages a minute


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[SandboxServer]:
    with SandboxServer(tmp_path, {"*": {"latency_ms": [20, 40]}}) as server:
        yield server


@pytest.fixture
def crier(tmp_path: Path, transactional_db: None) -> Iterator[None]:
    # Its files are those of the test, below the same folder.
    with clusters(tmp_path / "log", "drivers", DRIVER_SLOTS="1", CRIER_VAR=str(tmp_path)) as children:
        from fanout.ops.tasks import enqueue_driver

        enqueue_driver()
        try:
            wait_for(Driver.objects.exists)
        except AssertionError:
            raise AssertionError(children["drivers"].tail(30)) from None
        yield


@pytest.mark.processes
def test_create_fire_watch_window_closes_resume_success(
    operator: User, provider: SandboxServer, crier: None, server: Server, page: Any
) -> None:
    AccountFactory.create(
        owner=operator, label="Community line", max_send_per_minute=600, config={"url": provider.url, "account": "a"}
    )
    # Create, with a forecast while typing.
    page.goto(server.url(reverse("admin:reminders_reminder_add")))
    page.fill("#id_title", "Town hall tonight")
    page.select_option("#id_account", label="Community line")
    page.fill("#id_delivery_window_start_hour", "0")
    page.fill("#id_delivery_window_end_hour", "24")
    page.fill("#id_paste", "\n".join(f"Group {n}, 1203630{n:011d}@g.us" for n in range(GROUPS)))
    page.fill("#id_messages-0-text", "At 8, see you there!")
    expect(page.locator("[data-forecast]")).to_contain_text(f"{GROUPS} groups at 600/min: done about")
    expect(page.locator("#preview .bubble")).to_contain_text("At 8, see you there!")
    # Without a time it is kept as a draft, and fired by hand.
    page.click("input[name=_draft]")
    expect(page.locator(".messagelist")).to_contain_text(f"{GROUPS} targets added")
    # Fire and watch it go, without a reload.
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("text=Fire now")
    expect(page.locator(".messagelist")).to_contain_text(f"Fired: {GROUPS} groups queued.")
    run = Run.objects.get()
    wait_for(lambda: RunTarget.objects.filter(run=run, status="sent").count() > 5)
    expect(page.locator(".figures-row [data-count=sent]")).not_to_have_text("0")
    # The window closes in the middle of it.
    Run.objects.filter(pk=run.pk).update(window_closes_at=timezone.now() + timedelta(seconds=1))
    wake_lanes([run.account_id], timezone.now())
    expect(page.locator("#toasts")).to_contain_text("Reminder paused")
    expect(page.locator("#toasts")).to_contain_text("Resume from the Activity tab.")
    expect(page.locator("#toasts")).to_contain_text("Town hall tonight: delivery window closed.")
    expect(page.locator(".toast button", has_text="Resume")).to_be_visible()
    page.click(".toast .close")
    expect(page.locator(".toast")).to_have_count(0)
    expect(page.locator("#live .head .badge").first).to_have_text("Paused")
    # From the Activity tab, in bulk, at a pace at which the end is far enough away to be right or wrong about.
    Account.objects.update(max_send_per_minute=SLOWER, send_burst=1)
    page.click("text=Activity")
    page.click(".pill.warn")
    expect(page.locator("#result_list .badge")).to_have_text(["Paused"])
    page.check("#action-toggle")
    page.select_option("select[name=action]", "resume")
    left, sent = Run.objects.get().pending, len(provider.book().deliveries())
    resumed_at, takes = timezone.now(), left * 60 / SLOWER
    page.click("button[name=index]")
    expect(page.locator(".messagelist")).to_contain_text("Resumed: 1 of 1. Done about")
    expected = forecast_run(Run.objects.get(), timezone.now()).ends_at
    assert expected is not None
    said = re.search(r"Done about (\d\d):(\d\d)", page.locator(".messagelist").inner_text())
    assert said is not None
    assert abs(minutes_apart(expected, int(said[1]) * 60 + int(said[2]))) <= 1
    page.locator(".pill", has_text="All").click()
    shown = datetime.fromisoformat(page.locator(".field-expected time").get_attribute("datetime"))
    assert abs((shown - expected).total_seconds()) < takes / 2
    assert takes / 2 < (shown - resumed_at).total_seconds() < 3 * takes
    sent_slowly, seconds = len(provider.book().deliveries()) - sent, (timezone.now() - resumed_at).total_seconds()
    assert sent_slowly <= 2 + seconds * SLOWER / 60, "the pace was not what the forecast knows"
    # The rest of it quickly.
    call_command("tune", "Community line", "--set", "max_send_per_minute=3000", stdout=StringIO())
    page.goto(server.url(reverse("admin:fanout_run_change", args=[run.pk])))
    expect(page.locator("#live .head .badge").first).to_have_text("Success")
    deliveries = [delivery.to for delivery in provider.book().deliveries()]
    assert len(deliveries) == len(set(deliveries)) == GROUPS
    assert Event.objects.filter(run=run, verb="resumed", actor=operator).exists()


def minutes_apart(at: datetime, minute_of_day: int) -> int:
    """By the operator's clock, also around midnight."""
    local = at.astimezone(timezone.get_default_timezone())
    return (local.hour * 60 + local.minute - minute_of_day + 720) % 1440 - 720


def test_the_bell_rings_and_a_reconnect_loses_nothing(operator: User, server: Server, page: Any) -> None:
    run = RunFactory.create(
        reminder__owner=operator, reminder__account__owner=operator, status="running", targets={"pending": 2}
    )
    open_live(page, server.url(reverse("admin:fanout_run_changelist")))
    NotificationFactory.create(user=operator, run=run, title="Reminder paused", body="One", level="warning")
    expect(page.locator(".toast")).to_have_count(1)
    expect(page.locator("#bell .count")).to_have_text("1")
    # Away, and back.
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    NotificationFactory.create(user=operator, run=run, title="Reminder failed", body="Two", level="warning")
    page.context.set_offline(False)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#toasts")).to_contain_text("Reminder failed")
    # History, by keyboard.
    page.locator("#bell summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".bell-list")).to_contain_text("Reminder failed")
    # Looking is not reading.
    expect(page.locator("#bell .count")).to_have_text("2")
    # The click leads to a page that the server makes before it hears that the notification was read.
    unheard = {"unread": 1, "shown": "1"}
    page.route(f"**{reverse('admin:bell_read')}", lambda route: route.fulfill(json=unheard), times=1)
    page.click(".bell-list >> text=Reminder paused")
    page.wait_for_url("**/fanout/run/*/change/")
    expect(page.locator("#bell .count")).to_have_text("1")
    page.click("#bell summary")
    page.click("text=Mark all as read")
    expect(page.locator("#bell .count")).to_be_hidden()
    assert not Notification.objects.filter(read_at=None).exists()


def test_a_live_page_that_was_refused_tries_again(
    operator: User, server: Server, page: Any, complaints: Complaints
) -> None:
    answers = [
        {"status": 503, "body": "busy"},
        {"status": 200, "content_type": "text/event-stream", "body": "event: full\ndata: {}\n\n"},
    ]
    streams: list[Any] = []

    def answer(route: Any) -> None:
        streams.append(route)
        if len(streams) <= len(answers):
            route.fulfill(**answers[len(streams) - 1])
        else:
            route.continue_()

    def a_minute_later() -> int:
        page.clock.fast_forward(61_000)
        page.wait_for_timeout(200)
        return len(streams)

    page.clock.install()
    page.route("**/admin/live/**", answer)
    page.goto(server.url(reverse("admin:fanout_run_changelist")))
    wait_for(lambda: a_minute_later() == 3)
    NotificationFactory.create(user=operator, title="Reminder paused", body="One", level="warning")
    expect(page.locator(".toast")).to_have_count(1)
    assert ["503" in complaint for complaint in complaints] == [True]
    complaints.clear()


def closed_now() -> dict[str, int]:
    """Hours of a window that is not open now, nor within an hour."""
    start = timezone.now().hour + 2
    start = start if start < 24 else 10
    return {"window_start_hour": start, "window_end_hour": start + 1}


def test_outside_its_window_a_run_is_planned_from_its_toast_and_kept_paused_after_all(
    operator: User, server: Server, page: Any
) -> None:
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="paused",
        pause_reason="window_closed",
        targets={"sent": 2, "pending": 2},
        window_closes_at=timezone.now() - timedelta(days=1),
        **closed_now(),
    )
    open_live(page, server.url(f"{reverse('admin:fanout_run_changelist')}?status=paused"))
    other = {"status": "paused", "pause_reason": "operator", "targets": {"pending": 1}}
    RunFactory.create(reminder=run.reminder, scheduled_for=run.scheduled_for - timedelta(hours=1), **other)
    NotificationFactory.create(user=operator, run=run, title="Reminder paused", body="One", level="warning")
    # The list fetched itself anew, and its ticks still work.
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    page.check("#action-toggle")
    expect(page.locator(".action-counter")).to_have_text("2 of 2 selected")
    page.uncheck("#action-toggle")
    page.locator(".toast button", has_text="Resume when the window opens").click()
    expect(page.locator(".messagelist")).to_contain_text("The run goes on")
    expect(page.locator("#result_list")).to_contain_text("resumes")
    run.refresh_from_db()
    assert run.resume_at == run.window.next_opening(timezone.now())
    page.locator("#result_list button", has_text="Keep paused").click()
    expect(page.locator(".messagelist")).to_contain_text("The run stays paused until it is resumed.")
    run.refresh_from_db()
    assert (run.status, run.resume_at) == ("paused", None)


def test_another_account_takes_over_and_the_run_goes_on(operator: User, server: Server, page: Any) -> None:
    AccountFactory.create(owner=operator, label="Office line")
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        reminder__account__label="Community line",
        reminder__account__status="suspended",
        status="paused",
        pause_reason="account_down",
        targets={"sent": 2, "pending": 5},
    )
    first = run.targets.filter(status="pending")[0]
    RunTarget.objects.filter(pk=first.pk).update(parts_sent=1)
    page.goto(server.url(reverse("admin:fanout_run_change", args=[run.pk])))
    page.click("text=Offload …")
    expect(page.locator("#content")).to_contain_text("Now: 7 via Community line.")
    expect(page.locator(".choice")).to_contain_text("Then: 4 via Office line, 3 via Community line.")
    page.check("input[name=account]")
    page.click("text=Offload and resume")
    said = page.locator(".messagelist")
    expect(said).to_contain_text(
        "4 targets moved to Office line: 4 via Office line, 3 via Community line. Resumed: 5 still to send."
    )
    run.refresh_from_db()
    assert run.status == "queued"


def test_unconfirmed_targets_wait_for_a_decision(operator: User, server: Server, page: Any) -> None:
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="partial",
        targets={"sent": 2, "unconfirmed": 2},
    )
    page.goto(server.url())
    expect(page.locator(".needs")).to_contain_text("2 deliveries unconfirmed")
    page.click(".needs >> text=Look")
    page.click("text=It was delivered")
    expect(page.locator(".messagelist")).to_contain_text("2 targets marked as delivered.")
    run.refresh_from_db()
    assert (run.status, run.sent) == ("success", 4)


def test_a_row_is_resumed_with_one_click(operator: User, server: Server, page: Any) -> None:
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="paused",
        pause_reason="operator",
        targets={"sent": 2, "pending": 2},
    )
    page.goto(server.url(f"{reverse('admin:fanout_run_changelist')}?status=paused"))
    page.locator("#result_list button", has_text="Resume").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist")).to_contain_text("Resumed: 2 still to send.")
    run.refresh_from_db()
    assert run.status == "queued"


def test_one_button_hands_the_rest_to_a_faster_account(operator: User, server: Server, page: Any) -> None:
    """An account with a small cap would need days; the run's page proposes another one, and a click is enough."""
    slow = AccountFactory.create(owner=operator, label="Office line", max_send_per_minute=60)
    DailyLimitFactory.create(account=slow, limit=5)
    AccountFactory.create(owner=operator, label="Events line", max_send_per_minute=600)
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account=slow,
        status="paused",
        pause_reason="account_capacity",
        targets={"sent": 2, "pending": 12},
    )
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url(reverse("admin:fanout_run_change", args=[run.pk])))
    proposal = page.locator(".proposal button")
    expect(proposal).to_have_text(
        re.compile(r"Offload 12 to Events line and resume: done \d\d:\d\d instead of \w{3} .*\d\d:\d\d")
    )
    assert_it_fits(page, "the run with a proposal")
    proposal.click()
    expect(page.locator(".messagelist")).to_contain_text("12 targets moved to Events line")
    expect(page.locator(".proposal")).to_have_count(0)
    run.refresh_from_db()
    assert run.status == "queued"
    assert not run.targets.filter(status="pending").exclude(account__label="Events line").exists()


def test_pages_open_without_complaint(operator: User, server: Server, page: Any) -> None:
    """No script error, nothing blocked by the policy, no other host, nothing wider than the screen."""
    reminder: Reminder = ReminderFactory.create(owner=operator, account__owner=operator, targets=2)
    run = RunFactory.create(reminder=reminder, status="running", targets={"pending": 2, "sent": 3, "failed": 1})
    for path in (
        reverse("admin:index"),
        reverse("admin:fanout_run_changelist"),
        reverse("admin:fanout_run_change", args=[run.pk]),
        reverse("admin:reminders_reminder_change", args=[reminder.pk]),
        reverse("admin:reminders_reminder_add"),
        reverse("admin:accounts_account_changelist"),
        reverse("admin:accounts_account_change", args=[run.account_id]),
        reverse("admin:fanout_notification_changelist"),
        f"{reverse('admin:fanout_run_offload')}?runs={run.pk}",
    ):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(server.url(path))
        page.wait_for_timeout(250)
        assert_it_fits(page, path)


def test_the_header_is_one_line_and_the_persons_links_are_a_menu(operator: User, server: Server, page: Any) -> None:
    page.goto(server.url())
    menu = page.locator(".me")
    for width, lines in ((1280, 1), (820, 2), (390, 2)):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.locator("#header").bounding_box()["height"] <= 50 * lines, width
        expect(page.get_by_role("link", name="API tokens")).to_be_hidden()
        menu.locator("summary").click()
        expect(page.get_by_role("link", name="API tokens")).to_be_in_viewport()
        page.keyboard.press("Escape")
        expect(page.get_by_role("link", name="API tokens")).to_be_hidden()
    menu.locator("summary").click()
    page.get_by_role("link", name="Change password").click()
    expect(page.locator(".breadcrumbs")).to_contain_text("Overview")
    menu.locator("summary").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
