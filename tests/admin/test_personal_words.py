"""Placeholders in the reminder's form, and fields on the recipient's page."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from reminders.models import Recipient, Reminder
from tests.admin.conftest import login
from tests.admin.forms import filled, parts, save
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, ReminderTargetFactory

pytestmark = pytest.mark.django_db
PASTE = "address,name,flat\n+60123456789,Ann Lee,7\n+60123456788,Bob,8"


@pytest.fixture
def account(operator):
    return AccountFactory.create(owner=operator)


def preview(user: Any, data: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = login(user).post(reverse("admin:reminders_reminder_forecast"), data).json()
    return answer


def test_a_pasted_list_brings_the_fields_that_the_text_names(operator, account):
    data = filled(account, paste=PASTE) | parts("Flat {flat}, {name}")
    shown = preview(operator, data)
    assert shown["wording"] == ""
    assert [(one["to"], one["parts"][0]["text"]) for one in shown["examples"]] == [
        ("Ann Lee", "Flat 7, Ann Lee"),
        ("Bob", "Flat 8, Bob"),
    ]
    assert save(operator, data).status_code == 302
    assert Recipient.objects.get(name="Bob").fields == {"flat": "8"}


def test_an_unknown_name_is_refused_and_named_while_typing(operator, account):
    data = filled(account, paste=PASTE) | parts("Hello", "Flat {falt}")
    sentence = "In part 2: there is no {falt}. The recipients have {name}, {first_name}, {flat}."
    assert sentence in preview(operator, data)["wording"]
    page = save(operator, data)
    assert page.status_code == 200
    assert sentence in page.content.decode()
    assert not Reminder.objects.exists()


def test_a_removed_part_does_not_count(operator, account):
    data = filled(account, paste=PASTE) | parts("Hello", "Flat {falt}") | {"messages-1-DELETE": "on"}
    assert preview(operator, data)["wording"] == ""


def test_targets_that_stay_are_checked_with_those_that_come(operator, account):
    reminder = ReminderFactory.create(owner=operator, account=account)
    for n, fields in enumerate([{"flat": "1"}, {}]):
        recipient = RecipientFactory.create(owner=operator, fields=fields, tags=["old"])
        ReminderTargetFactory.create(reminder=reminder, recipient=recipient, position=n)
    data = filled(account, paste=PASTE, reminder=reminder.pk) | parts("{flat}")
    assert "1 of 4 recipients have no value for {flat}" in preview(operator, data)["wording"]
    assert preview(operator, data | {"clear": "on"})["wording"] == ""
    assert "1 of 4" in preview(operator, data | {"clear": "on", "tag": "old"})["wording"]


def test_a_preview_with_another_operators_reminder_shows_no_recipients(operator, account):
    theirs = ReminderFactory.create()
    ReminderTargetFactory.create(reminder=theirs, recipient__name="Secret", recipient__owner=theirs.owner)
    shown = preview(operator, filled(account, reminder=theirs.pk) | parts("Hi {name}"))
    assert shown["examples"] == []


# --- the recipient's page -------------------------------------------------------------------------------------


def change(user: Any, recipient: Recipient, *rows: tuple[str, str]) -> Any:
    data = {
        "kind": recipient.kind,
        "address": recipient.address,
        "name": recipient.name,
        "tags": "",
        "status": "active",
        "fields-name": [name for name, _ in rows],
        "fields-value": [value for _, value in rows],
    }
    return login(user).post(reverse("admin:reminders_recipient_change", args=[recipient.pk]), data)


def test_fields_are_rows_of_a_name_and_a_value(operator):
    recipient = RecipientFactory.create(owner=operator, fields={"flat": "1", "floor": "2"})
    page = login(operator).get(reverse("admin:reminders_recipient_change", args=[recipient.pk])).content.decode()
    assert 'name="fields-name" value="flat"' in page
    assert change(operator, recipient, ("flat", "<9>"), ("floor", ""), ("House No.", "3"), ("", "")).status_code == 302
    recipient.refresh_from_db()
    assert recipient.fields == {"flat": "<9>", "house_no": "3"}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        pytest.param([("flat", "1"), ("Flat", "2")], "two fields called “flat”", id="twice"),
        pytest.param([("name", "1")], "cannot be called “name”", id="taken"),
        pytest.param([("…", "1")], "cannot be the name of a field", id="no-letters"),
        pytest.param([("flat", "x" * 501)], "its value 500", id="long"),
    ],
)
def test_fields_that_cannot_be(operator, rows, sentence):
    recipient = RecipientFactory.create(owner=operator, fields={"flat": "1"})
    page = change(operator, recipient, *rows)
    assert page.status_code == 200
    assert sentence in page.content.decode()
    recipient.refresh_from_db()
    assert recipient.fields == {"flat": "1"}
