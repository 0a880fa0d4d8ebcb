"""`manage.py account_check`: what it says, and what it never says."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import OutputWrapper
from django.db import connections

from accounts.channels.registry import transport_for
from accounts.models import Account
from fanout.engine.clock import SystemClock
from fanout.engine.driver import Driver
from fanout.management.base import NotDone
from fanout.models import Activity, Run
from fanout.models import Driver as Beat
from fanout.ops.tasks import open_ledger
from tests.channels.mail_server import DROP, ScriptedServer, free_port, wait_until
from tests.factories import AccountFactory, DriverFactory


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(auth=True) as running:
        yield running


def mailer(port: int, password: str = "open sesame", **more: Any) -> Account:
    config = {"host": "127.0.0.1", "port": port, "security": "plain", "username": "mailer"}
    given = {"label": "Mailer", "address": "mailer@example.com", "config": config} | more
    account: Any = AccountFactory(channel="smtp", credentials={"password": password}, **given)
    made: Account = account
    return made


def check(*args: str) -> str:
    out = io.StringIO()
    call_command("account_check", *args, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
class TestAccountCheck:
    def test_a_good_account_by_label_and_by_id(self, server: ScriptedServer) -> None:
        account = mailer(server.port)

        said = f"Mailer: 127.0.0.1:{server.port}, not encrypted, signed in as mailer\n"
        assert check("Mailer") == said
        assert check(str(account.pk)) == said
        assert server.mails == []

    def test_a_wrong_password_fails_in_the_servers_words(self, server: ScriptedServer) -> None:
        mailer(server.port, password="open barley")

        with pytest.raises(CommandError, match=r"535 5\.7\.8.*\(auth\)") as caught:
            check("Mailer")
        assert caught.value.returncode == 1
        assert "barley" not in str(caught.value)

    def test_no_server_listens(self) -> None:
        mailer(free_port())

        with pytest.raises(CommandError, match=r"\(network\)") as caught:
            check("Mailer")
        assert caught.value.returncode == 1

    def test_without_a_driver_no_test_message_is_queued(self, server: ScriptedServer) -> None:
        mailer(server.port)

        with pytest.raises(NotDone, match="no test message was queued: no driver is running"):
            check("Mailer", "--send-to", "ann@example.org")
        assert not Run.objects.exists()

    def test_a_message_that_has_to_wait_is_said_to_wait(self, server: ScriptedServer) -> None:
        mailer(server.port)
        DriverFactory.create()

        with pytest.raises(NotDone, match=r"is still pending: .*`manage\.py cancel") as caught:
            check("Mailer", "--send-to", "ann@example.org", "--timeout", "0")
        assert caught.value.data["ok"] is False
        assert Run.objects.get().status == "queued"
        assert server.mails == []

    def test_an_account_that_is_paused_sends_no_test(self, server: ScriptedServer) -> None:
        mailer(server.port, status="paused")
        DriverFactory.create()

        with pytest.raises(NotDone, match="The account Mailer is paused"):
            check("Mailer", "--send-to", "ann@example.org")
        assert not Run.objects.exists()

    def test_json_on_success_and_on_failure(self, server: ScriptedServer) -> None:
        account = mailer(server.port)
        assert json.loads(check("Mailer", "--json")) == {
            "account": account.pk,
            "label": "Mailer",
            "channel": "smtp",
            "ok": True,
            "kind": "",
            "detail": f"127.0.0.1:{server.port}, not encrypted, signed in as mailer",
        }

        server.script.login = "535 5.7.8 no"
        with pytest.raises(NotDone) as caught:
            check("Mailer", "--json")
        assert caught.value.data["kind"] == "auth"
        assert "sesame" not in str(caught.value.data)

    @pytest.mark.parametrize("given", ["Nobody", "123456", "9" * 30])
    def test_no_such_account(self, given: str) -> None:
        with pytest.raises(CommandError, match="There is no account") as caught:
            check(given)
        assert caught.value.returncode == 2
        out = io.StringIO()
        command = load_command_class("fanout", "account_check")
        command.stdout = OutputWrapper(out)
        with pytest.raises(SystemExit) as ended:
            command.run_from_argv(["manage.py", "account_check", given, "--json"])
        assert ended.value.code == 2
        assert "There is no account" in json.loads(out.getvalue())["error"]

    def test_a_label_of_two_owners(self) -> None:
        mailer(1)
        mailer(2)

        with pytest.raises(CommandError, match="name one by its number") as caught:
            check("Mailer")
        assert caught.value.returncode == 2

    @pytest.mark.parametrize(
        ("address", "said"), [("ann@", "--send-to"), ("120363025246125486@g.us", r"Mailer \(smtp\) cannot reach")]
    )
    def test_a_bad_address(self, server: ScriptedServer, address: str, said: str) -> None:
        mailer(server.port)

        with pytest.raises(CommandError, match=said) as caught:
            check("Mailer", "--send-to", address)
        assert caught.value.returncode == 2

    def test_an_unknown_channel_is_one_sentence(self) -> None:
        AccountFactory(label="Pigeon", channel="pigeon")

        with pytest.raises(CommandError, match="No transport for channel") as caught:
            check("Pigeon")
        assert caught.value.returncode == 1

    def test_a_bug_in_a_transport_is_no_traceback_and_no_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mailer(1)

        def broken(config: Any) -> Any:
            raise RuntimeError(f"cannot use {config.credentials['password']}")

        monkeypatch.setattr("accounts.signin.transport_for", broken)
        with pytest.raises(CommandError, match="RuntimeError") as caught:
            check("Mailer")
        assert "sesame" not in str(caught.value)


# --- through the lane ---------------------------------------------------------------------------------------


@pytest.fixture
def driven(transactional_db: None) -> Iterator[None]:
    """A real driver beside the command, as in a cluster."""
    driver = Driver(SystemClock(), open_ledger, transport_for, capacity=8, slice_seconds=60)

    def drive() -> None:
        asyncio.run(driver.run())
        connections.close_all()

    driving = threading.Thread(target=drive)
    driving.start()
    wait_until(Beat.objects.exists)
    yield
    driver.stopping = True
    driving.join()


def test_a_test_message_goes_through_the_lane(driven: None, server: ScriptedServer) -> None:
    account = mailer(server.port)

    assert "accepted (Q1)" in check("Mailer", "--send-to", "Ann@Example.org")
    assert "accepted (Q2)" in check("Mailer", "--send-to", "Ann@Example.org")
    assert server.mails[0].to == ["ann@example.org"]
    assert server.mails[0].message["Subject"] == "Test message from Crier"
    # Caps and charts know of it, and both belong to one reminder.
    assert Activity.objects.filter(account=account, action="email", outcome="sent").count() == 2
    assert account.reminders.get().runs.count() == 2


@pytest.mark.parametrize(
    ("answer", "said"), [("550 5.1.1 nobody", "refused: 550 5.1.1 nobody"), (DROP, "may have gone out")]
)
def test_a_test_message_that_is_not_accepted(driven: None, server: ScriptedServer, answer: str, said: str) -> None:
    mailer(server.port)
    server.script.dot = answer

    with pytest.raises(NotDone, match=said):
        check("Mailer", "--send-to", "ann@example.org")
