"""`calendar`: from the shell."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.commands.calling import bad_input, data, text
from tests.factories import AccountFactory, ReminderFactory

pytestmark = pytest.mark.django_db


def test_entries_and_capacity() -> None:
    account = AccountFactory.create(owner__username="mei", label="Line")
    at = (timezone.now() + timedelta(days=1)).replace(hour=10)
    ReminderFactory.create(account=account, title="Choir", fire_at=at, next_fire_at=at, targets=2)
    found = data("calendar", "--owner", "mei", "--days", "3", "--tz", "UTC")
    (entry,) = found["entries"]
    assert (entry["day"], entry["account"], entry["title"], entry["targets"]) == (f"{at:%Y-%m-%d}", "Line", "Choir", 2)
    assert [row["planned"] for row in found["capacity"]] == [0, 2, 0]
    assert "Choir" in text("calendar", "--owner", "mei", "--account", "Line")


@pytest.mark.parametrize("words", [("--days", "0"), ("--days", "99"), ("--tz", "x"), ("--account", "x")])
def test_bad_input(words: tuple[str, ...]) -> None:
    AccountFactory.create(owner__username="mei")
    assert bad_input("calendar", "--owner", "mei", *words)
