"""The segments' pages, and the reminder's form with a segment."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from reminders.models import Reminder, Segment
from tests.admin.conftest import login
from tests.admin.forms import filled, save
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, SegmentFactory

pytestmark = pytest.mark.django_db
ADD, COUNT = reverse("admin:reminders_segment_add"), reverse("admin:reminders_segment_count")
LIST = reverse("admin:reminders_segment_changelist")


def form(**changes: Any) -> dict[str, Any]:
    return {"name": "Choir", "tags": "choir, north", "without_tags": "", "fields": "city = Penang"} | changes


def test_add_see_and_change(operator: Any) -> None:
    RecipientFactory.create(owner=operator, name="Ann", tags=["choir"], fields={"city": "Penang"})
    RecipientFactory.create(name="Theirs", tags=["choir"], fields={"city": "Penang"})
    login(operator).post(ADD, form())
    segment = Segment.objects.get()
    assert (segment.owner, segment.tags) == (operator, ["choir", "north"])
    assert segment.fields == [["city", "=", "Penang"]]
    page = login(operator).get(reverse("admin:reminders_segment_change", args=[segment.pk])).content.decode()
    assert "1 group now, such as Ann" in page
    assert "city = Penang" in page
    assert f"?segment={segment.pk}" in page
    shown = login(operator).get(LIST).content.decode()
    assert "tagged choir or north, city is Penang" in shown


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tags": "", "fields": ""}, "at least one condition"),
        ({"fields": "Penang"}, "such as city = Penang"),
        ({"tags": "x" * 61}, "at most 60 characters"),
        ({"tags": "", "fields": "", "not_contacted_days": "0"}, "greater than or equal to 1"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused(operator: Any, changes: dict[str, Any], problem: str) -> None:
    assert problem in login(operator).post(ADD, form(**changes)).content.decode()
    assert not Segment.objects.exists()
    assert problem in login(operator).post(COUNT, form(**changes)).json()["problem"]


def test_a_foreign_reminder_is_no_condition(operator: Any) -> None:
    theirs = ReminderFactory.create()
    login(operator).post(ADD, form(not_replied_to=theirs.pk))
    assert not Segment.objects.exists()


def test_counting_while_it_is_written(operator: Any, colleague: Any) -> None:
    RecipientFactory.create(owner=operator, name="Ann", tags=["choir"])
    asked = {"tags": "choir", "fields": ""}
    assert login(operator).post(COUNT, asked).json() == {"members": "1 group now, such as Ann", "problem": ""}
    assert login(colleague).post(COUNT, asked).json()["members"] == "0 recipients now"
    mine = SegmentFactory.create(owner=operator, name="Mine")
    assert login(colleague).post(COUNT, asked | {"segment": mine.pk}).json()["members"] == "0 recipients now"
    assert not Segment.objects.exclude(pk=mine.pk).exists()


def test_a_reminder_goes_to_a_segment(operator: Any) -> None:
    account = AccountFactory.create(owner=operator)
    RecipientFactory.create_batch(4, owner=operator, tags=["north"])
    segment = SegmentFactory.create(owner=operator, name="North")
    asked = filled(account, paste="", segment=segment.pk)
    answer = login(operator).post(reverse("admin:reminders_reminder_forecast"), asked).json()
    assert answer["segment"].startswith("4 groups now, such as group")
    assert answer["missing"] == ""
    assert "4 groups" in answer["forecast"]
    save(operator, asked | {"_on": "1"})
    reminder = Reminder.objects.get()
    assert (reminder.segment, reminder.targets.count(), reminder.enabled) == (segment, 0, True)
    page = login(operator).get(reverse("admin:reminders_reminder_change", args=[reminder.pk])).content.decode()
    assert "Who is in it is decided anew at each firing" in page
    assert "Fire" in page
    assert ">4<" in login(operator).get(reverse("admin:reminders_reminder_changelist")).content.decode()


def test_a_colleague_reads_nothing_about_private_recipients(operator: Any, colleague: Any, team: Any) -> None:
    """With a shared reminder and conditions of their own: neither names, fields and numbers nor examples."""
    colleague.groups.add(team)
    private = {"owner": operator, "kind": "person", "fields": {"salary": "5000"}}
    for n in range(4):
        RecipientFactory.create(**private, address=f"+60120000{n:03d}", name=f"Secret {n}", tags=["north"])
    shared: dict[str, Any] = {"owner": operator, "team": team, "kind": "person"}
    RecipientFactory.create(**shared, name="Ann", tags=["north"], address="+60120009000")
    account = AccountFactory.create(owner=operator, team=team)
    own = SegmentFactory.create(owner=operator, team=team, name="North", tags=["north"])
    reminder = ReminderFactory.create(owner=operator, team=team, account=account, segment=own, parts=())
    ask = reverse("admin:reminders_reminder_forecast")
    text = {"messages-0-text": "Hi {name}", "clear": "1", "reminder": reminder.pk, "paste": ""}

    mine = SegmentFactory.create(owner=colleague, name="Mine", tags=["north"])
    answer = login(colleague).post(ask, filled(account, **text, segment=mine.pk))
    assert answer.json()["segment"] == "1 person now, such as Ann"
    assert (answer.json()["fields"], [one["to"] for one in answer.json()["examples"]]) == ([], ["Ann"])

    answer = login(colleague).post(ask, filled(account, **text, segment=own.pk))
    assert answer.json()["segment"] == "1 person now, such as Ann", "as many as it will go to"
    assert (answer.json()["fields"], [one["to"] for one in answer.json()["examples"]]) == ([], ["Ann"])
    assert "Secret" not in answer.content.decode()
    for team_chosen, members, fields in ((team.pk, "1 person now", []), ("", "5 people now", ["salary"])):
        answer = login(operator).post(ask, filled(account, **text, segment=own.pk, team=team_chosen)).json()
        assert answer["segment"].startswith(members), "its owner chooses with whom it is shared"
        assert answer["fields"] == fields


def test_a_private_segment_is_not_put_into_the_reminder_of_a_colleague(
    operator: Any, colleague: Any, team: Any
) -> None:
    """Its owner fires it, and may not use the segment: each firing would be skipped."""
    colleague.groups.add(team)
    account = AccountFactory.create(owner=operator, team=team)
    reminder = ReminderFactory.create(account=account, team=team, targets=1, parts=())
    private = SegmentFactory.create(owner=colleague, name="Mine")
    answer = save(colleague, filled(account, segment=private.pk, paste=""), reminder.pk)
    assert f"{operator} may not use Mine: it belongs to another operator." in answer.content.decode()
    shared = SegmentFactory.create(owner=colleague, team=team, name="Ours")
    save(colleague, filled(account, segment=shared.pk, paste=""), reminder.pk)
    reminder.refresh_from_db()
    assert reminder.segment == shared


def test_a_foreign_segment_is_refused_and_an_unshared_one_stays(operator: Any, colleague: Any, team: Any) -> None:
    account, theirs = AccountFactory.create(owner=operator), SegmentFactory.create(owner=colleague)
    save(operator, filled(account, segment=theirs.pk))
    assert not Reminder.objects.exists()
    reminder = ReminderFactory.create(account=account, segment=theirs, targets=1, parts=())
    save(operator, filled(account, segment=theirs.pk, paste=""), reminder.pk)
    reminder.refresh_from_db()
    assert (reminder.title, reminder.segment) == ("Choir", theirs)
