"""“Test and save”, the badge “Not tested”, and test messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from accounts.signin import SignIn
from fanout.lanes import accounts
from fanout.lanes.accounts import add_account, changing
from fanout.models import Event, Run
from tests.admin.conftest import login
from tests.admin.test_forms import account_form
from tests.channels.mail_server import ScriptedServer
from tests.factories import AccountFactory, ActivityFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(auth=True) as running:
        yield running


def typed(server: ScriptedServer, **changes: Any) -> dict[str, Any]:
    return (
        account_form(
            label="Office",
            channel="smtp",
            address="office@example.com",
            setting_host="127.0.0.1",
            setting_port=server.port,
            setting_security="plain",
            setting_username="office",
            setting_verify="on",
            secret_password=server.script.password,
            _test="Test and save",
        )
        | changes
    )


def add(operator: User, fields: dict[str, Any]) -> Any:
    return login(operator).post(reverse("admin:accounts_account_add"), fields, follow=True)


def messages(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def test_what_signs_in_is_saved_and_counts_as_tested(operator: User, server: ScriptedServer) -> None:
    answer = add(operator, typed(server))

    account = Account.objects.get()
    assert account.untested_since is None
    assert "Office: " in messages(answer)
    assert ">Active</span>" in answer.content.decode()
    assert Event.objects.filter(account=account, verb="tested", actor=operator).exists()
    assert server.mails == []


def test_what_cannot_sign_in_is_not_saved(operator: User, server: ScriptedServer) -> None:
    answer = add(operator, typed(server, secret_password="wrong-w0rd"))

    (said,) = answer.context["adminform"].form.non_field_errors()
    assert said.startswith("Not saved: the test failed.")
    assert "wrong-w0rd" not in answer.content.decode()
    assert not Account.objects.exists()


def test_a_change_that_does_not_work_leaves_the_account_as_it_was(operator: User, server: ScriptedServer) -> None:
    add(operator, typed(server))
    account = Account.objects.get()
    url = reverse("admin:accounts_account_change", args=[account.pk])
    answer = login(operator).post(url, typed(server, setting_username="eve", secret_password="wrong"))

    assert "Not saved: the test failed." in answer.content.decode()
    account.refresh_from_db()
    assert (account.config["username"], account.credentials) == ("office", {"password": server.script.password})
    assert account.untested_since is None


def test_nobody_is_asked_with_what_is_wrong(operator: User, server: ScriptedServer) -> None:
    add(operator, typed(server, label=""))

    assert not server.book.sessions


def test_nobody_is_asked_outside_the_form(viewer: User, colleague: User, operator: User, server: Any) -> None:
    """The stored credentials are not tried for people who may not change the account."""
    add(operator, typed(server))
    server.book.sessions.clear()
    url = reverse("admin:accounts_account_change", args=[Account.objects.get().pk])
    for person in (viewer, colleague):
        login(person).post(url, typed(server, secret_password=""))

    assert not server.book.sessions


def test_the_provider_is_asked_outside_the_transaction(operator: User, server: Any, monkeypatch: Any) -> None:
    depths = []

    async def asked(account: Account) -> Any:
        depths.append(len(connection.savepoint_ids))
        return SignIn(True, "fine")

    monkeypatch.setattr("fanout.admin.accounts.admin.sign_in", asked)
    depth = len(connection.savepoint_ids)
    add(operator, typed(server))

    assert depths == [depth]


# --- not tested -------------------------------------------------------------------------------------------


def test_without_a_test_it_says_so(operator: User, server: ScriptedServer) -> None:
    fields = typed(server)
    del fields["_test"]
    page = add(operator, fields | {"_save": "Save"}).content.decode()

    assert ">Not tested</span>" in page
    assert "test the connection, or send a test message" in page
    account = Account.objects.get()
    login(operator).post(reverse("admin:accounts_account_test", args=[account.pk]))
    account.refresh_from_db()
    assert account.untested_since is None


def new_account(**facts: Any) -> Account:
    account = AccountFactory.build(owner=AccountFactory.create().owner, label="New", **facts)
    add_account(account, None, timezone.now())
    return account


def untested(account: Account) -> bool:
    account.refresh_from_db()
    return account.untested_since is not None


@pytest.mark.parametrize(
    ("activity", "still"),
    [
        pytest.param({"outcome": "sent"}, False, id="delivered"),
        pytest.param({"outcome": "failed"}, True, id="failed"),
        pytest.param({"outcome": "sent", "ago": 60}, True, id="delivered before the change"),
    ],
)
def test_a_delivery_proves_it(activity: dict[str, Any], still: bool) -> None:
    account = new_account()
    assert untested(account)
    at = timezone.now() + timedelta(seconds=1) - timedelta(minutes=activity.pop("ago", 0))
    ActivityFactory.create(account=account, at=at, **activity)
    accounts.note_deliveries(timezone.now())

    assert untested(account) is still


@pytest.mark.parametrize(
    ("change", "doubted"),
    [
        pytest.param({"config": {"account": "another"}}, True, id="destination"),
        pytest.param({"credentials": {"key": "k"}}, True, id="credentials"),
        pytest.param({"label": "Renamed"}, False, id="label"),
        pytest.param({"max_send_per_minute": 5}, False, id="pace"),
    ],
)
def test_a_change_of_where_it_goes_needs_a_new_proof(change: dict[str, Any], doubted: bool) -> None:
    account = AccountFactory.create()
    with changing(account, None, timezone.now()) as changed:
        for name, value in change.items():
            setattr(changed.account, name, value)

    assert untested(account) is doubted


def test_a_number_that_is_paired_proves_itself_by_that() -> None:
    assert not untested(new_account(channel="whatsapp", config={}))


def test_a_change_during_the_test_is_not_proven_by_it() -> None:
    account = new_account()
    accounts.note_test(account, SignIn(True, "fine"), None, timezone.now() - timedelta(minutes=1))

    assert untested(account)


def test_the_command_proves_it_too(server: ScriptedServer) -> None:
    settings = {"host": "127.0.0.1", "port": server.port, "security": "plain", "username": "office"}
    account = new_account(
        channel="smtp", address="office@example.com", config=settings, credentials={"password": "wrong"}
    )
    with pytest.raises(CommandError):
        call_command("account_check", "New")
    assert untested(account)
    call_command("account", "set", "New", "--secret", f"password={server.script.password}")
    call_command("account_check", "New")
    assert not untested(account)


# --- test messages ----------------------------------------------------------------------------------------


def test_a_test_message_leads_to_its_run(operator: User) -> None:
    account = AccountFactory.create(owner=operator)
    url = reverse("admin:accounts_account_send_test", args=[account.pk])
    answer = login(operator).post(url, {"to": "+4917612345678"})

    run = Run.objects.get()
    assert answer["Location"] == reverse("admin:fanout_run_change", args=[run.pk])
    assert (run.account_id, run.total, run.targets.get().address) == (account.pk, 1, "+4917612345678")


def test_an_address_that_the_channel_does_not_reach_is_refused(operator: User) -> None:
    account = AccountFactory.create(owner=operator, label="Office", channel="smtp", address="office@example.com")
    url = reverse("admin:accounts_account_send_test", args=[account.pk])
    answer = login(operator).post(url, {"to": "+4917612345678"}, follow=True)

    assert "sends to mailboxes only: no test can go to +4917612345678" in messages(answer)
    assert not Run.objects.exists()
