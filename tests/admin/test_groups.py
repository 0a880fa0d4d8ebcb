"""An account's groups, from the gateway into the list of recipients: by command and from the account's page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Account
from reminders.models import Membership, Recipient
from tests.admin.conftest import login
from tests.commands.calling import data, not_done
from tests.factories import AccountFactory, RecipientFactory, UserFactory
from tests.gateways.process import GatewayServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("waha"), "waha") as running:
        yield running


@pytest.fixture
def account(server: GatewayServer) -> Account:
    owner = UserFactory.create(is_superuser=True)
    config = {"url": server.url, "session": "default"}
    return AccountFactory.create(
        owner=owner, label="Office", channel="waha", config=config, credentials={"api_key": "k"}
    )


@pytest.fixture
def client(account: Account) -> Client:
    return login(account.owner)


def page(client: Client, account: Account) -> str:
    return client.get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()


def test_by_command(account: Account) -> None:
    answer = data("sync_groups", "Office")

    assert (answer["groups"], answer["gone"]) == (7, 0)
    assert "7 added" in answer["detail"]
    assert Recipient.objects.get(name="Group 1").memberships.get().size == 11
    assert account.events.get().verb == "groups synchronised"


def test_from_the_accounts_page(client: Client, account: Account) -> None:
    assert "Synchronise groups" in page(client, account)

    answer = client.post(reverse("admin:accounts_account_groups", args=[account.pk]), follow=True)

    assert "Office: 7 groups listed: 7 added, 0 renamed, 0 no longer there." in answer.content.decode()


def test_contacts_are_added_only_from_the_address_book(client: Client, account: Account) -> None:
    assert "4 contacts listed: 4 added" in data("sync_groups", "Office", "--contacts")["detail"]
    assert Recipient.objects.filter(kind="person").count() == 4
    assert Recipient.objects.get(name="Person 102").address == "+4917612345102"

    answer = client.post(reverse("admin:accounts_account_contacts", args=[account.pk]), follow=True)
    assert "Office: 4 contacts listed: 0 added." in answer.content.decode()


def test_the_list_shows_sizes_and_what_has_gone(client: Client, account: Account) -> None:
    gone = RecipientFactory.create(owner=account.owner, name="Old choir", address="120363999999999999@g.us")
    Membership.objects.create(
        account=account, recipient=gone, size=9, seen_at=account.created_at, gone_at=account.created_at
    )
    data("sync_groups", "Office")
    listed: Any = reverse("admin:reminders_recipient_changelist")

    whole = client.get(listed).content.decode()
    only_gone = client.get(listed, {"group": "gone"}).content.decode()

    assert '<td data-label="Members" class="field-members">11</td>' in whole
    assert "gone since" in only_gone
    assert "Group 1" not in only_gone


def test_a_refusal_of_the_gateway_is_shown_in_a_sentence(server: GatewayServer, account: Account) -> None:
    account.config = {"url": "http://127.0.0.1:9", "session": "default"}
    account.save(update_fields=["config"])

    assert "Office could not list its groups" in not_done("sync_groups", "Office")
    assert not Recipient.objects.exists()


def test_a_channel_without_groups_has_no_button_and_says_so(client: Client, account: Account) -> None:
    mail = AccountFactory.create(owner=account.owner, label="Mail", channel="smtp", address="a@example.com")

    assert "Synchronise groups" not in page(client, mail)
    assert "SMTP does not list groups" in not_done("sync_groups", "Mail")
    assert "Add contacts" not in page(client, mail)


def test_the_page_says_what_the_channel_can_do(client: Client, account: Account) -> None:
    line = "Sends to people and groups · sends files · delivery and read receipts · replies · lists its groups"

    assert line in page(client, account)
