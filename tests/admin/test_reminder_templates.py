"""Message templates in the reminder's form: chosen per part, checked before saving, shown as Meta will send them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from accounts.channels.templates import Button, Template
from accounts.models import Account, MessageTemplate
from fanout.models import KnownChat
from fanout.runs.freezing import frozen_part
from reminders.models import Reminder
from tests.admin.conftest import login
from tests.admin.forms import PNG, filled, parts, save
from tests.commands.calling import text
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db

ANN, BOB = "+60123456789", "+60123456788"
PASTE = f"address,name,flat\n{ANN},Ann Lee,7\n{BOB},Bob,8"
NEWS = Template("news", "en", body="News from the choir: {{1}}\nReply STOP to get no more.")
NAMED = Template(
    "visit",
    "de",
    named=True,
    header="text",
    header_text="Flat {{flat}}",
    body="Hello {{who}}, we come {{when}}.",
    buttons=(Button("URL", "Plan", "https://a.example/{{1}}"),),
)
POSTER = Template("poster", "en", header="image", body="Hello {{1}}, look!")
PAUSED = Template("old", "en", status="PAUSED", body="Hello.")
TWO_LINES = "Doors open at nine.\nBring a friend."


@pytest.fixture
def account(operator: Any) -> Account:
    return cloud(operator)


def cloud(owner: Any, *templates: Template, **config: Any) -> Account:
    settings = {"phone_number_id": "10200", "business_account_id": "20400", **config}
    account: Account = AccountFactory.create(
        owner=owner, channel="cloud", config=settings, templates_read_at=timezone.now()
    )
    for one in templates or (NEWS, NAMED, POSTER, PAUSED):
        MessageTemplate.objects.create(account=account, name=one.name, language=one.language, content=asdict(one))
    return account


def outlook(user: Any, data: dict[str, Any]) -> Any:
    return login(user).post(reverse("admin:reminders_reminder_forecast"), data).json()["templates"]


def chosen(key: str, number: int = 0, prefix: str = "messages", **values: str) -> dict[str, str]:
    named = {key.replace("__", "."): value for key, value in values.items()}
    return {f"{prefix}-{number}-template_key": key, f"{prefix}-{number}-template_values": json.dumps(named)}


# --- before saving ----------------------------------------------------------------------------------------


def test_a_two_line_reminder_shows_who_gets_nothing(operator: Any, account: Account) -> None:
    KnownChat.objects.create(account=account, address=ANN, heard_at=timezone.now())
    data = filled(account, paste=PASTE, schedule="once", cron="") | parts(TWO_LINES)

    shown = outlook(operator, data)

    assert shown["who"] == "1 of 2 people will not have written within 24 hours before it goes out."
    assert shown["stops"] is True
    (part,) = shown["parts"]
    assert "get nothing of this reminder: part 1 has no template" in part["problem"]
    assert [one["key"] for one in shown["choices"]] == ["news:en", "poster:en", "visit:de"]


def test_the_review_counts_who_gets_nothing(operator: Any, account: Account) -> None:
    KnownChat.objects.create(account=account, address=ANN, heard_at=timezone.now())
    data = filled(account, paste=PASTE, schedule="once", cron="") | parts(TWO_LINES)
    url = reverse("admin:reminders_reminder_forecast")

    said = login(operator).post(url, data).json()["unreached"]
    assert said.startswith("1 of 2 people get nothing: they will not have written within 24 hours")
    reached = data | chosen("news:en", body__1="doors")
    assert login(operator).post(url, reached).json()["unreached"] == ""


def test_people_at_the_edge_of_the_window_count_as_the_lane_counts_them(operator: Any, account: Account) -> None:
    edge = timezone.now() - timedelta(hours=23, minutes=57)
    KnownChat.objects.create(account=account, address=ANN, heard_at=edge)
    data = filled(account, paste=PASTE, schedule="once", cron="") | parts(TWO_LINES)

    assert outlook(operator, data)["who"].startswith("2 of 2 people")


def test_people_count_when_it_goes_out_not_now(operator: Any, account: Account) -> None:
    KnownChat.objects.create(account=account, address=ANN, heard_at=timezone.now())
    at = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M")
    data = filled(account, paste=PASTE, schedule="once", cron="", fire_at=at) | parts(TWO_LINES)

    assert outlook(operator, data)["who"].startswith("2 of 2 people")


def test_the_accounts_template_shows_what_becomes_of_the_lines(operator: Any) -> None:
    account = cloud(operator, NEWS, template="news", template_language="en")
    shown = outlook(operator, filled(account, paste=PASTE) | parts(TWO_LINES))

    assert shown["none"] == "none: texts go by the account's template news (en)"
    (part,) = shown["parts"]
    assert part["way"] == "by the account's template news (en)"
    assert part["text"] == "News from the choir: Doors open at nine. Bring a friend.\nReply STOP to get no more."
    assert part["note"].startswith("Line breaks become spaces")
    assert (shown["stops"], part["problem"]) == (False, "")


def test_the_accounts_template_must_have_one_place_for_the_text(operator: Any) -> None:
    account = cloud(operator, replace(NEWS, body="On {{1}}, {{2}}."), template="news", template_language="en")
    (part,) = outlook(operator, filled(account, paste=PASTE) | parts(TWO_LINES))["parts"]
    assert part["problem"].startswith("Texts cannot go by the account's template news (en): it must have one variable")


def test_a_chosen_template_is_shown_with_a_persons_words(operator: Any, account: Account) -> None:
    data = filled(account, paste=PASTE) | parts(TWO_LINES)
    data |= chosen("visit:de", header__flat="{flat}", body__who="{first_name}", body__when="at nine", button__0="x")

    (part,) = outlook(operator, data)["parts"]

    assert part["text"] == "Flat 7\n\nHello Ann, we come at nine.\n\n[Plan]"
    assert not part["problem"]


def test_other_channels_have_no_templates(operator: Any) -> None:
    assert outlook(operator, filled(AccountFactory.create(owner=operator), paste=PASTE)) is None


def test_why_there_is_nothing_to_choose(operator: Any) -> None:
    account = cloud(operator, PAUSED)
    data = filled(account, paste=PASTE)
    assert outlook(operator, data)["note"] == "The provider lists no approved template that all senders have."
    Account.objects.update(templates_read_at=None)
    assert "Testing the account reads them" in outlook(operator, data)["note"]
    Account.objects.update(templates_problem="Templates could not be read: no")
    assert outlook(operator, data)["note"] == "Templates could not be read: no"


def test_the_forecast_on_the_shell_says_it_too(operator: Any, account: Account) -> None:
    assert save(operator, filled(account, paste=PASTE) | parts(TWO_LINES)).status_code == 302

    said = text("forecast", "Choir")

    assert "2 of 2 people will not have written within 24 hours before it goes out." in said
    assert "part 1 has no template" in said


# --- saving -----------------------------------------------------------------------------------------------


def test_a_template_is_saved_per_part_and_frozen(operator: Any, account: Account) -> None:
    data = filled(account, paste=PASTE) | parts(TWO_LINES, "Flat {flat}") | parts("Thanks", prefix="reply_parts")
    data |= chosen("news:en", body__1="see you, {first_name}") | chosen("news:en", 1, body__1="two")
    data |= chosen("news:en", 0, "reply_parts", body__1="thanks")
    assert save(operator, data).status_code == 302

    reminder = Reminder.objects.get()
    first, second = (frozen_part(reminder, part) for part in reminder.messages.all())
    assert first["personal"] is True
    assert first["template"]["values"] == {"body.1": "see you, {first_name}"}
    assert second["template"]["name"] == "news"
    assert (reminder.reply_parts.get().template or {})["values"] == {"body.1": "thanks"}

    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert '<option value="news:en" selected>news (en)</option>' in page
    assert "see you, {first_name}" in page


def test_a_template_without_a_text_is_the_text(operator: Any, account: Account) -> None:
    data = filled(account, paste=PASTE) | parts("") | chosen("news:en", body__1="doors open, {first_name|friend}.")
    assert save(operator, data).status_code == 302

    part = Reminder.objects.get().messages.get()
    assert part.text == "News from the choir: doors open, {first_name|friend}.\nReply STOP to get no more."


@pytest.mark.parametrize(
    ("key", "values", "sentence"),
    [
        pytest.param("news:en", {}, "Fill in {{1}} in the body.", id="empty"),
        pytest.param("news:en", {"body__1": "a\nb"}, "Write {{1}} in the body on one line", id="two-lines"),
        pytest.param("news:en", {"body__1": "x" * 1025}, "Meta takes at most 1,024", id="too-long"),
        pytest.param("poster:en", {"body__1": "a"}, "starts with an image: add one", id="no-file"),
        pytest.param("old:en", {}, "Meta has paused it", id="paused"),
        pytest.param("gone:en", {}, "does not list the template gone", id="gone"),
        pytest.param("news:en", {"body__1": "for {falt}"}, "In the template of part 1: there is no {falt}", id="name"),
    ],
)
def test_what_meta_would_refuse_is_not_saved(
    operator: Any, account: Account, key: str, values: dict[str, Any], sentence: str
) -> None:
    page = save(operator, filled(account, paste=PASTE) | parts(TWO_LINES) | chosen(key, **values))

    assert page.status_code == 200
    assert sentence in page.content.decode().replace("&#x27;", "'")
    assert not Reminder.objects.exists()


def test_every_sender_must_have_the_template(operator: Any, account: Account) -> None:
    other = cloud(operator, POSTER)
    data = filled(account, paste=PASTE, further=[other.pk]) | parts("Hi") | chosen("news:en", body__1="a")

    assert "does not list the template news" in save(operator, data).content.decode()


def test_a_file_goes_into_the_header(operator: Any, account: Account) -> None:
    from django.core.files.uploadedfile import SimpleUploadedFile

    data = filled(account, paste=PASTE) | parts("Look") | chosen("poster:en", body__1="Ann")
    data |= {"messages-0-kind": "image", "messages-0-upload": SimpleUploadedFile("a.png", PNG, "image/png")}
    assert save(operator, data).status_code == 302
    assert (Reminder.objects.get().messages.get().template or {})["header"] == "image"


def test_another_channel_keeps_no_template(operator: Any, account: Account) -> None:
    assert (
        save(operator, filled(account, paste=PASTE) | parts("Hi") | chosen("news:en", body__1="a")).status_code == 302
    )
    reminder = Reminder.objects.get()
    part = reminder.messages.get()
    line = AccountFactory.create(owner=operator)
    data = filled(line, reminder=reminder.pk, paste="") | parts("Hi") | chosen("news:en", body__1="a")
    data |= {"messages-INITIAL_FORMS": 1, "messages-0-id": part.pk, "messages-0-reminder": reminder.pk}

    assert save(operator, data, reminder.pk).status_code == 302
    part.refresh_from_db()
    assert part.template is None


@pytest.mark.parametrize("posted", ["[1]", "{", '{"body.1": 3}', "x" * 30_000])
def test_values_that_no_script_wrote_are_none(operator: Any, account: Account, posted: str) -> None:
    data = filled(account, paste=PASTE) | parts("Hi") | {"messages-0-template_key": "news:en"}
    page = save(operator, data | {"messages-0-template_values": posted})

    assert page.status_code == 200
    assert not Reminder.objects.exists()
