"""Recipients by the thousand: imported, looked at, tagged, suppressed; at a desk and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from reminders.models import Recipient, Suppression
from tests.browser.conftest import Server
from tests.factories import RecipientFactory, RunFactory
from tests.reminders.test_tables import excel

ROWS = 1_000
LIST = "admin:reminders_recipient_changelist"


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    """As people keep them: a heading of their own, a number without its plus, one line that is none."""
    people = [(f"Person {n}", 601234500000 + n, f"{n} B") for n in range(ROWS)]
    path = tmp_path / "people.xlsx"
    path.write_bytes(excel(("Full name", "Mobile", "Flat No."), *people, ("Nobody", "no number", "")))
    return path


def test_import_a_thousand_tag_and_suppress(operator: User, server: Server, page: Any, sheet: Path) -> None:
    page.goto(server.url(reverse(LIST)))
    page.click("text=Import a list")
    page.set_input_files("#id_file", sheet)
    page.click("button:has-text('Preview')")
    # What would happen, line by line, before anything is stored.
    expect(page.locator("#preview .good b")).to_have_text("1,000")
    expect(page.locator("#preview .problems")).to_contain_text(
        "line 1002 (Nobody no number): This is not a phone number."
    )
    assert not Recipient.objects.exists()
    page.select_option("#id_column-2", "")
    page.fill("#id_tags", "residents")
    page.click("button[name=preview]")
    expect(page.locator("#preview tbody tr").first).to_contain_text("residents")
    # The button that imports is below the settings which it depends on.
    button = page.locator("button[name=import]")
    assert button.bounding_box()["y"] > max(
        setting.bounding_box()["y"] for setting in page.locator("#id_tags, select[id^=id_column]").all()
    )
    button.click()
    expect(page.locator(".messagelist")).to_contain_text("1,000 recipients added.")
    expect(page.locator("#list-filters summary.selected", has_text="residents")).to_be_visible()
    assert Recipient.objects.filter(owner=operator, tags=["residents"], fields={}).count() == ROWS
    # All that match, not only the page.
    page.check("#action-toggle")
    page.click(".question a")
    page.select_option("select[name=action]", "tag_selected")
    page.click("button[name=index]")
    page.fill("#id_tag", "north")
    page.click("button:has-text('Tag 1,000 recipients')")
    expect(page.locator(".messagelist")).to_contain_text("Tagged: 1,000 recipients.")
    # One of them wants nothing more.
    page.locator(".action-select").first.check()
    page.select_option("select[name=action]", "suppress_selected")
    page.click("button[name=index]")
    page.fill("#id_detail", "asked by phone")
    page.click("button:has-text('Suppress 1 recipient')")
    expect(page.locator("#result_list .badge.bad")).to_have_text(["Suppressed"])
    assert Suppression.objects.get().detail == "asked by phone"


def test_the_phone(operator: User, server: Server, page: Any) -> None:
    """Every row is a card with its names and its buttons; filters fold up above the list."""
    page.set_viewport_size({"width": 375, "height": 812})
    RecipientFactory.create(owner=operator, name="Ann", tags=["choir"])
    RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="paused",
        pause_reason="operator",
        targets={"sent": 2, "pending": 2},
    )
    page.goto(server.url(reverse("admin:fanout_run_changelist")))
    card = page.locator("#result_list tbody tr")
    box, button = card.bounding_box(), card.get_by_role("button", name="Resume").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375
    assert box["x"] <= button["x"]
    assert button["x"] + button["width"] <= box["x"] + box["width"]
    card.get_by_role("button", name="Resume").click()
    expect(page.locator(".messagelist")).to_contain_text("Resumed: 2 still to send.")
    page.goto(server.url(reverse(LIST)))
    filters = page.locator("#list-filters")
    assert filters.bounding_box()["y"] < page.locator("#result_list").bounding_box()["y"] < 560
    filters.locator("summary", has_text="Tag").click()
    filters.locator("a", has_text="choir (1)").click()
    expect(page.locator("#list-filters summary.selected")).to_have_text("Tag: choir (1)")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)


def test_keys(operator: User, server: Server, page: Any) -> None:
    page.goto(server.url())
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("/")
    page.wait_for_url("**/fanout/run/#searchbar")
    expect(page.locator("#searchbar")).to_be_focused()
    page.keyboard.type("what? a/b")
    expect(page.locator("#searchbar")).to_have_value("what? a/b")
    expect(page.locator(".top-nav [aria-current]")).to_have_text("Activity")
