"""Nothing that was entered in a form is lost because something else in it is wrong."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from accounts.models import Account
from reminders.models import MediaFile, Reminder, ReminderMessage
from tests.admin.conftest import login
from tests.admin.forms import MAIL, ONE, PNG, filled, parts, save
from tests.factories import AccountFactory

PAST = {"schedule": "once", "cron": "", "fire_at": "2020-01-01T09:00"}
REPEATED = {"schedule": "cron", "cron": "0 9 * * 1-5", "fire_at": ""}
CHOOSE = "Choose a file, or remove this part."


@pytest.fixture
def account(operator: User) -> Account:
    return AccountFactory.create(owner=operator)


class Inputs(HTMLParser):
    """Collects what a browser sends when a form is submitted unchanged. It never fills in files."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, Any] = {}
        self.text = self.select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, kind = given.get("name", ""), given.get("type", "text")
        if tag == "input" and name and kind in ("text", "hidden", "number", "datetime-local"):
            self.sent[name] = given.get("value", "")
        elif tag == "textarea":
            self.text, self.sent[name] = name, ""
        elif tag == "select":
            self.select = name
        elif tag == "option" and self.select and "selected" in given:
            self.sent[self.select] = given["value"]

    def handle_data(self, data: str) -> None:
        if self.text:
            # The line break behind <textarea> does not count.
            self.sent[self.text] += data if self.sent[self.text] else data.removeprefix("\r").removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        self.text = "" if tag == "textarea" else self.text
        self.select = "" if tag == "select" else self.select


def sent_again(answer: Any, **changes: Any) -> dict[str, Any]:
    assert answer.status_code == 200
    return Inputs(answer.content.decode()).sent | changes


def file_part(number: int, kind: str = "image", text: str = "", name: str = "poster.png", content: bytes = PNG) -> Any:
    prefix = f"messages-{number}"
    upload = SimpleUploadedFile(name, content)
    return {f"{prefix}-kind": kind, f"{prefix}-text": text, f"{prefix}-upload": upload}


@pytest.mark.parametrize("caption", ["", "See you"])
@pytest.mark.parametrize("kind", ["image", "text"], ids=["image", "kind-by-the-file"])
def test_a_chosen_file_outlives_another_mistake(operator: User, account: Account, kind: str, caption: str) -> None:
    answer = save(operator, filled(account, **parts("Hello", ""), **PAST) | file_part(1, kind, caption))
    assert "This time has passed" in answer.content.decode()
    assert "Empty: keeps poster.png." in answer.content.decode()
    media = MediaFile.objects.get()
    assert answer.content.decode().count('data-filename="poster.png"') == 1
    assert "data-filename" not in login(operator).get(reverse("admin:reminders_reminder_add")).content.decode()
    again = sent_again(answer, **REPEATED)
    assert (again["messages-1-media"], again["messages-1-kind"]) == (str(media.pk), "image")
    # A second mistake changes nothing about it.
    again = sent_again(save(operator, again | PAST), **REPEATED)
    assert save(operator, again).status_code == 302
    kept = list(Reminder.objects.get().messages.values_list("kind", "text", "media"))
    assert kept == [("text", "Hello", None), ("image", caption, media.pk)]


def test_a_file_of_message_2_too(operator: User, account: Account) -> None:
    second = parts("", prefix="reply_parts") | {
        "reply_parts-0-kind": "document",
        "reply_parts-0-upload": SimpleUploadedFile("way.pdf", b"%PDF"),
    }
    again = sent_again(save(operator, filled(account, **PAST) | second), **REPEATED)
    assert save(operator, again).status_code == 302
    file = Reminder.objects.get().reply_parts.get().media
    assert file is not None
    assert file.filename == "way.pdf"


@pytest.mark.parametrize("caption", ["", "See you"])
def test_a_part_whose_file_was_refused_does_not_disappear(operator: User, account: Account, caption: str) -> None:
    large = file_part(1, text=caption, content=PNG + b"0" * 17 * 1024 * 1024)
    answer = save(operator, filled(account, **parts("Hello", "")) | large)
    assert "16 MB is the limit" in answer.content.decode()
    answer = save(operator, sent_again(answer))
    assert CHOOSE in answer.content.decode()
    assert not Reminder.objects.exists()
    assert save(operator, sent_again(answer) | file_part(1, text=caption)).status_code == 302
    assert ReminderMessage.objects.filter(kind="image").count() == 1


def test_a_part_for_a_file_that_was_never_chosen_does_not_disappear(operator: User, account: Account) -> None:
    data = filled(account, **parts("Hello", "")) | {"messages-1-kind": "image"}
    answer = save(operator, data)
    assert CHOOSE in answer.content.decode()
    assert save(operator, data | {"messages-1-DELETE": "on"}).status_code == 302
    # One for a text says nothing: a draft may be saved with its first part left empty.
    assert save(operator, filled(account, **parts("Hello", ""))).status_code == 302
    assert ReminderMessage.objects.count() == 2


def test_a_replaced_file_outlives_another_mistake(operator: User, account: Account) -> None:
    assert save(operator, filled(account) | file_part(0)).status_code == 302
    reminder = Reminder.objects.get()
    path = reverse("admin:reminders_reminder_change", args=[reminder.pk])
    shown = login(operator).get(path)
    assert "Empty: keeps poster.png." in shown.content.decode()
    data = sent_again(shown) | file_part(0, name="new.png", content=PNG + b"1")
    again = sent_again(login(operator).post(path, data | PAST), **REPEATED)
    assert login(operator).post(path, again).status_code == 302
    file = reminder.messages.get().media
    assert file is not None
    assert file.filename == "new.png"


def test_the_name_of_a_file_is_shown_as_text(operator: User, account: Account) -> None:
    answer = save(operator, filled(account, **PAST) | file_part(0, name="<b>x&y.png"))
    page = answer.content.decode()
    assert "Empty: keeps &lt;b&gt;x&amp;y.png." in page
    assert "<b>x" not in page


@pytest.mark.parametrize(
    ("paste", "listed"), [("", f"address,name\n{ONE},Choir\n"), (f"{MAIL}\n", f"{ONE}\n")], ids=["alone", "beside"]
)
def test_a_list_in_a_file_outlives_another_mistake(operator: User, paste: str, listed: str) -> None:
    mail = AccountFactory.create(owner=operator, channel="smtp", label="Office", address="office@example.com")
    line = AccountFactory.create(owner=operator, label="Line")
    data = filled(line, paste=paste, further=[mail.pk], subject="Choir")
    file = SimpleUploadedFile("list.txt", listed.encode())
    answer = save(operator, data | PAST | {"list_file": file})
    again = sent_again(answer, **REPEATED, further=[mail.pk])
    assert again["paste"].strip() == (paste + listed).strip()
    assert save(operator, again).status_code == 302
    people = Reminder.objects.get().recipients.values_list("address", flat=True)
    assert set(people) == ({MAIL, ONE} if paste else {ONE})


def test_a_pasted_list_beside_a_file_is_not_ignored(operator: User) -> None:
    """The import takes one of them."""
    file = SimpleUploadedFile("list.csv", f"address\n{ONE}\n".encode())
    answer = login(operator).post(reverse("admin:reminders_recipient_import"), {"file": file, "paste": MAIL})
    assert "Choose a file or paste rows, not both" in answer.content.decode()
    assert MAIL in answer.content.decode()
