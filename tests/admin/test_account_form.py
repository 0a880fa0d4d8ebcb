"""The account's form: settings and credentials of every channel, presets, pace, and saving."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from accounts.channels.registry import channels
from accounts.models import Account
from fanout.admin.account_form import AccountForm
from fanout.models import Event, LaneState
from tests.admin.conftest import login
from tests.admin.forms import account_form
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db
KEY = {"client_email": "crier@project.iam", "private_key": "s3cret"}
SMTP = {"channel": "smtp", "address": "office@example.com", "setting_host": "mail.example.com"}
WAHA = {"channel": "waha", "setting_url": "https://waha.example.com", "secret_api_key": "s3cret"}


def key_file(text: str = json.dumps(KEY)) -> SimpleUploadedFile:
    return SimpleUploadedFile("key.json", text.encode())


def add(operator: User, **fields: Any) -> Any:
    return login(operator).post(reverse("admin:accounts_account_add"), account_form(**fields))


def errors(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


@pytest.mark.parametrize("key", channels())
def test_every_channel_has_inputs_for_all_its_fields(operator: User, key: str) -> None:
    page = login(operator).get(reverse("admin:accounts_account_add"), {"channel": key}).content.decode()

    for field in channels()[key].fields:
        assert f'name="{"secret" if field.secret else "setting"}_{field.name}"' in page


def test_the_channel_is_chosen_first(operator: User) -> None:
    page = login(operator).get(reverse("admin:accounts_account_add")).content.decode()

    assert all(f'href="?channel={key}"' in page for key in channels())
    assert 'name="label"' not in page


@pytest.mark.parametrize(
    ("fields", "box", "said"),
    [
        pytest.param(SMTP | {"setting_host": ""}, "setting_host", "Server is missing.", id="no host"),
        pytest.param(
            {"channel": "wassenger", "setting_device": "my phone", "secret_token": "k"},
            "setting_device",
            "Device must be an id of 24 digits and letters from a to f.",
            id="no device id",
        ),
        pytest.param(
            {"channel": "cloud", "setting_phone_number_id": "+49 30 12345", "secret_access_token": "k"},
            "setting_phone_number_id",
            "Phone number ID must be a number of at least 5 digits, without + or spaces.",
            id="number instead of its id",
        ),
        pytest.param(
            SMTP | {"setting_host": "mail.example.com:587"},
            "setting_host",
            "Server must be a host name such as mail.example.com.",
            id="host with a port",
        ),
        pytest.param(
            SMTP | {"setting_port": "abc"},
            "setting_port",
            "Port must be a whole number from 1 to 65535.",
            id="port",
        ),
        pytest.param(
            SMTP | {"setting_reply_to": "office"},
            "setting_reply_to",
            "Reply to must be a mail address such as office@example.com.",
            id="reply to nowhere",
        ),
        pytest.param(SMTP | {"address": ""}, "address", "Mail needs a sender", id="no sender"),
        pytest.param(SMTP | {"address": "office"}, "address", "", id="an address that is none"),
        pytest.param(WAHA | {"address": "office"}, "address", "This is not a phone number.", id="no number"),
        pytest.param(WAHA | {"secret_api_key": ""}, "secret_api_key", "API key is missing.", id="no key"),
        pytest.param(
            WAHA | {"setting_url": "waha"}, "setting_url", "Address must be an address such as https", id="no url"
        ),
        pytest.param(
            {"channel": "gmail", "address": "a@b.cd"},
            "secret_service_account",
            "Service account key is missing.",
            id="no key file",
        ),
        pytest.param(
            {"channel": "gmail", "address": "a@b.cd", "secret_service_account": key_file("s3cret")},
            "secret_service_account",
            "Service account key must be a JSON object.",
            id="another file",
        ),
        pytest.param(SMTP | {"daily_limit_email": "many"}, "daily_limit_email", "daily_limit_email takes", id="cap"),
        pytest.param(SMTP | {"send_burst": "0"}, "send_burst", "send_burst must be between 1", id="knob"),
        pytest.param(SMTP | {"hours_start": "9"}, "hours_end", "Give both business hours", id="hours"),
    ],
)
def test_an_error_is_shown_at_its_input(operator: User, fields: dict[str, Any], box: str, said: str) -> None:
    answer = add(operator, **fields)

    found = errors(answer)
    again = [name for name, value in fields.items() if name.startswith("secret_") and value and name != box]
    assert list(found) == [box, *again]
    assert said in found[box][0]
    assert all(found[name] == ["Enter it again: a secret is not sent back to the page."] for name in again)
    assert "s3cret" not in answer.content.decode()
    assert not Account.objects.exists()


def test_a_secret_that_is_lost_by_another_error_is_asked_for_again(operator: User) -> None:
    """The page comes back with its box empty, which otherwise means: keep what is stored."""
    add(operator, **SMTP, secret_password="old s3cret")
    account = Account.objects.get()
    data = account_form(**SMTP, secret_password="n3w s3cret", setting_port="abc")
    answer = login(operator).post(reverse("admin:accounts_account_change", args=[account.pk]), data)
    assert list(errors(answer)) == ["setting_port", "secret_password"]
    assert "s3cret" not in answer.content.decode()
    account.refresh_from_db()
    assert account.credentials == {"password": "old s3cret"}


def test_a_section_with_an_error_opens(operator: User) -> None:
    closed = login(operator).get(reverse("admin:accounts_account_add"), {"channel": "smtp"}).content.decode()
    opened = add(operator, **SMTP, setting_timeout="soon", hours_start="9").content.decode()

    assert (closed.count("<details><summary>"), opened.count("<details><summary>")) == (3, 1)


def test_typed_values_are_stored_with_their_types(operator: User) -> None:
    add(operator, **SMTP, setting_port="2525", setting_security="tls", secret_password="s3cret", setting_timeout="2.5")

    account = Account.objects.get()
    assert account.config == {
        "host": "mail.example.com",
        "port": 2525,
        "security": "tls",
        "timeout": 2.5,
        "verify": False,
    }
    assert account.credentials == {"password": "s3cret"}


def test_a_key_file_is_uploaded(operator: User) -> None:
    add(operator, channel="gmail", address="a@b.cd", secret_service_account=key_file())

    assert Account.objects.get().credentials == {"service_account": KEY}


def test_untouched_defaults_are_not_stored(operator: User) -> None:
    account = AccountFactory.create(
        owner=operator, channel="smtp", label="Line", address="office@example.com", credentials={"password": "s3cret"}
    )
    url = reverse("admin:accounts_account_change", args=[account.pk])
    as_shown = {"setting_security": "starttls", "setting_verify": "on", "setting_port": "", "setting_timeout": ""}
    assert login(operator).post(url, account_form(**SMTP, **as_shown)).status_code == 302

    account.refresh_from_db()
    assert (account.config, account.credentials) == ({"host": "mail.example.com"}, {"password": "s3cret"})


def test_settings_that_the_channel_no_longer_has_are_dropped(operator: User) -> None:
    account = AccountFactory.create(
        owner=operator, label="Line", channel="smtp", address="a@b.cd", config={"host": "h", "hots": "x"}
    )
    url = reverse("admin:accounts_account_change", args=[account.pk])
    login(operator).post(url, account_form(address="a@b.cd", setting_host="h", setting_verify="on"))

    account.refresh_from_db()
    assert account.config == {"host": "h"}


def test_an_account_whose_channel_is_gone_says_so_and_keeps_its_settings(operator: User) -> None:
    account = AccountFactory.create(owner=operator, label="Line", channel="pigeon", config={"loft": "north"})
    url = reverse("admin:accounts_account_change", args=[account.pk])
    assert login(operator).get(url).status_code == 200
    answer = login(operator).post(url, account_form(label="Line 2"))

    assert "Unknown channel &#x27;pigeon&#x27;" in answer.content.decode()
    account.refresh_from_db()
    assert (account.label, account.config) == ("Line", {"loft": "north"})


def test_the_channel_of_an_account_stays(operator: User) -> None:
    account = AccountFactory.create(owner=operator, label="Line", config={})
    url = reverse("admin:accounts_account_change", args=[account.pk])
    login(operator).post(url, account_form(**SMTP))

    account.refresh_from_db()
    assert account.channel == "sandbox"


def test_one_secret_can_be_replaced_and_the_others_stay(operator: User) -> None:
    account = AccountFactory.create(
        owner=operator,
        label="Line",
        channel="waha",
        config={"url": "https://waha.example.com"},
        credentials={"api_key": "old", "hmac_key": "h"},
    )
    url = reverse("admin:accounts_account_change", args=[account.pk])
    page = login(operator).get(url).content.decode()
    assert "Stored; leave empty to keep it." in page
    login(operator).post(url, account_form(**WAHA | {"secret_api_key": "new"}))

    account.refresh_from_db()
    assert account.credentials == {"api_key": "new", "hmac_key": "h"}


# --- what to start from -----------------------------------------------------------------------------------


def initial(operator: User, **asked: str) -> dict[str, Any]:
    answer = login(operator).get(reverse("admin:accounts_account_add"), asked)
    form = answer.context["adminform"].form
    return {name: form[name].value() for name in form.fields if form[name].value() not in (None, "", False)}


def test_a_provider_fills_in_its_server(operator: User) -> None:
    started = initial(operator, channel="smtp", provider="fastmail")

    assert started["setting_host"] == "smtp.fastmail.com"
    assert (started["setting_port"], started["setting_security"]) == (465, "tls")


def test_a_preset_fills_in_the_pace(operator: User) -> None:
    started = initial(operator, channel="smtp", preset="cold-mail")

    assert (started["min_gap_seconds"], started["daily_limit_email"], started["hours_start"]) == (360, 20, 9)


def test_a_preset_of_another_channel_does_not(operator: User) -> None:
    assert "min_gap_seconds" not in initial(operator, channel="waha", preset="cold-mail")


def test_values_of_a_preset_count_when_they_are_sent(operator: User) -> None:
    """Also from the page that had filled them in."""
    url = f"{reverse('admin:accounts_account_add')}?channel=smtp&preset=cold-mail"
    login(operator).post(url, account_form(**SMTP, min_gap_seconds=360, max_gap_seconds=1200, daily_limit_email=20))

    account = Account.objects.get()
    assert (account.min_gap_seconds, account.daily_limits.get().limit) == (360, 20)


@pytest.mark.parametrize("provider", channels()["smtp"].providers, ids=lambda provider: provider.name)
def test_a_providers_settings_are_those_of_the_channel(provider: Any) -> None:
    assert channels()["smtp"].setting_problems(provider.settings) == []


# --- the pace table ---------------------------------------------------------------------------------------


def pace_rows(operator: User, account: Account) -> dict[str, Any]:
    answer = login(operator).get(reverse("admin:accounts_account_change", args=[account.pk]))
    return {row.name: row for row in answer.context["pace_rows"]}


def test_a_new_accounts_daily_cap_is_told_where_it_is_made(operator: User, settings: Any) -> None:
    def page(key: str) -> str:
        answer = login(operator).get(reverse("admin:accounts_account_add"), {"channel": key})
        return str(answer.content.decode())

    assert "It sends at most 20 emails a day (site default)." in page("smtp")
    assert 'id="caps"' not in page("waha")


def test_the_pace_table_shows_values_and_their_sources(operator: User, settings: Any) -> None:
    settings.BOT = {"send_burst": 7}
    account = AccountFactory.create(owner=operator, channel="waha", batch_size=10)
    rows = pace_rows(operator, account)

    said = {name: (rows[name].value, rows[name].source, rows[name].otherwise) for name in rows}
    assert said["batch_size"] == ("10", "this account", "0")
    assert said["send_burst"] == ("7", "site default", "7")
    assert said["max_send_per_minute"] == ("20", "from channel", "20")
    assert said["part_jitter_min_ms"] == ("200", "Crier's default", "200")
    assert said["daily_limit_message"] == ("none", "no cap", "none")
    assert 'placeholder="20"' in str(rows["max_send_per_minute"].field)


def test_viewers_see_the_same_values_without_inputs(operator: User, viewer: User, team: Any) -> None:
    account = AccountFactory.create(owner=operator, team=team, config={"account": "harbour"}, batch_size=12)
    page = login(viewer).get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()

    assert "<b>12</b>" in page
    assert "Account: harbour" in page
    assert 'name="batch_size"' not in page
    assert "Test and save" not in page


def test_no_cap_is_a_value_of_its_own(operator: User) -> None:
    account = AccountFactory.create(owner=operator, channel="smtp", address="office@example.com", label="Line")
    url = reverse("admin:accounts_account_change", args=[account.pk])
    assert pace_rows(operator, account)["daily_limit_email"].value == "20"
    login(operator).post(url, account_form(**SMTP, setting_verify="on", daily_limit_email="none"))
    assert pace_rows(operator, account)["daily_limit_email"].value == "none"
    login(operator).post(url, account_form(**SMTP, setting_verify="on", daily_limit_email=""))
    assert not account.daily_limits.exists()


def test_credentials_are_written_and_never_shown(operator):
    client = login(operator)
    client.post(reverse("admin:accounts_account_add"), account_form(secret_key="s3cret-word"))
    account = Account.objects.get()
    assert account.credentials == {"key": "s3cret-word"}
    page = client.get(reverse("admin:accounts_account_change", args=[account.pk])).content.decode()
    assert "s3cret-word" not in page
    assert "Stored: key" in page
    # An edit that leaves the field empty keeps them.
    client.post(
        reverse("admin:accounts_account_change", args=[account.pk]), account_form(label="Line 2", send_days=[1, 2])
    )
    account = Account.objects.get()
    assert (account.label, account.send_days, account.credentials) == ("Line 2", [1, 2], {"key": "s3cret-word"})
    assert "s3cret-word" not in str(list(LogEntry.objects.values_list("change_message", flat=True)))


def test_a_change_leaves_the_same_lines_as_the_shell_does(operator):
    account = AccountFactory.create(owner=operator, channel="sandbox", label="Line", config={})
    changed = account_form(
        max_send_per_minute=30, secret_key="s3cret-word", timezone="Asia/Tokyo", daily_limit_message=500
    )
    answer = login(operator).post(reverse("admin:accounts_account_change", args=[account.pk]), changed)
    assert answer.status_code == 302
    noted = set(Event.objects.values_list("verb", "detail", "actor"))
    assert noted == {
        ("changed", "timezone, key", operator.pk),
        ("tuned", "max_send_per_minute: 40 → 30, daily_limit_message: none → 500", operator.pk),
    }
    assert LaneState.objects.get(account=account).wake_count == 1


def test_a_save_keeps_what_the_engine_wrote_meanwhile(operator, monkeypatch):
    account = AccountFactory.create(owner=operator, channel="sandbox", label="Line", config={})
    form_save = AccountForm.save

    def suspended_meanwhile(form, commit=True):
        Account.objects.update(status="suspended", status_reason="banned")
        return form_save(form, commit)

    monkeypatch.setattr(AccountForm, "save", suspended_meanwhile)
    url = reverse("admin:accounts_account_change", args=[account.pk])
    login(operator).post(url, account_form(label="Line 2"))
    account.refresh_from_db()
    assert (account.label, account.status, account.status_reason) == ("Line 2", "suspended", "banned")


def test_a_label_is_used_once_per_owner(operator):
    AccountFactory.create(owner=operator, label="Line")
    answer = login(operator).post(reverse("admin:accounts_account_add"), account_form())
    assert answer.status_code == 200
    assert Account.objects.count() == 1
