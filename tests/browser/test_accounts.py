"""Adding accounts, clicked through; judged by the mail server's own book."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.urls import reverse
from playwright.sync_api import expect

from accounts.models import Account
from fanout.admin.login import SESSION_KEY
from tests.browser.conftest import PASSWORD, Server, assert_it_fits, wait_for
from tests.browser.test_stories import crier
from tests.channels.mail_server import ScriptedServer, certificate, server_tls
from tests.factories import AccountFactory

__all__ = ["crier"]  # a fixture


@pytest.fixture
def mail_server(tmp_path: Path) -> Iterator[ScriptedServer]:
    with ScriptedServer(tls=server_tls(certificate(tmp_path)), auth=True) as running:
        yield running


@pytest.mark.processes
def test_add_an_smtp_account_and_send_a_test(
    operator: User, mail_server: ScriptedServer, crier: None, tmp_path: Path, server: Server, page: Any
) -> None:
    page.goto(server.url(reverse("admin:accounts_account_changelist")))
    page.get_by_role("link", name="Add account").click()
    page.get_by_role("link", name="SMTP", exact=True).click()
    # A provider fills in its server and keeps what was typed; this one is our own.
    page.fill("#id_label", "Office")
    page.get_by_role("link", name="Fastmail").click()
    expect(page.locator("#id_setting_host")).to_have_value("smtp.fastmail.com")
    expect(page.locator("#id_setting_security")).to_have_value("tls")
    expect(page.locator("#id_label")).to_have_value("Office")
    page.fill("#id_address", "office@example.com")
    page.fill("#id_setting_host", "127.0.0.1")
    page.fill("#id_setting_port", str(mail_server.port))
    page.select_option("#id_setting_security", "starttls")
    page.fill("#id_setting_username", "office")
    page.fill("#id_secret_password", "wrong")
    # The server's certificate is not trusted: the page says so, and nothing is saved.
    page.get_by_role("button", name="Test and save").click()
    expect(page.locator(".errornote + .errorlist")).to_contain_text("Not saved: the test failed.")
    expect(page.locator("#id_secret_password")).to_have_value("")
    assert not Account.objects.exists()
    page.locator("summary", has_text="More settings").click()
    page.fill("#id_setting_ca_pem", (tmp_path / "127.0.0.1.pem").read_text().partition("-----BEGIN PRIVATE")[0])
    page.fill("#id_secret_password", mail_server.script.password)
    page.get_by_role("button", name="Test and save").click()
    expect(page.locator(".account-head .badge").first).to_have_text("Active")
    expect(page.locator(".messagelist")).to_contain_text("Office: ")
    assert mail_server.mails == []
    # A test message, through the account's lane.
    page.fill("input[name=to]", "mei@example.com")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator(".messagelist")).to_contain_text("A test is on its way to mei@example.com.")
    wait_for(lambda: mail_server.mails)
    (mail,) = mail_server.mails
    assert (mail.sender, mail.to) == ("office@example.com", ["mei@example.com"])
    assert mail.message["Subject"] == "Test message from Crier"
    expect(page.locator("#live .head .badge").first).to_have_text("Success")


@pytest.mark.parametrize(
    ("channel", "field", "wrong", "says"),
    [
        ("cloud", "phone_number_id", "+49 176 12345678", "a number of at least 5 digits, without + or spaces"),
        ("unipile", "account_id", "linkedin.com/in/mei", "an id of letters, digits, - and _, without spaces"),
        ("unipile_mail", "account_id", "mei@example.com", "an id of letters, digits, - and _, without spaces"),
        ("wassenger", "device", "my phone", "an id of 24 digits and letters from a to f"),
    ],
)
def test_an_id_of_a_known_form_is_checked_before_the_provider_is_asked(
    operator: User, server: Server, page: Any, channel: str, field: str, wrong: str, says: str
) -> None:
    """The page says so at the field, and does not report a failed test."""
    page.goto(server.url(f"{reverse('admin:accounts_account_add')}?channel={channel}"))
    page.fill("#id_label", "Office")
    page.fill("#id_address", "mei@example.com" if channel == "unipile_mail" else "+4917612345678")
    if page.locator("#id_setting_url").is_visible():
        page.fill("#id_setting_url", "https://api8.unipile.com:13851")
    page.fill(f"#id_setting_{field}", wrong)
    page.locator("[id^=id_secret_]").first.fill("a secret")
    page.get_by_role("button", name="Test and save").click()
    expect(page.locator(f".field-setting_{field} .errorlist")).to_contain_text(says)
    expect(page.locator(f"#id_setting_{field}")).to_have_value(wrong)
    expect(page.locator("#container")).not_to_contain_text("the test failed")
    assert not Account.objects.exists()


def test_a_preset_fills_the_pace_table(operator: User, server: Server, page: Any) -> None:
    account = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    page.goto(server.url(reverse("admin:accounts_account_change", args=[account.pk])))
    page.get_by_role("link", name="Cold mail").click()
    expect(page.locator("#id_min_gap_seconds")).to_have_value("360")
    page.get_by_role("button", name="Save without testing").click()
    expect(page.locator(".messagelist")).to_contain_text("was changed")
    expect(page.locator("#source_min_gap_seconds")).to_contain_text("this account")
    account.refresh_from_db()
    assert (account.min_gap_seconds, account.hours_start, account.send_days) == (360, 9, [1, 2, 3, 4, 5])
    assert account.daily_limits.get().limit == 20
    # And back.
    page.get_by_role("link", name="Default").click()
    page.get_by_role("button", name="Save without testing").click()
    expect(page.locator("#source_min_gap_seconds")).to_contain_text("Crier's default")
    account.refresh_from_db()
    assert (account.min_gap_seconds, account.send_days, account.daily_limits.exists()) == (None, None, False)


def test_confirming_keeps_the_form(operator: User, server: Server, page: Any) -> None:
    """The page was opened within 15 minutes of the login, and is saved after them."""
    page.clock.install()
    page.goto(server.url(f"{reverse('admin:accounts_account_add')}?channel=smtp"))
    page.fill("#id_label", "Office")
    page.fill("#id_address", "office@example.com")
    page.fill("#id_setting_host", "mail.example.com")
    page.fill("#id_setting_username", "office")
    page.fill("#id_secret_password", "s3cret")
    expect(page.locator("#id_proof")).to_be_hidden()
    page.clock.fast_forward("16:00")
    session = SessionStore(page.context.cookies()[0]["value"])
    session[SESSION_KEY] -= 16 * 60
    session.save()
    page.fill("#id_proof", "wrong")
    page.get_by_role("button", name="Save without testing").click()
    expect(page.locator(".field-proof .errorlist")).to_have_text("That is not right.")
    expect(page.locator("#id_label")).to_have_value("Office")
    expect(page.locator("#id_setting_host")).to_have_value("mail.example.com")
    page.fill("#id_secret_password", "s3cret")
    page.fill("#id_proof", PASSWORD)
    page.get_by_role("button", name="Save without testing").click()
    expect(page.locator(".account-head .badge").first).to_have_text("Not tested")
    account = Account.objects.get()
    assert (account.label, account.credentials) == ("Office", {"password": "s3cret"})


def test_without_a_script(operator: User, chromium: Any, server: Server, page: Any) -> None:
    """Links and forms do the same."""
    context = chromium.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    tab = context.new_page()
    tab.goto(server.url(reverse("admin:accounts_account_add")))
    tab.get_by_role("link", name="SMTP", exact=True).click()
    tab.get_by_role("link", name="Mailgun").click()
    tab.get_by_role("link", name="Cold mail").click()
    expect(tab.locator("#id_setting_host")).to_have_value("smtp.mailgun.org")
    tab.fill("#id_label", "Office")
    tab.fill("#id_address", "office@example.com")
    tab.get_by_role("button", name="Save without testing").click()
    expect(tab.locator(".account-head .badge").first).to_have_text("Not tested")
    account = Account.objects.get()
    assert (account.config["host"], account.min_gap_seconds) == ("smtp.mailgun.org", 360)
    context.close()


def test_the_list_is_live(operator: User, server: Server, page: Any) -> None:
    account = AccountFactory.create(owner=operator, label="Line", untested_since=None)
    page.goto(server.url(reverse("admin:accounts_account_changelist")))
    expect(page.locator("#result_list .badge")).to_have_text("Active")
    Account.objects.filter(pk=account.pk).update(status="suspended", status_reason="login refused")
    expect(page.locator("#result_list .badge")).to_have_text("Suspended")
    expect(page.locator("#result_list .act")).to_have_text("Reactivate")


def test_forms_fit_the_screen(operator: User, server: Server, page: Any) -> None:
    account = AccountFactory.create(owner=operator, channel="waha", label="Line", address="+60123456789")
    add = reverse("admin:accounts_account_add")
    for path in (add, f"{add}?channel=smtp", reverse("admin:accounts_account_change", args=[account.pk])):
        page.goto(server.url(path))
        for summary in page.locator("fieldset summary").all():
            summary.click()
        assert_it_fits(page, path)
