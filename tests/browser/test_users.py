"""An administrator adds a colleague, who sets a password by the invitation and works with a role."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.urls import reverse
from playwright.sync_api import expect

from accounts.access import OPERATORS
from tests.browser.conftest import PASSWORD, Server, assert_it_fits, log_in
from tests.factories import TeamFactory


@pytest.fixture
def administrator(operator: User) -> User:
    operator.is_superuser = True
    operator.save()
    return operator


def test_invite_a_colleague(administrator: User, server: Server, page: Any, chromium: Any) -> None:
    choir = TeamFactory.create(name="Choir")
    page.goto(server.url(reverse("admin:auth_user_changelist")))
    page.get_by_role("link", name="Add user").click()
    page.fill("#id_username", "noor")
    page.fill("#id_first_name", "Noor")
    page.fill("#id_email", "noor@example.com")
    page.get_by_label("Operator").check()
    page.get_by_label("Choir").check()
    # Django's permissions are not here.
    expect(page.locator("select")).to_have_count(0)
    assert_it_fits(page, "add user")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Send the link to noor@example.com").click()
    expect(page.locator("main")).to_contain_text("The link was sent to noor@example.com.")
    link = page.locator("#invitation").input_value()
    assert [message.to for message in mail.outbox] == [["noor@example.com"]]
    assert link in mail.outbox[0].body
    noor = User.objects.get(username="noor")
    assert (noor.is_staff, noor.is_superuser) == (True, False)
    assert set(noor.groups.all()) == {choir, Group.objects.get(name=OPERATORS)}
    # The colleague, in another browser.
    tab = chromium.new_context().new_page()
    tab.goto(link)
    expect(tab.locator("main")).to_contain_text("noor")
    tab.fill("#id_new_password1", PASSWORD)
    tab.fill("#id_new_password2", PASSWORD)
    tab.get_by_role("button", name="Set password").click()
    expect(tab.locator(".messagelist")).to_contain_text("Your password is set. Log in with it.")
    log_in(tab, server, "noor", PASSWORD)
    expect(tab.get_by_role("heading", name="Needs you")).to_be_visible()
    # It works once.
    tab.goto(link)
    expect(tab.locator("main")).to_contain_text("This link has expired or was used already.")
    page.goto(server.url(reverse("admin:auth_user_changelist")))
    row = page.locator("#result_list tr", has_text="noor@example.com")
    expect(row).to_contain_text("Operator")
    expect(row).to_contain_text("Choir")
    assert_it_fits(page, "users")


def test_someone_without_a_role_is_told_what_to_ask_for(
    administrator: User, server: Server, page: Any, chromium: Any
) -> None:
    User.objects.create_user("ada", password=PASSWORD, is_staff=True)
    User.objects.create_user("bob", password=PASSWORD)
    tab = chromium.new_context().new_page()
    log_in(tab, server, "ada", PASSWORD)
    expect(tab.locator("main")).to_contain_text("You have no role yet")
    expect(tab.locator("main")).to_contain_text("Ask Mei (mei@example.com)")
    tab.context.clear_cookies()
    tab.goto(server.url())
    tab.fill("#id_username", "bob")
    tab.fill("#id_password", PASSWORD)
    tab.click("input[type=submit]")
    expect(tab.locator(".errornote")).to_contain_text("has no role yet. Ask an administrator")
