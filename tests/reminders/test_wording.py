"""Placeholders against the people they are for."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from reminders import imports, targets, wording
from reminders.models import Recipient, Reminder
from reminders.wording import Audience
from tests.factories import RecipientFactory, ReminderFactory, ReminderTargetFactory, UserFactory

pytestmark = pytest.mark.django_db


def reminder(*texts: str, people: list[dict[str, Any]], **fields: Any) -> Reminder:
    made = ReminderFactory.create(parts=texts, **fields)
    for position, person in enumerate(people):
        recipient = RecipientFactory.create(owner=made.owner, **{"kind": "group"} | deepcopy(person))
        ReminderTargetFactory.create(reminder=made, recipient=recipient, position=position)
    return made


def of(reminder: Reminder) -> Audience:
    return Audience(Recipient.objects.filter(reminders=reminder))


def problem_of(reminder: Reminder) -> str:
    return wording.reminder_problem(reminder, of(reminder))


ANN = {"name": "Ann Lee", "kind": "person", "address": "+60123456789", "fields": {"flat": "1"}}
CHOIR = {"name": "Choir", "fields": {}}
NAMELESS = {"name": " ", "kind": "mailbox", "address": "x@example.com"}


@pytest.mark.parametrize(
    ("text", "people", "sentence"),
    [
        pytest.param("Hello", [ANN], "", id="nothing-personal"),
        pytest.param("Hi {name}", [ANN, CHOIR], "", id="all-have-it"),
        pytest.param(
            "Hi {flt}",
            [ANN],
            "In part 1: there is no {flt}. The recipients have {name}, {first_name}, {flat}. To write",
            id="unknown",
        ),
        *(
            pytest.param(
                f"Hi {{{written}}}",
                [ANN],
                f"In part 1: there is no {{{written.lower()}}}. The recipients have {{name}}, {{first_name}}, ",
                id=written,
            )
            for written in ("first name", "First-Name", "1st")
        ),
        pytest.param(
            "{flat}",
            [ANN, CHOIR, NAMELESS],
            "In part 1: 2 of 3 recipients have no value for {flat}. Give a default, such as {flat|…}.",
            id="some-lack-it",
        ),
        pytest.param("{flat|?}", [ANN, CHOIR], "", id="default"),
        pytest.param("Hi {name}", [NAMELESS], "In part 1: the recipient has no value for {name}.", id="no-name"),
        pytest.param("{first_name}", [ANN, CHOIR], "1 of 2 recipients have no value for {first_name}", id="group"),
        pytest.param("{first_name|all}", [CHOIR], "", id="always-allowed"),
        pytest.param("Hi {name", [ANN], "In part 1: Line 1 has a single “{”", id="malformed"),
        pytest.param("{{flt}}", [ANN], "", id="braces"),
        pytest.param("Hi {{name}}", [ANN], "In part 1: write {name} with one brace on each side.", id="doubled"),
        pytest.param("{{ flat | ? }}", [ANN], "{{ flat | ? }} would go out as { flat | ? }", id="a doubled field"),
    ],
)
def test_placeholders_that_do_not_fit(text: str, people: list[dict[str, Any]], sentence: str):
    problem = problem_of(reminder(text, people=people))
    assert problem.startswith(sentence) or sentence in problem
    assert bool(problem) == bool(sentence)


def test_the_subject_and_every_part_are_checked():
    assert "the subject" in problem_of(reminder("Hi", subject="{nope}", people=[ANN]))
    assert "part 2" in problem_of(reminder("Hi", "{nope}", people=[ANN]))


def test_without_targets_any_field_of_the_owners_recipients_is_allowed():
    made = ReminderFactory.create(parts=["{flat} {nope|?}"])
    RecipientFactory.create(owner=made.owner, fields={"flat": "1"})
    RecipientFactory.create(owner=UserFactory.create(), fields={"nope": "1"})
    assert "there is no {nope}" in problem_of(made)


def test_preview_for_three_recipients():
    made = reminder("Hi {first_name|all}", "Bye", people=[ANN, CHOIR, NAMELESS, {}], subject="S")
    parts = [{"subject": "S", "text": "Hi {first_name|all}"}, {"text": "Bye"}]
    shown = wording.preview(parts, of(made).some())
    assert [example["to"] for example in shown][:2] == ["Ann Lee", "Choir"]
    assert len(shown) == 3
    assert shown[0]["parts"] == [{"subject": "S", "text": "Hi Ann"}, {"text": "Bye"}]
    assert shown[1]["parts"][0]["text"] == "Hi all"
    assert wording.preview([{"text": "{{Bye}}"}], of(made).some()) == [{"to": "everyone", "parts": [{"text": "{Bye}"}]}]


# --- where fields come from -----------------------------------------------------------------------------------


def test_further_columns_of_a_list_become_fields():
    listed = imports.read("Address,Name,Flat No.,2nd,Empty\nann@example.com,Ann, 12 B ,x,\n")
    assert listed.entries[0].fields == {"flat_no": "12 B", "_2nd": "x"}
    assert not listed.problems


def test_a_field_that_is_too_long_is_refused_with_its_line():
    listed = imports.read(f"address,flat\nann@example.com,{'x' * 501}\n")
    assert listed.problems == [f"line 2 (ann@example.com,{'x' * 24}): A field has at most 500 characters."]


def test_a_list_fills_the_fields_of_existing_recipients():
    owner = UserFactory.create()
    other = RecipientFactory.create(kind="mailbox", address="ann@example.com", name="Theirs")
    text = "address,name,flat\nann@example.com,Ann,1\nbob@example.com,Bob,2\n"
    assert targets.store_recipients(imports.read(text).entries, owner) == 2
    again = "address,name,flat,floor\nann@example.com,Anna,,3\n"
    assert targets.store_recipients(imports.read(again).entries, owner) == 0
    ann = Recipient.objects.get(owner=owner, address="ann@example.com")
    assert (ann.name, ann.fields) == ("Ann", {"flat": "1", "floor": "3"})
    other.refresh_from_db()
    assert other.fields == {}


@pytest.mark.parametrize("public", ["", "https://crier.example"])
def test_an_unsubscribe_link_needs_a_public_address(settings: Any, public: str) -> None:
    settings.PUBLIC_URL = public
    made = reminder("Bye {unsubscribe_link}", people=[NAMELESS])
    problem = problem_of(made)
    if public:
        assert problem == ""
        (shown,) = wording.preview([{"text": "Bye {unsubscribe_link}"}], of(made).some())
        assert shown["parts"][0]["text"] == "Bye https://crier.example/unsubscribe/…"
    else:
        assert problem.startswith("In part 1: {unsubscribe_link} needs an address that recipients reach")
