"""Notifications go to the owner and the team, each as they want it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from fanout.database import carry_out
from fanout.lanes import status
from fanout.models import Notification, Run, Subscription
from fanout.rules.outcomes import AccountChange
from fanout.runs import transitions
from tests.factories import AccountFactory, RunFactory, TeamFactory, UserFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
DOWN = AccountChange("suspended", "login refused")


@pytest.fixture
def team() -> Group:
    return TeamFactory.create()


def person(name: str, *teams: Group, **facts: Any) -> User:
    user = UserFactory.create(username=name, **facts)
    user.groups.add(*teams)
    return user


def finished_run(team: Group | None, **facts: Any) -> Run:
    run = RunFactory.create(reminder__owner=person("mei"), team=team, status="running", targets={"sent": 1}, **facts)
    assert carry_out(transitions.finish(run.pk, NOW))
    return run


def told() -> list[str]:
    return sorted(Notification.objects.values_list("user__username", flat=True))


def test_the_team_is_told_with_the_owner(team):
    person("cleo", team)
    person("stranger", TeamFactory.create())
    person("gone", team, is_active=False)
    finished_run(team)
    assert told() == ["cleo", "mei"]


def test_unshared_things_are_told_to_their_owner_only(team):
    person("cleo", team)
    finished_run(None)
    assert told() == ["mei"]


def test_a_test_is_told_only_to_its_author(team):
    person("cleo", team)
    run = finished_run(team, is_test=True)
    carry_out(transitions.came_back(run.pk, "no such mailbox", NOW))
    assert told() == ["mei", "mei"], "that it was delivered, and that it came back"


def test_members_can_opt_out_of_the_teams_notifications(team):
    Subscription.objects.create(user=person("cleo", team), team=False)
    finished_run(team)
    assert told() == ["mei"]


def test_an_owner_in_the_team_is_told_once_and_always(team):
    run = RunFactory.create(team=team, status="running", targets={"sent": 1})
    run.owner.groups.add(team)
    Subscription.objects.create(user=run.owner, team=False)
    carry_out(transitions.finish(run.pk, NOW))
    assert Notification.objects.get().user == run.owner


def test_without_the_bell_it_is_listed_as_read(team):
    Subscription.objects.create(user=person("cleo", team), bell=False)
    finished_run(team)
    assert dict(Notification.objects.values_list("user__username", "read_at")) == {"cleo": NOW, "mei": None}


def test_bounces_keep_all_notifications_up_to_date(team):
    person("cleo", team)
    run = finished_run(team)
    Notification.objects.all().delete()
    for minute in (1, 2):
        carry_out(transitions.came_back(run.pk, f"cause {minute}", NOW + timedelta(minutes=minute)))
    assert told() == ["cleo", "mei"]
    assert all("cause 2" in body for body in Notification.objects.values_list("body", flat=True))


def test_a_stopped_account_names_to_each_only_what_they_may_see(team):
    person("cleo", team)
    account = AccountFactory.create(owner=person("mei"), team=team, label="Line")
    facts = {"account": account, "lanes": [account.pk], "status": "running", "owner": account.owner}
    RunFactory.create(title="Rent", team=team, **facts)
    RunFactory.create(title="Private", **facts, scheduled_for=NOW)
    assert carry_out(status.stop(account.pk, DOWN, NOW))
    bodies = dict(Notification.objects.values_list("user__username", "body"))
    assert bodies.keys() == {"cleo", "mei"}
    assert "Private" in bodies["mei"]
    assert bodies["cleo"] == "Line: login refused. Holds: Rent (2 runs)."
