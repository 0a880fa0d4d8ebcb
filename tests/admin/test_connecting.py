"""Connection requests are chosen on the reminder, and only where the channel has them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from reminders.models import Reminder
from tests.admin.conftest import login
from tests.admin.forms import filled, parts, save
from tests.commands.calling import bad_input, data
from tests.factories import AccountFactory

pytestmark = pytest.mark.django_db


def linkedin(owner: User) -> Any:
    config = {"url": "https://api8.unipile.com:13851", "account_id": "a1"}
    return AccountFactory.create(
        owner=owner, label="Ann", channel="unipile", config=config, credentials={"api_key": "k"}
    )


def add(operator: User, account: Any, **fields: Any) -> Any:
    return save(operator, filled(account, **fields))


def test_a_linkedin_account_connects_where_it_is_asked_to(operator: User) -> None:
    account = linkedin(operator)

    answer = add(operator, account, connect="on", paste="https://www.linkedin.com/in/ann-lee")
    assert answer.status_code == 302
    assert Reminder.objects.get().action == "connection_request"


def test_without_the_choice_it_sends_messages(operator: User) -> None:
    assert add(operator, linkedin(operator), paste="https://www.linkedin.com/in/ann-lee").status_code == 302

    assert Reminder.objects.get().action == "message"


def test_other_channels_say_that_they_cannot(operator: User) -> None:
    answer = add(operator, AccountFactory.create(owner=operator, label="Line"), connect="on")

    assert "Line (Sandbox) sends no connection requests." in answer.content.decode()
    assert not Reminder.objects.exists()


def test_the_choice_is_shown_only_to_those_who_have_such_an_account(operator: User) -> None:
    def shown() -> bool:
        page = login(operator).get(reverse("admin:reminders_reminder_add")).content.decode()
        return '<input type="checkbox" name="connect"' in page

    assert not shown()
    linkedin(operator)
    assert shown()


def test_inmail_is_chosen_in_the_same_way(operator: User) -> None:
    account, ann = linkedin(operator), "https://www.linkedin.com/in/ann-lee"
    assert add(operator, account, inmail="on", subject="Choir", paste=ann).status_code == 302

    reminder = Reminder.objects.get()
    assert (reminder.action, reminder.subject) == ("inmail", "Choir")
    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert re.search(r'name="inmail"[^>]* checked', page)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"connect": "on"}, "Choose connection requests or InMail, not both."),
        (parts("One", "Two"), "An InMail is one message: put everything into one part."),
    ],
)
def test_what_no_inmail_can_be(operator: User, fields: dict[str, Any], sentence: str) -> None:
    ann = {"inmail": "on", "paste": "https://www.linkedin.com/in/ann-lee"}
    answer = add(operator, linkedin(operator), **ann | fields)

    assert sentence in answer.content.decode()
    assert not Reminder.objects.exists()


def test_other_channels_send_no_inmail(operator: User) -> None:
    answer = add(operator, AccountFactory.create(owner=operator, label="Line"), inmail="on")

    assert "Line (Sandbox) sends no InMail." in answer.content.decode()


def test_by_command(operator: User, tmp_path: Any) -> None:
    linkedin(operator)
    AccountFactory.create(owner=operator, label="Line")
    targets = tmp_path / "list"
    targets.write_text("https://www.linkedin.com/in/ann-lee\n")

    data("reminder", "add", "--account", "Ann", "--text", "Let us meet", "--to", str(targets), "--connect")
    assert Reminder.objects.get().action == "connection_request"

    data("reminder", "add", "--account", "Ann", "--title", "In", "--text", "Hi", "--to", str(targets), "--inmail")
    assert Reminder.objects.get(title="In").action == "inmail"
    both = ("reminder", "add", "--account", "Ann", "--text", "Hi", "--to", str(targets), "--inmail", "--connect")
    assert "not both" in bad_input(*both)

    said = bad_input("reminder", "add", "--account", "Line", "--text", "Hi", "--to", str(targets), "--connect")
    assert "Line (Sandbox) sends no connection requests" in said


def test_the_forecast_in_the_form_counts_what_it_would_send(operator: User) -> None:
    """The channel's caps are 20 connection requests and 50 messages a day."""
    pasted = "\n".join(f"https://www.linkedin.com/in/ann-{n}" for n in range(30))
    ask = reverse("admin:reminders_reminder_forecast")
    data = filled(linkedin(operator), paste=pasted, delivery_window_start_hour=0, delivery_window_end_hour=24)
    messages = login(operator).post(ask, data).json()["forecast"]
    requests = login(operator).post(ask, data | {"connect": "on"}).json()["forecast"]

    assert "at 20 a day" in requests
    assert "at 20 a day" not in messages
