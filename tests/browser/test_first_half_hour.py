"""A new operator on an empty site: from the first page to the first reminder in people's mailboxes, by clicking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.conftest import PASSWORD, Server, log_in, wait_for
from tests.browser.test_stories import crier
from tests.channels.mail_server import ScriptedServer

__all__ = ["crier"]  # a fixture

PEOPLE = ("Ann Lee, ann@example.com", "Bo Tan, bo@example.com", "Cy Ong, cy@example.com")


@pytest.fixture
def mail_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


def steps(page: Any) -> Any:
    """Return the first steps that the overview still lists."""
    page.locator(".top-nav").get_by_role("link", name="Overview").click()
    return page.locator(".steps li a")


@pytest.mark.processes
def test_the_first_half_hour(
    operator: User, mail_server: ScriptedServer, crier: None, server: Server, page: Any
) -> None:
    # Nothing here yet: the first page says how to begin.
    page.context.clear_cookies()
    log_in(page, server, "mei", PASSWORD)
    expect(steps(page)).to_have_text(["Add an account", "Add recipients", "Write a reminder", "Send a test"])
    page.get_by_role("link", name="Add an account").click()
    page.get_by_role("link", name="SMTP", exact=True).click()
    page.fill("#id_label", "Office")
    page.fill("#id_address", "office@example.com")
    page.fill("#id_setting_host", "127.0.0.1")
    page.fill("#id_setting_port", str(mail_server.port))
    page.select_option("#id_setting_security", "plain")
    page.get_by_role("button", name="Test and save").click()
    expect(page.locator(".account-head .badge").first).to_have_text("Active")

    expect(steps(page)).to_have_text(["Add recipients", "Write a reminder", "Send a test"])
    page.get_by_role("link", name="Add recipients").click()
    page.get_by_role("link", name="Import a list").click()
    page.fill("#id_paste", "\n".join(PEOPLE))
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview .good b")).to_have_text("3")
    page.fill("#id_tags", "residents")
    page.get_by_role("button", name="Preview again").click()
    expect(page.locator("#preview tbody tr").first).to_contain_text("residents")
    page.get_by_role("button", name="Import 3 recipients").click()
    expect(page.locator(".messagelist")).to_contain_text("3 recipients added.")

    expect(steps(page)).to_have_text(["Write a reminder", "Send a test"])
    page.get_by_role("link", name="Write a reminder").click()
    page.fill("#id_title", "Water is off on Friday")
    page.fill("#id_subject", "No water on Friday")
    page.fill("#id_messages-0-text", "From 9 to 12, all of the north wing.")
    page.locator(".chip.tag", has_text="residents").click()
    page.fill("#id_delivery_window_start_hour", "0")
    page.fill("#id_delivery_window_end_hour", "24")
    expect(page.locator("[data-review]")).to_contain_text("To 3 mailboxes through Office")
    expect(page.locator("[data-forecast]")).to_contain_text("done about")
    page.click("input[name=_draft]")
    expect(page.locator(".messagelist")).to_contain_text("3 targets added.")

    # A test to oneself; what became of it is said without a reload.
    expect(steps(page)).to_have_text(["Send a test"])
    page.get_by_role("link", name="Send a test").click()
    page.get_by_role("link", name="Water is off on Friday").click()
    expect(page.locator("#my-address")).to_have_value("mei@example.com")
    page.get_by_role("button", name="Send a test to me").click()
    expect(page.locator("#test-state")).to_contain_text("The test to mei@example.com was sent at")
    assert [mail.to for mail in mail_server.mails] == [["mei@example.com"]]

    # And out it goes.
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Fire now").click()
    expect(page.locator(".messagelist")).to_contain_text("Fired: 3")
    expect(page.locator("#live .head .badge").first).to_have_text("Success")
    expect(page.locator(".figures-row [data-count=sent]")).to_have_text("3")
    wait_for(lambda: len(mail_server.mails) == 4)
    mails = mail_server.mails[1:]
    assert sorted(mail.to[0] for mail in mails) == ["ann@example.com", "bo@example.com", "cy@example.com"]
    assert {mail.message["Subject"] for mail in mails} == {"No water on Friday"}

    expect(steps(page)).to_have_count(0)
    expect(page.locator("#live-overview")).to_contain_text("4 sent")
