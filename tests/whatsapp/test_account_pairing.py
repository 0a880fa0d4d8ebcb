"""The page on which a number is paired, with a bridge behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.channels import http
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.models import Account
from fanout.lanes.accounts import add_account
from fanout.models import Event
from reminders.models import Recipient
from tests.admin.conftest import login, member
from tests.factories import AccountFactory
from tests.whatsapp.running import QUICK, InThread, wait_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> User:
    return member("mei", "operators")


@pytest.fixture
def account(operator: User) -> Account:
    account = Account(owner=operator, label="Choir line", channel="whatsapp")
    add_account(account, operator, timezone.now())
    return account


@pytest.fixture
def bridge(account: Account, tmp_path: Path, settings: Any) -> Iterator[InThread]:
    with InThread(tmp_path, account.pk, pair=False, codes=[30], groups=3, limits=QUICK | {"first_code": 60}) as running:
        settings.WHATSAPP_BRIDGE_URL = running.url
        yield running


@pytest.fixture
def browser(operator: User) -> Client:
    client = login(operator)
    confirm(client)
    return client


def confirm(client: Client) -> None:
    session = client.session
    session["crier_confirmed_at"] = timezone.now().timestamp()
    session.save()


def shown(client: Client, account: Account, part: str = "pair") -> str:
    answer = client.get(reverse(f"admin:accounts_account_{part}", args=[account.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def press(client: Client, account: Account, step: str, **fields: str) -> str:
    url = reverse("admin:accounts_account_pair", args=[account.pk])
    return client.post(url, {"step": step, **fields}, follow=True).content.decode()


def test_a_new_account_is_unpaired_and_says_what_to_do(account: Account, browser: Client) -> None:
    page = browser.get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()

    assert (account.status, account.status_reason[:14]) == ("unpaired", "not paired yet")
    assert reverse("admin:accounts_account_pair", args=[account.pk]) in page


def test_the_code_is_shown_and_success_turns_the_page_green(
    bridge: InThread, account: Account, browser: Client
) -> None:
    assert "is not paired" in shown(browser, account)
    assert "Pairing has begun." in press(browser, account, "pair")
    wait_for(lambda: bridge.state(account.pk)["qr"])

    state = shown(browser, account, "pair_state")
    assert "<svg" in state
    assert "style=" not in state
    assert "Start again" in state
    bridge.happen(account.pk, scan=True)
    bridge.wait_state(account.pk, "connected")

    assert 'class="badge good"' in shown(browser, account, "pair_state")
    assert Event.objects.filter(account=account, verb="pairing began").exists()


def test_letters_for_a_number(bridge: InThread, account: Account, browser: Client) -> None:
    assert "wrong length" in press(browser, account, "pair", phone="+49 1")
    press(browser, account, "pair", phone="+49 151 23456789")
    wait_for(lambda: bridge.state(account.pk)["letters"])

    assert "KBDT-FC2M" in shown(browser, account, "pair_state")


def test_groups_come_in_with_a_tag_and_a_renamed_account_renames_it(
    bridge: InThread, account: Account, browser: Client
) -> None:
    press(browser, account, "pair")
    wait_for(lambda: bridge.state(account.pk)["qr"])
    bridge.happen(account.pk, scan=True)
    bridge.wait_state(account.pk, "connected")

    assert "3 groups listed: 3 added, 0 renamed, 0 no longer there." in press(browser, account, "synchronise")
    first = Recipient.objects.get(address=group_address(str(account.pk), 0))
    assert (first.name, first.tags) == ("Neighbours 1", [f"#{account.pk} Choir line"])

    Account.objects.filter(pk=account.pk).update(label="Concerts")
    bridge.script(groups=2)
    assert "2 groups listed: 0 added, 0 renamed, 1 no longer there." in press(browser, account, "synchronise")
    tags = list(Recipient.objects.order_by("address").values_list("tags", flat=True))
    assert tags == [[f"#{account.pk} Concerts"]] * 2 + [[]]


@pytest.mark.parametrize("way", ["pairing page", "account page", "command"])
def test_however_groups_are_synchronised_they_get_the_tag(
    bridge: InThread, account: Account, browser: Client, way: str
) -> None:
    press(browser, account, "pair")
    wait_for(lambda: bridge.state(account.pk)["qr"])
    bridge.happen(account.pk, scan=True)
    bridge.wait_state(account.pk, "connected")

    if way == "pairing page":
        press(browser, account, "synchronise")
    elif way == "account page":
        browser.post(reverse("admin:accounts_account_groups", args=[account.pk]))
    else:
        call_command("sync_groups", str(account.pk))

    assert list(Recipient.objects.values_list("tags", flat=True)) == [[f"#{account.pk} Choir line"]] * 3
    assert Event.objects.filter(account=account, verb="groups synchronised").exists()


def test_unpairing_without_a_connection_says_to_remove_the_device(
    bridge: InThread, account: Account, browser: Client
) -> None:
    press(browser, account, "pair")
    wait_for(lambda: bridge.state(account.pk)["qr"])
    bridge.happen(account.pk, scan=True)
    bridge.wait_state(account.pk, "connected")
    bridge.happen(account.pk, event="Disconnected")
    bridge.wait_state(account.pk, "disconnected")

    page = press(browser, account, "unpair")

    assert "Linked devices" in page
    assert "logged out" not in page


def test_unpairing_logs_the_device_out(bridge: InThread, account: Account, browser: Client) -> None:
    press(browser, account, "pair")
    wait_for(lambda: bridge.state(account.pk)["qr"])
    bridge.happen(account.pk, scan=True)
    bridge.wait_state(account.pk, "connected")

    assert "logged out" in press(browser, account, "unpair")
    assert len(bridge.book.lines("logout")) == 1
    assert "Unpaired by an operator" in shown(browser, account, "pair_state")


def test_an_answer_that_is_faster_than_the_body_counts(
    bridge: InThread, account: Account, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge logs the device out without reading the body, and may have answered before a busy process wrote it."""
    refuse_stale = http.refuse_stale

    def slowly(*args: Any) -> None:
        time.sleep(0.5)
        refuse_stale(*args)

    press(browser, account, "pair")
    wait_for(lambda: bridge.state(account.pk)["qr"])
    bridge.happen(account.pk, scan=True)
    bridge.wait_state(account.pk, "connected")
    monkeypatch.setattr(http, "refuse_stale", slowly)

    press(browser, account, "unpair")

    assert len(bridge.book.lines("logout")) == 1
    assert Event.objects.filter(account=account, verb="unpaired").exists()


def test_without_a_bridge_the_page_says_what_is_missing(account: Account, browser: Client, settings: Any) -> None:
    settings.VAR_DIR = Path("/nonexistent")

    page = shown(browser, account)

    assert "The WhatsApp bridge is not running" in page
    assert "not running" in press(browser, account, "pair")


def test_pairing_is_confirmed_like_credentials(account: Account, operator: User) -> None:
    client = login(operator)
    session = client.session
    session["crier_confirmed_at"] = 0
    session.save()

    answer = client.get(reverse("admin:accounts_account_pair", args=[account.pk]))

    assert answer.status_code == 302
    assert reverse("admin:confirm") in answer.headers["Location"]


def test_other_channels_have_no_such_page(operator: User, browser: Client) -> None:
    other = AccountFactory.create(owner=operator)

    assert browser.get(reverse("admin:accounts_account_pair", args=[other.pk])).status_code == 404


def test_strangers_see_nothing(account: Account) -> None:
    stranger = login(member("noor", "operators"))
    confirm(stranger)

    assert stranger.get(reverse("admin:accounts_account_pair", args=[account.pk])).status_code == 404
    assert stranger.get(reverse("admin:accounts_account_pair_state", args=[account.pk])).status_code == 404
