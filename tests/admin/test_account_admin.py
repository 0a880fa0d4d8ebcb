"""Accounts: test and save, the badge “Not tested”, test messages, and the figures of the list."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from accounts.signin import SignIn
from fanout.admin import account_admin
from fanout.admin.account_admin import standings
from fanout.lanes import accounts
from fanout.lanes.accounts import add_account, changing
from fanout.models import Event, Run
from tests.admin.conftest import login
from tests.admin.forms import account_form
from tests.channels.mail_server import ScriptedServer
from tests.factories import AccountFactory, ActivityFactory, LaneStateFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
DAY = timedelta(days=1)

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


def test_an_account_that_signs_in_is_saved_and_counts_as_tested(operator: User, server: ScriptedServer) -> None:
    answer = add(operator, typed(server))

    account = Account.objects.get()
    assert account.untested_since is None
    assert "Office: " in messages(answer)
    assert ">Active</span>" in answer.content.decode()
    assert Event.objects.filter(account=account, verb="tested", actor=operator).exists()
    assert server.mails == []


def test_an_account_that_cannot_sign_in_is_not_saved(operator: User, server: ScriptedServer) -> None:
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


def test_an_invalid_form_does_not_reach_the_provider(operator: User, server: ScriptedServer) -> None:
    add(operator, typed(server, label=""))

    assert not server.book.sessions


def test_people_without_permission_do_not_reach_the_provider(
    viewer: User, colleague: User, operator: User, server: Any
) -> None:
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

    monkeypatch.setattr("fanout.admin.account_admin.sign_in", asked)
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
    ("change", "needs_proof"),
    [
        pytest.param({"config": {"account": "another"}}, True, id="destination"),
        pytest.param({"credentials": {"key": "k"}}, True, id="credentials"),
        pytest.param({"label": "Renamed"}, False, id="label"),
        pytest.param({"max_send_per_minute": 5}, False, id="pace"),
    ],
)
def test_a_change_of_where_it_goes_needs_a_new_proof(change: dict[str, Any], needs_proof: bool) -> None:
    account = AccountFactory.create()
    with changing(account, None, timezone.now()) as changed:
        for name, value in change.items():
            setattr(changed.account, name, value)

    assert untested(account) is needs_proof


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


@pytest.mark.django_db
def test_figures_of_accounts(django_assert_num_queries: Any) -> None:
    busy, idle = AccountFactory.create_batch(2, timezone="UTC")
    run = RunFactory.create(account=busy, status="running", targets={"sent": 30, "pending": 7})
    for n, target in enumerate(run.targets.filter(status="sent"), start=1):
        ActivityFactory.create(account=busy, run_target=target, at=NOW - timedelta(seconds=2 * n))
    ActivityFactory.create_batch(10, account=busy, outcome="failed", at=NOW - timedelta(hours=1))
    ActivityFactory.create_batch(4, account=idle, at=NOW - DAY)
    with django_assert_num_queries(3):
        stands = standings([busy, idle], NOW)
    now = stands[busy.pk]
    assert (now.sent, now.failed, now.pending, now.rate(40)) == (30, 10, 7, "30 of 40 / min")
    assert now.error_share == 0.25
    assert now.last_at == NOW - timedelta(seconds=2)
    then = stands[idle.pk]
    assert (then.sent, then.queue, then.rate(40), then.rate(0)) == (0, "–", "40 / min", "no limit")
    assert then.last_at == NOW - DAY
    assert (now.today, then.today) == ("30", "0")


@pytest.mark.django_db
def test_a_day_that_was_not_counted_to_its_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_admin, "MOST_COUNTED", 5)
    account = AccountFactory.create(timezone="UTC")
    ActivityFactory.create_batch(2, account=account, at=NOW - timedelta(minutes=1))
    ActivityFactory.create_batch(3, account=account, outcome="failed", at=NOW - timedelta(minutes=2))
    assert standings([account], NOW)[account.pk].today == "2"
    ActivityFactory.create_batch(9, account=account, at=NOW - timedelta(minutes=3))
    assert standings([account], NOW)[account.pk].today == "3+"


@pytest.mark.parametrize("timeouts", [0, 3])
def test_the_page_says_that_the_provider_does_not_answer(operator: User, timeouts: int) -> None:
    account = AccountFactory.create(owner=operator)
    LaneStateFactory.create(account=account, timeouts=timeouts)
    page = login(operator).get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()
    assert ("The provider did not answer in time 3 times in a row; each time" in page) is bool(timeouts)


def test_the_page_says_which_refusals_are_our_fault_and_what_to_do(client: Any, admin_user: User) -> None:
    account = AccountFactory.create(channel="smtp", address="m@example.com", config={"host": "mail.example.com"})
    target = RunTargetFactory.create(
        run__account=account,
        account=account,
        status="failed",
        error_kind="sender_rejected",
        error="550 5.7.26 Unauthenticated email: DMARC <b>policy</b>",
    )
    ActivityFactory.create(
        account=account, run_target=target, action="email", outcome="failed", kind="sender_rejected", at=timezone.now()
    )
    client.force_login(admin_user)

    page = client.get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()

    assert "Mail health" in page
    assert "Refused: SPF, DKIM or DMARC" in page
    assert "Fix the sender&#x27;s domain: publish SPF and DKIM records" in page
    assert "550 5.7.26 Unauthenticated email: DMARC &lt;b&gt;policy&lt;/b&gt;" in page
