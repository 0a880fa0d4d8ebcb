"""Pairing a number with the scripted WhatsApp behind the bridge, clicked through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from accounts.models import Account
from fanout.lanes.accounts import add_account
from tests.browser.conftest import Server
from tests.whatsapp.running import QUICK, InThread


@pytest.fixture
def account(operator: User) -> Account:
    account = Account(owner=operator, label="Choir line", channel="whatsapp")
    add_account(account, operator, timezone.now())
    return account


@pytest.fixture
def bridge(account: Account, tmp_path: Path, settings: Any) -> Iterator[InThread]:
    limits = QUICK | {"first_code": 60, "next_code": 60}
    with InThread(tmp_path, account.pk, pair=False, codes=[60, 60], groups=4, limits=limits) as running:
        settings.WHATSAPP_BRIDGE_URL = running.url
        yield running


def test_an_unpaired_number_offers_to_be_paired(account: Account, server: Server, page: Any) -> None:
    page.goto(server.url(reverse("admin:accounts_account_changelist")))
    row = page.locator("#result_list tbody tr")
    expect(row.locator(".act")).to_have_text(["Pair"])
    row.get_by_role("link", name="Pair", exact=True).click()
    page.wait_for_url(f"**{reverse('admin:accounts_account_pair', args=[account.pk])}")
    page.goto(server.url(reverse("admin:accounts_account_change", args=[account.pk])))
    expect(page.get_by_role("link", name="Pair", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Reactivate")).to_have_count(0)


def test_pair_the_code_expires_again_success_and_unpair(
    bridge: InThread, account: Account, server: Server, page: Any
) -> None:
    page.goto(server.url(reverse("admin:accounts_account_change", args=[account.pk])))
    expect(page.locator("section.head")).to_contain_text("not paired yet")
    page.get_by_role("link", name="Pair", exact=True).click()
    expect(page.locator("[data-state]")).to_have_text("Unpaired")
    # A code that renews itself, without a reload.
    page.click("button[value=pair]")
    expect(page.locator("#qr svg")).to_be_visible()
    first = page.locator("#qr svg path").last.get_attribute("d")
    bridge.happen(account.pk, next_code=True)
    expect(page.locator("#qr svg path").last).not_to_have_attribute("d", first)
    # The code was not scanned: the page says so, and offers to start again.
    pairing = bridge.bridge.sessions[account.pk].pairing
    assert pairing.code is not None
    pairing.code = replace(pairing.code, expires_at=timezone.now() - timedelta(minutes=1))
    expect(page.locator("[data-state]")).to_have_text("Expired")
    expect(page.locator("#pairing")).to_contain_text("no new one comes by itself")
    page.get_by_role("button", name="Pair again").click()
    expect(page.locator("#qr svg")).to_be_visible()
    bridge.happen(account.pk, scan=True)
    expect(page.locator("[data-state]")).to_have_text("Connected")
    expect(page.locator("#pairing")).to_contain_text("is in 4 groups")
    # Its groups, and the way back.
    page.click("button[value=synchronise]")
    expect(page.locator(".messagelist")).to_contain_text("4 groups listed: 4 added")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("button[value=unpair]")
    expect(page.locator(".messagelist")).to_contain_text("the device is logged out.")
    expect(page.locator("[data-state]")).to_have_text("Unpaired")
    assert len(bridge.book.lines("logout")) == 1
