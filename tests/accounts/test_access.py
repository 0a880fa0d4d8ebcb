"""Permissions: who sees and who acts, and the two groups."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, Group, Permission

from accounts import access
from accounts.access import OPERATOR_PERMISSIONS, OPERATORS, VIEWERS, ensure_roles
from accounts.models import Account
from tests.factories import AccountFactory, TeamFactory, UserFactory

pytestmark = pytest.mark.django_db
case = pytest.param


def person(who: str, thing: Account) -> Any:
    if who == "owner":
        return thing.owner
    user = UserFactory.create(is_superuser=who == "superuser", is_active=who != "former colleague")
    viewers, _ = Group.objects.get_or_create(name=VIEWERS)
    teams: dict[str, list[Any]] = {
        "colleague": [thing.team],
        "former colleague": [thing.team],
        "viewer": [thing.team, viewers],
        "member of another team": [TeamFactory.create()],
        "viewer of another team": [viewers],
    }
    user.groups.set(teams.get(who, []))
    return user


@pytest.mark.parametrize(
    ("who", "sees", "acts"),
    [
        case("owner", True, True, id="owner"),
        case("colleague", True, True, id="colleague"),
        case("viewer", True, False, id="viewer"),
        case("superuser", True, True, id="superuser"),
        case("member of another team", False, False, id="another-team"),
        case("viewer of another team", False, False, id="another-viewer"),
        case("stranger", False, False, id="stranger"),
    ],
)
def test_who_sees_and_who_acts(who: str, sees: bool, acts: bool) -> None:
    thing = AccountFactory.create(team=TeamFactory.create())
    user = person(who, thing)
    assert access.may_see(user, thing) is sees
    assert list(access.visible(user, Account.objects.all())) == ([thing] if sees else [])
    assert (access.may_use(user, [thing]) == "") is sees
    assert access.may_act(user, thing) is acts
    assert _permitted(user, thing) is acts


def _permitted(user: Any, thing: Account) -> bool:
    try:
        access.require(user, thing)
    except access.NotYours:
        return False
    return True


@pytest.mark.parametrize(("is_superuser", "acts"), [(False, False), (True, True)], ids=["owner", "superuser"])
def test_who_only_reads_does_so_with_their_own_too_unless_they_may_do_all(is_superuser: bool, acts: bool) -> None:
    thing = AccountFactory.create()
    user = thing.owner
    user.is_superuser = is_superuser
    user.groups.add(Group.objects.get_or_create(name=VIEWERS)[0])
    assert access.is_viewer(user) is True
    assert access.may_see(user, thing) is True
    assert access.may_act(user, thing) is acts
    assert _permitted(user, thing) is acts


def test_what_is_shared_by_two_teams_is_listed_once() -> None:
    team = TeamFactory.create()
    thing = AccountFactory.create(team=team)
    thing.owner.groups.set([team, TeamFactory.create()])
    assert list(access.visible(thing.owner, Account.objects.all())) == [thing]
    assert access.is_viewer(thing.owner) is False


def test_what_has_no_team_is_its_owners_alone() -> None:
    thing = AccountFactory.create(team=None)
    stranger = person("member of another team", thing)
    assert access.may_see(thing.owner, thing)
    assert not access.may_see(stranger, thing)
    assert not access.visible(stranger, Account.objects.all()).exists()
    assert access.may_use(stranger, [thing]).startswith(f"You may not use {thing}")


@pytest.mark.parametrize("who", ["former colleague", "owner who left", "former superuser"])
def test_who_may_not_sign_in_sees_nothing(who: str) -> None:
    thing = AccountFactory.create(team=TeamFactory.create())
    user = person("owner" if who == "owner who left" else who, thing)
    user.is_active, user.is_superuser = False, who == "former superuser"
    assert not access.may_see(user, thing)
    assert not access.may_act(user, thing)


def test_nobody_in_particular_sees_nothing_and_the_shell_may_do_all() -> None:
    thing = AccountFactory.create()
    assert not access.may_see(AnonymousUser(), thing)
    access.require(None, thing)
    assert access.may_use(None, [thing]) == ""


def test_the_first_thing_that_somebody_may_not_use_is_named() -> None:
    mine, theirs = AccountFactory.create(), AccountFactory.create(label="Theirs")
    assert "Theirs" in access.may_use(mine.owner, [mine, theirs])
    assert access.may_use(mine.owner, [mine]) == access.may_use(mine.owner, []) == ""
    boss = UserFactory.create(is_superuser=True)
    assert access.may_use(boss, [mine, theirs]) == ""


# -- the two groups ---------------------------------------------------------------------------------------


def granted(group: str) -> set[str]:
    rows = Permission.objects.filter(group__name=group).values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


def test_the_groups_are_made_anew_with_what_belongs_to_them() -> None:
    Group.objects.filter(name__in=[OPERATORS, VIEWERS]).delete()
    for label in ("accounts", "reminders", "fanout", "auth"):
        ensure_roles(apps.get_app_config(label))
    models = {name: name.replace(".", ".{}_") for name in OPERATOR_PERMISSIONS}
    may = {models[name].format(verb) for name, verbs in OPERATOR_PERMISSIONS.items() for verb in verbs}
    assert granted(OPERATORS) == may
    assert granted(VIEWERS) == {pattern.format("view") for pattern in models.values()}


def test_an_app_gets_its_own_and_no_others() -> None:
    Group.objects.filter(name__in=[OPERATORS, VIEWERS]).delete()
    ensure_roles(apps.get_app_config("reminders"))
    assert {name.partition(".")[0] for name in granted(OPERATORS)} == {"reminders"}


def test_what_an_administrator_added_by_hand_stays() -> None:
    more = Permission.objects.get(codename="delete_run")
    Group.objects.get(name=OPERATORS).permissions.add(more)
    ensure_roles(apps.get_app_config("fanout"))
    assert "fanout.delete_run" in granted(OPERATORS)


def test_permissions_that_are_not_there_yet_are_made_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """Our apps come before the one that would make them."""
    Permission.objects.filter(content_type__app_label="fanout").delete()
    ensure_roles(apps.get_app_config("fanout"))
    assert "fanout.change_run" in granted(OPERATORS)
    assert "fanout.view_run" in granted(VIEWERS)
    assert capsys.readouterr().out == ""


def test_an_app_of_somebody_else_gets_nothing() -> None:
    Permission.objects.filter(content_type__app_label="sessions").delete()
    before = granted(OPERATORS), granted(VIEWERS)
    ensure_roles(apps.get_app_config("sessions"))
    assert (granted(OPERATORS), granted(VIEWERS)) == before
    assert not Permission.objects.filter(content_type__app_label="sessions").exists()
