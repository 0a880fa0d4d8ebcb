"""`segment`: from the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanout.models import TrailEntry
from reminders.models import Reminder, Segment
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, UserFactory

pytestmark = pytest.mark.django_db


def test_add_list_show_use_and_delete() -> None:
    mei = UserFactory.create(username="mei")
    account = AccountFactory.create(owner=mei, label="Line")
    RecipientFactory.create(owner=mei, name="Ann", tags=["choir"], fields={"city": "Penang"})
    RecipientFactory.create(owner=mei, name="Ben", tags=["choir"])
    words = ("--owner", "mei", "--tag", "choir", "--field", "city = penang", "--not-contacted-days", "30")
    added = data("segment", "add", "Penang", *words)
    assert (added["members"], added["examples"]) == (1, ["Ann"])
    assert added["conditions"] == "tagged choir, city is penang, not contacted for 30 days"
    assert TrailEntry.objects.filter(verb="added", kind="segment", subject="Penang").exists()
    assert data("segment", "list")["segments"] == [added]
    assert [row["name"] for row in data("segment", "show", "Penang")["recipients"]] == ["Ann"]
    assert "1 now" in text("segment", "show", "Penang")

    about = ("--account", account.label, "--text", "Hi {name}", "--window", "0-24")
    made = data("reminder", "add", *about, "--segment", "Penang")
    reminder = Reminder.objects.get(pk=made["reminder"])
    assert (made["segment"], reminder.segment_id) == ("Penang", added["segment"])
    assert data("reminder", "preview", str(reminder.pk))["examples"][0]["to"] == "Ann"
    assert data("forecast", str(reminder.pk))["sentence"].startswith("1 group")
    assert data("reminder", "list")["reminders"][0]["segment"] == "Penang"
    assert "is used by" in not_done("segment", "delete", "Penang")
    reminder.delete()
    assert data("segment", "delete", "Penang") == {"deleted": "Penang"}
    assert not Segment.objects.exists()


def test_bad_input(tmp_path: Path) -> None:
    UserFactory.create(username="mei")
    for words in (
        ("--tag", "x" * 61),
        ("--field", "city"),
        ("--not-contacted-days", "0"),
        ("--not-replied-to", "no such"),
        (),
    ):
        assert bad_input("segment", "add", "x", "--owner", "mei", *words)
    assert not Segment.objects.exists()
    ReminderFactory.create(title="Theirs")
    assert "another operator" in bad_input("segment", "add", "x", "--owner", "mei", "--not-replied-to", "Theirs")


def test_a_reminder_needs_someone_to_go_to_and_an_own_segment() -> None:
    AccountFactory.create(label="Line")
    Segment.objects.create(owner=UserFactory.create(), name="Theirs", tags=["a"])
    assert "--segment" in bad_input("reminder", "add", "--account", "Line", "--text", "Hi")
    assert "another operator" in bad_input("reminder", "add", "--account", "Line", "--text", "x", "--segment", "Theirs")
