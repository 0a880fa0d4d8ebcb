"""`manage.py account`: accounts from a script."""

from __future__ import annotations

import io

import pytest
from cryptography.fernet import Fernet

from accounts.models import Account
from fanout.models import Event, LaneState
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db


def test_add_prints_the_number(owner, tmp_path):
    (tmp_path / "pw").write_text("s3cret\n")
    words = ("--channel", "smtp", "--label", "Office", "--set", "host=mail.example.com", "--set", "port=587")
    more = ("--set", "address=office@example.com", "--set", "timezone=Europe/Berlin")
    printed = text("account", "add", *words, *more, "--secret", f"password=@{tmp_path}/pw")
    account = Account.objects.get()
    assert printed.strip() == str(account.pk)
    assert account.config == {"host": "mail.example.com", "port": 587}
    assert account.credentials == {"password": "s3cret"}
    assert account.timezone == "Europe/Berlin"


def test_a_secret_never_lands_among_the_settings(owner):
    pairs = ("--set", "host=h", "--set", "address=a@b.cd", "--set", "password=x")
    text("account", "add", "--channel", "smtp", "--label", "Office", *pairs)
    account = Account.objects.get()
    assert "password" not in account.config
    assert account.credentials["password"] == "x"


def test_set_changes_and_tells_the_lane():
    account = AccountFactory.create(label="Line", config={"url": "http://127.0.0.1:8765", "timeout": 5})
    text("account", "set", "Line", "--set", "timeout=", "--set", "hours_start=9", "--set", "hours_end=17")
    account.refresh_from_db()
    assert (account.config, account.hours_start, account.hours_end) == ({"url": "http://127.0.0.1:8765"}, 9, 17)
    assert Event.objects.get().detail == "timeout, hours_start, hours_end"
    assert LaneState.objects.get().wake_count == 1


def test_a_changed_secret_is_noted_by_its_name_only():
    account = AccountFactory.create(label="Line", credentials={"key": "old"})
    text("account", "set", "Line", "--secret", "key=n3w-word", "--set", "send_burst=7")
    account.refresh_from_db()
    assert account.credentials == {"key": "n3w-word"}
    noted = list(Event.objects.values_list("verb", "detail"))
    assert noted == [("changed", "key"), ("tuned", "send_burst: 3 → 7")]


def test_secrets_can_be_entered_again_after_their_key_is_lost(settings):
    account = AccountFactory.create(label="Line", credentials={"key": "old"})
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    text("account", "set", "Line", "--set", "timezone=Asia/Tokyo")
    text("account", "set", "Line", "--secret", "key=new")
    account.refresh_from_db()
    assert (account.timezone, account.credentials) == ("Asia/Tokyo", {"key": "new"})


def test_days_are_set_and_given_back():
    account = AccountFactory.create(label="Line")
    for raw, days in (("1, 5", [1, 5]), ("", None)):
        text("account", "set", "Line", "--set", f"send_days={raw}")
        account.refresh_from_db()
        assert account.send_days == days


def test_a_secret_is_always_text(tmp_path, monkeypatch):
    account = AccountFactory.create(label="Line")
    (tmp_path / "pw").write_text("1e5\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("true\n"))
    for raw, stored in ((f"@{tmp_path}/pw", "1e5"), ("-", "true")):
        text("account", "set", "Line", "--secret", f"key={raw}")
        account.refresh_from_db()
        assert account.credentials == {"key": stored}


def test_a_secret_that_is_no_text_is_one_sentence(tmp_path):
    AccountFactory(label="Line")
    (tmp_path / "pw").write_bytes(b"\xff\xfe\x00")
    assert "it is not UTF-8 text" in bad_input("account", "set", "Line", "--secret", f"password=@{tmp_path}/pw")


def test_hook_prints_the_address_and_renews_it():
    account = AccountFactory.create(label="Line")
    first = text("account", "hook", "Line").strip()
    assert text("account", "hook", "Line").strip() == first
    second = data("account", "hook", "Line", "--renew")["hook"]
    assert second != first
    account.refresh_from_db()
    assert second.endswith(f"/hooks/sandbox/{account.hook_token}")
    AccountFactory.create(label="Mail", channel="smtp")
    assert "Mail has no webhook" in not_done("account", "hook", "Mail")
    assert "Mail has no webhook" in bad_input("account", "hook", "Mail", "--renew")


def test_list_shows_no_credentials():
    AccountFactory(label="Line", credentials={"password": "s3cret"})
    (found,) = data("account", "list")["accounts"]
    assert (found["label"], found["status"]) == ("Line", "active")
    assert "s3cret" not in text("account", "list") + str(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(("add", "--channel", "pigeon", "--label", "x"), "Unknown channel 'pigeon'", id="channel"),
        pytest.param(("add", "--channel", "smtp", "--label", "x"), "its own mail address", id="no sender"),
        pytest.param(("add", "--channel", "sandbox", "--label", "x", "--set", "y"), "is not KEY=VALUE", id="pair"),
        pytest.param(
            ("add", "--channel", "sandbox", "--label", "x", "--set", "daily_limit=100000"),
            "There is no setting “daily_limit”: Sandbox has",
            id="unknown setting",
        ),
        pytest.param(("set", "Line", "--set", "daily_limit=9"), "caps are set with `manage.py tune`", id="a cap"),
        pytest.param(("set", "Line", "--secret", "word=9"), "There is no credential “word”", id="unknown secret"),
        pytest.param(("set", "nobody", "--set", "a=b"), "There is no account", id="unknown"),
        pytest.param(("set", "Line", "--set", "timezone=Mars"), "is not a timezone", id="timezone"),
        pytest.param(("set", "Line", "--set", "send_burst=lots"), "must be a", id="number"),
        pytest.param(("set", "Line", "--set", "send_days=mon,tue"), "not 'mon'", id="names of days"),
        pytest.param(("set", "Line", "--set", "send_days=1,8"), "not '8'", id="eighth day"),
        pytest.param(("set", "Line", "--secret", "key=@/nowhere"), "cannot be read", id="file"),
        pytest.param(("set", "Line", "--set", "timeout=abc"), "“timeout” is 'abc'; it must be a number", id="type"),
        pytest.param(("set", "Line", "--set", "hots=h"), "no setting “hots”: Sandbox has url, account", id="setting"),
        pytest.param(("set", "Line", "--secret", "token=t"), "no credential “token”: Sandbox has key", id="secret"),
        pytest.param(("add", "--channel", "sandbox", "--label", "Line"), "already exists", id="label twice"),
        pytest.param((), "required", id="nothing"),
    ],
)
def test_bad_accounts_are_one_sentence(owner, words, says):
    AccountFactory(label="Line", owner=owner)
    before = list(Account.objects.values())
    assert says in bad_input("account", *words)
    assert list(Account.objects.values()) == before
