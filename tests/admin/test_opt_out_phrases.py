"""The site's own opt-out phrases, and the box that says whether a message would opt out."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse

from fanout.inbound.replies import decide
from fanout.models import TrailEntry
from reminders.models import OptOutPhrase, Suppression
from tests.admin.conftest import login
from tests.engine.stage import MONDAY
from tests.factories import AccountFactory
from tests.inbound.people import say, stored

pytestmark = pytest.mark.django_db

ADD, TRY = reverse("admin:reminders_optoutphrase_add"), reverse("admin:reminders_optoutphrase_try")
LIST = reverse("admin:reminders_optoutphrase_changelist")


def test_an_administrator_adds_a_phrase_and_it_counts_at_once(boss: Any) -> None:
    assert not decide("Nie wieder!").opts_out
    login(boss).post(ADD, {"phrase": "nie WIEDER", "opts_out": "on", "note": "often written"})
    assert decide("Nie wieder!, danke").opts_out
    assert TrailEntry.objects.filter(verb="added", kind="optoutphrase", subject="nie WIEDER").exists()
    event = stored(AccountFactory.create(), 0, MONDAY, "Nie wieder.")
    assert event.opts_out
    assert Suppression.objects.count() == 1, "suppressed when it came"


def test_a_phrase_takes_a_built_in_word_out(boss: Any) -> None:
    login(boss).post(ADD, {"phrase": "Cancel", "note": "people cancel appointments"})
    account = AccountFactory.create()
    for text in ("CANCEL", "Cancel, please"):
        assert say(account, 0, MONDAY, text) == "nothing: the address is in no list"
    assert not Suppression.objects.exists()
    assert "opted out" in say(account, 0, MONDAY, "STOP")


@pytest.mark.parametrize(
    ("phrase", "problem"), [("!!", "at least one word"), ("Nie  wieder!", "already"), ("x" * 101, "at most 100")]
)
def test_a_phrase_that_cannot_be_compared_is_refused(boss: Any, phrase: str, problem: str) -> None:
    OptOutPhrase.objects.create(phrase="nie wieder")
    page = login(boss).post(ADD, {"phrase": phrase, "opts_out": "on"}).content.decode()
    assert problem in page
    assert OptOutPhrase.objects.count() == 1


def test_the_shell_stores_it_in_the_same_form() -> None:
    phrase = OptOutPhrase.objects.create(phrase="Bitte: nie wieder")
    assert phrase.essence == "nie wieder"
    phrase.phrase = "Jamais plus"
    phrase.save(update_fields=["phrase"])
    phrase.refresh_from_db()
    assert phrase.essence == "jamais plus"
    with pytest.raises(ValidationError):
        OptOutPhrase(phrase="jamais, plus").full_clean()


QUOTED = "STOP\nOn 1 Jun 2026, at 10:00, Bob <bob@x.org> wrote:\n> Hello"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Stop, thank you", ["opts out", "“stop” (en)"]),
        ("I can't stop smiling", ["stays in", "something else"]),
        (QUOTED, ["opts out", "<pre>STOP</pre>"]),
        ("Nie wieder", ["stays in", "is in this site&#x27;s list"]),
        ("a long text " * 30, ["stays in", "something else than an opt-out, or more"]),
    ],
)
def test_the_box_shows_the_decision_and_why(operator: Any, text: str, shown: list[str]) -> None:
    OptOutPhrase.objects.create(phrase="nie wieder", opts_out=False)
    page = login(operator).post(TRY, {"text": text}).content.decode()
    assert [words for words in shown if words not in page] == []


def test_an_operator_sees_the_list_and_cannot_change_it(operator: Any) -> None:
    client = login(operator)
    assert TRY in client.get(LIST).content.decode()
    assert client.get(ADD).status_code == client.post(ADD, {"phrase": "x", "opts_out": "on"}).status_code == 403
