"""`manage.py account_check`: what it says, and what it never says."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.models import Account
from tests.factories import AccountFactory
from tests.transports.mail_server import DROP, ScriptedServer, free_port


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

    def test_a_test_message(self, server: ScriptedServer) -> None:
        mailer(server.port)

        assert "accepted (Q1)" in check("Mailer", "--send-to", "Ann@Example.org")
        assert server.mails[0].to == ["ann@example.org"]
        assert server.mails[0].message["Subject"] == "Test message from Crier"

    def test_a_wrong_password_fails_in_the_servers_words(self, server: ScriptedServer) -> None:
        mailer(server.port, password="open barley")

        with pytest.raises(CommandError, match=r"535 5\.7\.8.*\(auth\)") as caught:
            check("Mailer")
        assert caught.value.returncode == 1
        assert "barley" not in str(caught.value)

    def test_nobody_listens(self) -> None:
        mailer(free_port())

        with pytest.raises(CommandError, match=r"\(network\)") as caught:
            check("Mailer")
        assert caught.value.returncode == 1

    @pytest.mark.parametrize(
        ("answer", "said"), [("550 5.1.1 nobody", "refused: 550 5.1.1 nobody"), (DROP, "may have gone out")]
    )
    def test_a_test_message_that_is_not_accepted(self, server: ScriptedServer, answer: str, said: str) -> None:
        mailer(server.port)
        server.script.dot = answer

        with pytest.raises(CommandError, match=said) as caught:
            check("Mailer", "--send-to", "ann@example.org")
        assert caught.value.returncode == 1

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
        out = io.StringIO()
        with pytest.raises(CommandError):
            call_command("account_check", "Mailer", "--json", stdout=out)
        assert json.loads(out.getvalue())["kind"] == "auth"
        assert "sesame" not in out.getvalue()

    @pytest.mark.parametrize("given", ["Nobody", "123456", "9" * 30])
    def test_no_such_account(self, given: str) -> None:
        with pytest.raises(CommandError, match="no account") as caught:
            check(given)
        assert caught.value.returncode == 2

    def test_a_label_of_two_owners(self) -> None:
        mailer(1)
        mailer(2)

        with pytest.raises(CommandError, match="one of the ids") as caught:
            check("Mailer")
        assert caught.value.returncode == 2

    def test_a_bad_address(self, server: ScriptedServer) -> None:
        mailer(server.port)

        with pytest.raises(CommandError, match="--send-to") as caught:
            check("Mailer", "--send-to", "ann@")
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

        monkeypatch.setattr("accounts.management.commands.account_check.transport_for", broken)
        with pytest.raises(CommandError, match="RuntimeError") as caught:
            check("Mailer")
        assert "sesame" not in str(caught.value)
