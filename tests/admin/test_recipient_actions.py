"""The list of recipients: tags, suppressions, and actions on many at once."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from fanout.admin import list_actions, recipient_actions
from fanout.admin.reminder_targets import REMINDER_FILTER
from fanout.models import TrailEntry
from reminders.models import Recipient, ReminderTarget, Suppression
from tests.admin.conftest import login
from tests.factories import RecipientFactory, ReminderFactory, SuppressionFactory

pytestmark = pytest.mark.django_db
LIST = reverse("admin:reminders_recipient_changelist")


def people(owner: Any, **tags: list[str]) -> list[Recipient]:
    return [
        RecipientFactory.create(owner=owner, kind="mailbox", address=f"{name}@example.com", name=name, tags=theirs)
        for name, theirs in tags.items()
    ]


def act(user: Any, action: str, recipients: list[Recipient], query: str = "", **data: Any) -> Any:
    chosen = {"action": action, "_selected_action": [recipient.pk for recipient in recipients]}
    return login(user).post(LIST + query, chosen | data)


def said(answer: Any) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def tags_of(recipient: Recipient) -> list[str]:
    recipient.refresh_from_db()
    return recipient.tags


def test_a_tag_for_many(operator: Any) -> None:
    ann, bob, cid = people(operator, ann=[], bob=["choir"], cid=[])
    page = act(operator, "tag_selected", [ann, bob]).content.decode()
    assert "Tag 2 recipients" in page
    assert '<option value="choir">' in page
    answer = act(operator, "tag_selected", [ann, bob], confirmed="yes", tag="choir")
    assert said(answer) == ["Tagged: 1 recipient."]
    assert [tags_of(one) for one in (ann, bob, cid)] == [["choir"], ["choir"], []]
    assert TrailEntry.objects.get(verb="tagged").detail == "1 recipient"


def test_a_long_tag_is_refused_in_words_and_not_cut_off(operator: Any) -> None:
    (ann,) = people(operator, ann=[])
    page = act(operator, "tag_selected", [ann], confirmed="yes", tag="x" * 75).content.decode()
    assert "A tag has at most 60 characters; this one has 75." in page
    # With a maximum in its input the browser would shorten what is pasted.
    assert "maxlength" not in page.partition('name="tag"')[2].partition(">")[0]


@pytest.mark.parametrize("tag", ["", "a,b", "x" * 61])
def test_invalid_tags_are_refused(operator: Any, tag: str) -> None:
    (ann,) = people(operator, ann=[])
    assert "errorlist" in act(operator, "tag_selected", [ann], confirmed="yes", tag=tag).content.decode()
    assert tags_of(ann) == []


def test_all_that_match_and_not_only_the_page(operator: Any, colleague: Any) -> None:
    several = people(operator, **{f"p{n}": ["old"] for n in range(60)}, q=[])
    (foreign,) = people(colleague, z=["old"])
    answer = act(operator, "tag_selected", several[:1], "?tag=old", select_across="1", confirmed="yes", tag="new")
    assert said(answer) == ["Tagged: 60 recipients."]
    assert Recipient.objects.filter(tags__contains=["new"]).count() == 60
    assert tags_of(foreign) == ["old"]


def test_a_tag_is_taken_off(operator: Any) -> None:
    ann, bob = people(operator, ann=["choir", "old"], bob=["old"])
    page = act(operator, "untag_selected", [ann, bob]).content.decode()
    assert "old (2)" in page
    assert "choir (1)" in page
    assert said(act(operator, "untag_selected", [ann, bob], confirmed="yes", tag="old")) == ["Untagged: 2 recipients."]
    assert [tags_of(one) for one in (ann, bob)] == [["choir"], []]
    assert said(act(operator, "untag_selected", [bob])) == ["None of them has a tag."]


def test_many_are_suppressed(operator: Any) -> None:
    ann, bob = people(operator, ann=[], bob=[])
    SuppressionFactory.create(address=bob.address, reason="complaint")
    page = act(operator, "suppress_selected", [ann, bob]).content.decode()
    assert "Suppress 2 recipients" in page
    assert "These addresses get no more messages" in page
    assert Suppression.objects.count() == 1
    answer = act(operator, "suppress_selected", [ann, bob], confirmed="yes", detail="asked by phone")
    assert said(answer) == ["Suppressed: 1 address."]
    row = Suppression.objects.get(address=ann.address)
    assert (row.reason, row.source, row.detail, row.added_by) == ("manual", "operator", "asked by phone", operator)
    assert Suppression.objects.get(address=bob.address).reason == "complaint"


def test_very_many_are_suppressed_some_at_a_time(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipient_actions, "ADDRESSES_AT_ONCE", 2)
    some = people(operator, ann=[], bob=[], cid=[])
    answer = act(operator, "suppress_selected", some, "?suppressed=no", confirmed="yes")
    assert said(answer) == ["Suppressed: 3 addresses."]
    assert Suppression.objects.count() == 3
    entries = TrailEntry.objects.filter(verb="suppressed").order_by("pk")
    assert [entry.detail for entry in entries] == ["2 addresses", "1 address"]


def test_an_action_reads_no_more_than_it_changes(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_actions, "MOST_AT_ONCE", 1)
    people(operator, ann=[], bob=[], cid=[])
    with CaptureQueriesContext(connection) as queries:
        answer = act(operator, "archive", list(Recipient.objects.all()), select_across="1")
    assert said(answer) == ["Archived: 1 of 1. Only the first 1 were processed; run it again for the rest."]
    assert any(query["sql"].endswith("LIMIT 2") for query in queries)


def test_suppressed_recipients_have_a_badge(operator: Any) -> None:
    ann, bob, cid = people(operator, ann=[], bob=[], cid=[])
    row = SuppressionFactory.create(address=ann.address, reason="complaint")
    SuppressionFactory.create(address=bob.address, expires_at=timezone.now())
    client = login(operator)
    assert client.get(LIST).content.decode().count(">Suppressed</span>") == 1
    reminder = ReminderFactory.create(owner=operator)
    ReminderTarget.objects.bulk_create(ReminderTarget(reminder=reminder, recipient=one) for one in (ann, bob, cid))
    targets = client.get(reverse("admin:reminders_remindertarget_changelist"), {REMINDER_FILTER: reminder.pk})
    assert targets.content.decode().count(">Suppressed</span>") == 1
    for chosen, shown in {"yes": ["ann"], "no": ["bob", "cid"]}.items():
        rows = client.get(LIST, {"suppressed": chosen}).context["cl"].result_list
        assert [recipient.name for recipient in rows] == shown
    page = client.get(reverse("admin:reminders_recipient_change", args=[ann.pk])).content.decode()
    assert "This address gets no messages" in page
    assert reverse("admin:reminders_suppression_change", args=[row.pk]) in page
    other = client.get(reverse("admin:reminders_recipient_change", args=[cid.pk])).content.decode()
    assert "This address gets no messages" not in other


def test_the_list_by_tag(operator: Any, colleague: Any) -> None:
    people(operator, ann=["choir & co", "old"], bob=["old"])
    people(colleague, cid=["secret"])
    client = login(operator)
    page = client.get(LIST)
    text = page.content.decode()
    assert "old (2)" in text
    assert "secret" not in text
    assert 'href="?tag=choir+%26+co"' in text
    rows = client.get(LIST, {"tag": "choir & co"}).context["cl"].result_list
    assert [recipient.name for recipient in rows] == ["ann"]
    assert client.get(LIST, {"tag": "unheard of"}).status_code == 200


def test_the_export_is_what_the_list_shows(operator: Any) -> None:
    people(operator, ann=["old"], bob=[])
    RecipientFactory.create(owner=operator, kind="person", address="+4917612345678", name="=1+1", tags=["old"])
    answer: Any = login(operator).get(reverse("admin:reminders_recipient_export"), {"tag": "old"})
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert lines == ["address,name,kind,tags", "ann@example.com,ann,mailbox,old", "'+4917612345678,'=1+1,person,old"]
    assert TrailEntry.objects.filter(verb="exported recipients", actor_id=operator.pk).exists()


def test_an_export_with_a_filter_that_cannot_be_read_leads_to_the_list(operator: Any) -> None:
    answer: Any = login(operator).get(reverse("admin:reminders_recipient_export"), {"pk__in": "x"})
    assert (answer.status_code, answer["Location"]) == (302, f"{LIST}?e=1")
    assert not TrailEntry.objects.filter(verb="exported recipients").exists()


@pytest.mark.parametrize(
    ("term", "shown"),
    [
        ("lee ann", ["Ann Lee"]),
        ("ANN", ["Ann Lee"]),
        ("Ann-Lee@", ["Ann Lee"]),
        ("176 123-45", ["Bob"]),
        ("+49 (176)", ["Bob"]),
        ("nobody", []),
    ],
)
def test_search_by_words_of_the_name_or_part_of_the_address(operator: Any, term: str, shown: list[str]) -> None:
    RecipientFactory.create(owner=operator, kind="mailbox", address="ann-lee@example.com", name="Ann Lee")
    RecipientFactory.create(owner=operator, kind="person", address="+4917612345678", name="Bob")
    rows = login(operator).get(LIST, {"q": term}).context["cl"].result_list
    assert [recipient.name for recipient in rows] == shown
