"""Placeholders: what is one, what it becomes, and what is a mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from accounts.channels.base import Part
from reminders import placeholders
from reminders.models import Recipient
from reminders.placeholders import VALUES_SQL, Malformed, frozen, names_in, render, required_in, values_for

ANN = {"name": "Ann Lee", "first_name": "Ann", "flat": "12 B"}


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        pytest.param("Hi {name}!", "Hi Ann Lee!", id="name"),
        pytest.param("Hi {first_name|there}", "Hi Ann", id="default-not-needed"),
        pytest.param("Hi {nick|there}", "Hi there", id="default"),
        pytest.param("Hi {nick | my friend }!", "Hi my friend!", id="blanks"),
        pytest.param("Hi{nick|}!", "Hi!", id="empty-default"),
        pytest.param("Flat {Flat}", "Flat 12 B", id="capital"),
        pytest.param("{{name}} is {name}", "{name} is Ann Lee", id="written-braces"),
        pytest.param("{{{name}}}", "{Ann Lee}", id="in-braces"),
        pytest.param("a { b", "a { b", id="lone-brace"),
        pytest.param('{"a": {"b": 1}}', '{"a": {"b": 1}}', id="json"),
        pytest.param("p {color: red}", "p {color: red}", id="css"),
        pytest.param("{{ }} {} {1}", "{{ }} {} {1}", id="no-name"),
        pytest.param("{a b c d} {x, y} {12:30} {1-2}", "{a b c d} {x, y} {12:30} {1-2}", id="no-name-either"),
        pytest.param("{{first name}} of {name}", "{first name} of Ann Lee", id="written-words"),
    ],
)
def test_rendering(text, becomes):
    assert render(text, ANN) == becomes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("Hello\n{name} and {", "Line 2 has a single “{” at “{name} and {”.", id="open"),
        pytest.param("{name}, so }", "Line 1 has a single “}”", id="close"),
        pytest.param("Dear {name", "Line 1 has a single “{” at “Dear {name”.", id="unclosed"),
        pytest.param("Dear {nick|there", "single “{”", id="unclosed-default"),
        pytest.param("{{name}", "single “}”", id="half-written"),
    ],
)
def test_mistakes_say_where(text, sentence):
    with pytest.raises(Malformed) as caught:
        render(text, ANN)
    assert sentence in str(caught.value)


@given(st.text(alphabet=st.characters(exclude_characters="{")))
def test_a_text_without_an_opening_brace_is_what_it_was(text):
    assert render(text, ANN) == text


@given(st.text(alphabet="{}|name x\n", max_size=30))
def test_doubled_braces_write_any_text(text):
    doubled = text.replace("{", "{{").replace("}", "}}") if placeholders.is_template(text) else text
    assert render(doubled, ANN) == text


def test_values_in_html_are_escaped_and_the_rest_is_not():
    part = Part(
        "7:0", 0, "text", text="Hi {name}", subject="For {name}", html="<b>{name|<i>you</i>}</b>", personal=True
    )
    evil = placeholders.rendered(part, {"name": '<a href="x">&'}, 5)
    assert evil.text == 'Hi <a href="x">&'
    assert evil.html == "<b>&lt;a href=&quot;x&quot;&gt;&amp;</b>"
    assert placeholders.rendered(part, {}, 5).html == "<b><i>you</i></b>"
    assert evil.key == "7:0:5"


def test_a_part_is_kept_as_a_template_only_where_it_differs():
    assert frozen({"kind": "text", "text": "a { b"}) == {"kind": "text", "text": "a { b"}
    assert frozen({"kind": "text", "text": "{{name}}"}) == {"kind": "text", "text": "{name}"}
    assert frozen({"kind": "text", "text": "Hi {name"}) == {"kind": "text", "text": "Hi {name"}
    personal = frozen({"kind": "text", "text": "Hi", "subject": "For {name}"})
    assert personal == {"kind": "text", "text": "Hi", "subject": "For {name}", "personal": True}


def test_placeholders_of_parts():
    parts = [frozen({"text": "{name} {flat|?}"}), frozen({"text": "{{city}}"}), frozen({"text": "", "html": "{floor}"})]
    assert names_in(parts) == ["flat", "floor", "name"]
    assert required_in(parts) == ["floor", "name"]


@pytest.mark.parametrize(
    ("kind", "name", "fields", "values"),
    [
        pytest.param("person", " Ann  Lee ", {}, {"name": "Ann  Lee", "first_name": "Ann"}, id="from-the-name"),
        pytest.param(
            "person", "Ann Lee", {"first_name": "Annie"}, {"name": "Ann Lee", "first_name": "Annie"}, id="own"
        ),
        pytest.param("group", "Choir of Ipoh", {"flat": " 3 "}, {"name": "Choir of Ipoh", "flat": "3"}, id="group"),
        pytest.param("mailbox", "", {"flat": ""}, {}, id="nothing"),
        pytest.param("mailbox", "  ", {"flat": "\n"}, {}, id="blanks"),
    ],
)
@pytest.mark.django_db
def test_a_persons_values_are_the_same_in_python_and_in_the_database(
    kind: str, name: str, fields: dict[str, str], values: dict[str, str], django_user_model: Any
):
    owner = django_user_model.objects.create(username="mei")
    addresses = {"group": "120363025246125486@g.us", "person": "+60123456789", "mailbox": "ann@example.com"}
    person = Recipient.objects.create(owner=owner, kind=kind, address=addresses[kind], name=name, fields=fields)
    parts = [frozen({"text": "{name} {first_name} {flat}"})]
    assert values_for(person, parts) == values
    with connection.cursor() as cursor:
        sql = f"SELECT {VALUES_SQL} FROM reminders_recipient r WHERE id = %(id)s"
        cursor.execute(sql, {"names": names_in(parts), "id": person.pk})
        assert json.loads(cursor.fetchone()[0]) == values


def test_no_values_without_placeholders():
    assert values_for(Recipient(name="Ann"), [frozen({"text": "Hi"})]) is None


LINK = "https://crier.example/unsubscribe/x:y"


def test_the_unsubscribe_link_comes_from_no_list_and_needs_no_value() -> None:
    parts = [frozen({"text": "Bye {unsubscribe_link} {name}", "subject": ""})]
    assert parts[0]["personal"]
    assert (names_in(parts), required_in(parts)) == (["name"], ["name"])
    part = Part("1:0", 0, "text", text="Bye {unsubscribe_link}", html="<a href='{unsubscribe_link}'>", personal=True)
    made = placeholders.rendered(part, {"unsubscribe_link": "https://evil.example"}, 7, LINK)
    assert (made.text, made.html) == (f"Bye {LINK}", f"<a href='{LINK}'>")


@pytest.mark.parametrize(
    ("text", "html", "expected_text", "expected_html"),
    [
        pytest.param("Hi", "", f"Hi\n\nBye: {LINK}", "", id="text"),
        pytest.param("", "", f"Bye: {LINK}", "", id="a file alone"),
        pytest.param("", "<p>Hi</p>", "", "<p>Hi</p>ANCHOR", id="HTML alone"),
        pytest.param("Hi", "<body>Hi</body>", f"Hi\n\nBye: {LINK}", "<body>HiANCHOR</body>", id="both"),
        pytest.param("Hi", "</body></BODY >x", f"Hi\n\nBye: {LINK}", "</body>ANCHOR</BODY >x", id="the last end"),
        pytest.param(f"Hi {LINK}", "", f"Hi {LINK}", "", id="it has one"),
    ],
)
def test_a_visible_link_below_every_text(text: str, html: str, expected_text: str, expected_html: str) -> None:
    made = placeholders.with_link(Part("1:0", 0, "text", text=text, html=html), LINK, "Bye", 7)

    anchor = f'<p style="font-size:small"><a href="{LINK}">Bye</a></p>'
    assert (made.text, made.html) == (expected_text, expected_html.replace("ANCHOR", anchor))
    if text != made.text:
        assert (made.key, made.personal) == ("1:0:7", True)
