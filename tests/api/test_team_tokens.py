"""A token of a team reaches only the team's people, whichever way a body names them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from accounts.models import Account
from fanout.models import InboundEvent
from fanout.plans.audience import audience
from reminders.models import Recipient, Reminder, ReminderTarget, Suppression
from reminders.targets import NOT_SHARED
from tests.api.conftest import Api
from tests.factories import (
    AccountFactory,
    DriverFactory,
    InboundEventFactory,
    RecipientFactory,
    RunFactory,
    SegmentFactory,
    TeamFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db


@dataclass
class Lists:
    """Recipients with the same tag: of the token's team, of another team of the person, and the person's own."""

    api: Api
    team: Group
    account: Account
    shared: Recipient
    others: Recipient
    private: Recipient

    def reminder(self, **audience: Any) -> dict[str, Any]:
        parts = [{"text": "Dear {name|all}, {secret|nothing}"}]
        return {"senders": [self.account.pk], "parts": parts, "audience": audience}


@pytest.fixture
def lists(operator: User, team: Group) -> Lists:
    other = TeamFactory.create()
    operator.groups.add(other)

    def recipient(name: str, of: Group | None) -> Recipient:
        return RecipientFactory.create(
            owner=operator, team=of, name=name, tags=["choir"], fields={"secret": f"{name} only"}
        )

    account = AccountFactory.create(owner=operator, team=team)
    people = (recipient("Shared", team), recipient("Other", other), recipient("Private", None))
    return Lists(Api(operator, team=team), team, account, *people)


def test_a_tag_finds_only_people_of_the_team(lists):
    wish = lists.reminder(tags=["choir"])
    draft = lists.api.post("/reminders/forecast", wish).json()
    assert (draft["targets"], [one["to"] for one in draft["examples"]]) == (1, [str(lists.shared)])
    assert lists.api.post("/reminders", wish).status_code == 201
    assert ReminderTarget.objects.get().recipient == lists.shared
    everyone = Api(lists.api.user).post("/reminders/forecast", wish).json()
    assert everyone["targets"] == 3, "a token without a team reaches all that the person sees"


@pytest.mark.parametrize("whose", ["others", "private"])
def test_an_address_outside_the_team_is_refused(lists, whose):
    row = getattr(lists, whose)
    Recipient.objects.filter(pk=row.pk).update(archived=True)
    for path in ("/reminders", "/reminders/forecast"):
        answer = lists.api.post(path, lists.reminder(addresses=[lists.shared.address, row.address]))
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"field": "audience.addresses", "detail": f"{row.address}: {NOT_SHARED}"}]
    row.refresh_from_db()
    assert row.archived
    assert not Reminder.objects.exists()


@pytest.mark.parametrize("whose", ["others", "private"])
def test_no_message_to_a_person_outside_the_team(lists, whose):
    wish = {"account": lists.account.pk, "address": getattr(lists, whose).address, "parts": [{"text": "{secret}"}]}
    answer = lists.api.post("/messages", wish)
    assert (answer.status_code, answer.json()["detail"]) == (422, NOT_SHARED)


def test_addresses_in_the_team_and_new_ones_are_targets(lists):
    new = "120363999999999999@g.us"
    answer = lists.api.post("/reminders", lists.reminder(addresses=[lists.shared.address, new]))
    assert answer.status_code == 201, answer.content
    found = [target.recipient for target in ReminderTarget.objects.select_related("recipient")]
    assert [one.address for one in found] == [lists.shared.address, new]
    assert {one.team for one in found} == {lists.team}


@pytest.mark.parametrize("whose", ["others", "private"])
def test_chosen_recipients_outside_the_team_are_not_there(lists, whose):
    answer = lists.api.post("/reminders", lists.reminder(recipients=[getattr(lists, whose).pk]))
    assert answer.status_code == 422


def test_a_preview_shows_only_people_of_the_team(lists):
    """Also where the person, who sees more, has chosen others for a reminder of the team."""
    everyone = Api(lists.api.user)
    wish = lists.reminder(recipients=[lists.private.pk, lists.shared.pk, lists.others.pk]) | {"team": lists.team.pk}
    pk = everyone.post("/reminders", wish).json()["id"]
    shown = [one["to"] for one in lists.api.get(f"/reminders/{pk}/preview").json()["examples"]]
    assert shown == [str(lists.shared)]
    assert len(everyone.get(f"/reminders/{pk}/preview").json()["examples"]) == 3


def test_runs_in_front_are_named_only_where_the_call_sees_them(lists):
    """An account of the team may also send for its owner's private reminders, and for people of other teams."""
    facts = {"account": lists.account, "status": "running", "targets": {"pending": 50}}
    now = timezone.now()
    private = {"reminder__owner": lists.api.user, "reminder__title": "Private party"}
    RunFactory.create(**facts, **private, team=None, scheduled_for=now - timedelta(minutes=5))
    run = RunFactory.create(
        **facts, reminder__owner=lists.api.user, team=lists.team, scheduled_for=now - timedelta(minutes=1)
    )
    DriverFactory.create(beat_at=now)

    def said(caller: Api) -> list[str]:
        listed = {one["id"]: one["waits_for"] for one in caller.get("/runs").json()["items"]}
        one = caller.get(f"/runs/{run.pk}").json()["waits_for"]
        return [listed[run.pk], one, caller.get(f"/runs/{run.pk}/why").json()["why"]]

    for words in said(lists.api):
        assert "queued behind another run of this account" in words
    for words in said(Api(lists.api.user)):
        assert "queued behind Private party" in words
    colleague = UserFactory.create(is_staff=True)
    colleague.groups.add(lists.team, *lists.api.user.groups.filter(name="operators"))
    for words in said(Api(colleague)):
        assert "queued behind another run of this account" in words


