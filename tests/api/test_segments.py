"""Segments by the API, with the same checks as the form and the shell."""

from __future__ import annotations

import pytest

from fanout.models import TrailEntry
from reminders.models import Recipient, Segment
from reminders.segments import NO_CONDITION
from tests.api.conftest import Api
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, SegmentFactory

pytestmark = pytest.mark.django_db


def test_a_segment_is_added_used_and_deleted(api):
    account = AccountFactory.create(owner=api.user)
    for n, city in enumerate(["Penang", "penang", "Ipoh"]):
        RecipientFactory.create(owner=api.user, tags=["choir"], fields={"city": city}, name=f"Group {n}")
    wish = {"name": "Penang", "tags": ["choir"], "fields": [{"name": "City", "value": "Penang"}]}
    made = api.post("/segments", wish)
    assert made.status_code == 201
    row = made.json()
    assert (row["members"], row["conditions"]) == (2, "tagged choir, city is Penang")
    assert row["fields"] == [{"name": "city", "comparison": "=", "value": "Penang"}]
    assert api.get("/segments").json()["items"][0]["id"] == row["id"]
    Recipient.objects.filter(name="Group 0").update(tags=[])
    assert api.get(f"/segments/{row['id']}").json()["members"] == 1
    reminder = api.post(
        "/reminders", {"senders": [account.pk], "parts": [{"text": "Hi"}], "audience": {"segment": row["id"]}}
    )
    assert reminder.status_code == 201
    used = api("delete", f"/segments/{row['id']}")
    assert used.status_code == 409
    assert "“Hi”" in used.json()["detail"]
    Segment.objects.get().reminders.all().delete()
    assert api("delete", f"/segments/{row['id']}").json()["text"] == "Penang is deleted."
    verbs = TrailEntry.objects.filter(kind="segment").order_by("pk").values_list("verb", "actor_name")
    assert list(verbs) == [("added", "mei (token n8n)"), ("deleted", "mei (token n8n)")]


def test_what_is_refused(api, colleague):
    theirs = ReminderFactory.create(account__owner=colleague)
    assert api.post("/segments", {"name": "All"}).json()["detail"] == NO_CONDITION
    assert api.post("/segments", {"name": "x", "not_replied_to": theirs.pk}).status_code == 404
    assert api.post("/segments", {"name": "x", "fields": [{"name": "!!"}]}).status_code == 422
    assert api.post("/segments", {"name": "x" * 101, "tags": ["a"]}).status_code == 422
    assert api.post("/segments", {"name": "x", "tags": ["a"]}).status_code == 201
    assert "already" in api.post("/segments", {"name": "x", "tags": ["a"]}).json()["detail"]


def test_a_token_of_a_team_shows_only_people_of_the_team(operator, team):
    RecipientFactory.create(owner=operator, team=team, tags=["a"], name="Shared")
    RecipientFactory.create(owner=operator, tags=["a"], name="Private")
    row = Api(operator, team=team).post("/segments", {"name": "A", "tags": ["a"]}).json()
    assert (row["members"], row["examples"]) == (1, ["Shared"])


def test_a_colleague_counts_only_the_people_that_are_shared(operator, colleague, team):
    colleague.groups.add(team)
    RecipientFactory.create(owner=operator, team=team, tags=["a"], name="Shared")
    RecipientFactory.create(owner=operator, tags=["a"], name="Private")
    segment = SegmentFactory.create(owner=operator, team=team, tags=["a"])
    seen = {caller: Api(caller).get(f"/segments/{segment.pk}").json() for caller in (operator, colleague)}
    assert (seen[colleague]["members"], seen[colleague]["examples"]) == (1, ["Shared"])
    assert seen[operator]["members"] == 2