@pytest.mark.parametrize("superuser", [False, True])
def test_erasing_leaves_the_person_in_other_teams_and_private_lists(lists, superuser):
    """With the deliveries, events and suppression that others have of the same address."""
    operator, other = lists.api.user, lists.others.team
    User.objects.filter(pk=operator.pk).update(is_superuser=superuser)
    theirs = RecipientFactory.create(team=other, address=lists.shared.address, name="Copy")
    private = RecipientFactory.create(address=lists.shared.address, name="Unshared")
    if not superuser:
        private.delete()
    Suppression.objects.create(address=theirs.address, reason="manual")
    accounts = [lists.account, AccountFactory.create(owner=operator, team=other), AccountFactory.create(owner=operator)]
    events = [
        InboundEventFactory.create(account=one, kind="reply", address=theirs.address, words={"text": "hi"})
        for one in accounts
    ]
    assert lists.api.post(f"/recipients/{lists.shared.pk}/erase").status_code == 200
    left = Recipient.objects.filter(address=theirs.address)
    assert set(left.values_list("name", flat=True)) == ({"Copy", "Unshared"} if superuser else {"Copy"})
    kept = [InboundEvent.objects.get(pk=event.pk).address for event in events]
    assert kept == ["", theirs.address, theirs.address]
    assert Suppression.objects.filter(address=theirs.address).exists()


def test_a_segment_finds_only_people_of_the_team(lists):
    segment = SegmentFactory.create(owner=lists.api.user, team=lists.team, tags=["choir"])
    wish = lists.reminder(segment=segment.pk)
    draft = lists.api.post("/reminders/forecast", wish).json()
    assert (draft["targets"], [one["to"] for one in draft["examples"]]) == (1, [str(lists.shared)])
    made = lists.api.post("/reminders", wish)
    assert made.status_code == 201
    assert list(audience(Reminder.objects.get(), timezone.now())) == [lists.shared]
    preview = lists.api.get(f"/reminders/{made.json()['id']}/preview").json()
    assert [one["to"] for one in preview["examples"]] == [str(lists.shared)]


def test_a_segment_that_is_not_shared_with_the_team_is_not_found(lists):
    segment = SegmentFactory.create(owner=lists.api.user, tags=["choir"])
    assert lists.api.post("/reminders", lists.reminder(segment=segment.pk)).status_code == 404
