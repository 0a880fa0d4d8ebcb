"""Users: their role and teams, and what people without a role are told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core import mail
from django.urls import reverse

from accounts import access
from accounts.access import OPERATORS, VIEWERS
from tests.admin.conftest import login, member
from tests.factories import TeamFactory

pytestmark = pytest.mark.django_db


def change(user: User, person: User, **typed: Any) -> Any:
    data = {"username": person.username, "is_active": "on"} | typed
    return login(user).post(reverse("admin:auth_user_change", args=[person.pk]), data)


@pytest.mark.parametrize(
    ("role", "groups", "superuser"),
    [
        pytest.param("administrator", set(), True, id="administrator"),
        pytest.param("operator", {OPERATORS}, False, id="operator"),
        pytest.param("viewer", {VIEWERS}, False, id="viewer"),
    ],
)
def test_a_role_replaces_the_former_one_and_teams_are_chosen(boss, role, groups, superuser):
    choir, office = TeamFactory.create(name="Choir"), TeamFactory.create(name="Office")
    noor = member("noor", OPERATORS, is_staff=False)
    noor.groups.add(choir)
    assert change(boss, noor, role=role, teams=[office.pk]).status_code == 302
    noor = User.objects.get(pk=noor.pk)
    assert {group.name for group in noor.groups.all()} == groups | {"Office"}
    assert (noor.is_staff, noor.is_superuser, access.role_of(noor)) == (True, superuser, role)


def test_nobody_takes_away_their_own_role(boss):
    answer = change(boss, boss, role="viewer")
    assert "You cannot change your own role" in answer.content.decode()
    answer = change(boss, boss, role="administrator", is_active="")
    assert "You cannot lock yourself out" in answer.content.decode()
    boss.refresh_from_db()
    assert (boss.is_superuser, boss.is_active) == (True, True)


def test_only_administrators_make_administrators(boss, operator):
    operator.user_permissions.add(*Permission.objects.filter(content_type__model="user"))
    noor = member("noor")
    answer = change(operator, noor, role="administrator")
    assert "Only an administrator makes administrators." in answer.content.decode()
    assert change(operator, boss, role="viewer").status_code == 403
    invitation = reverse("admin:auth_user_invitation", args=[boss.pk])
    assert login(operator).post(invitation).status_code == 404
    # Nor by the form for experts.
    path = reverse("admin:auth_user_change", args=[noor.pk])
    login(operator).post(f"{path}?expert=yes", {"username": "noor", "is_active": "on", "is_superuser": "on"})
    assert not User.objects.get(pk=noor.pk).is_superuser


def test_single_permissions_are_for_experts(boss, operator):
    path = reverse("admin:auth_user_change", args=[operator.pk])
    client = login(boss)
    assert "user_permissions" not in client.get(path).context["adminform"].form.fields
    assert "user_permissions" in client.get(f"{path}?expert=yes").context["adminform"].form.fields


def test_a_mail_that_cannot_be_sent_leaves_the_link(boss, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    noor = member("noor", OPERATORS, email="noor@example.com")
    answer = login(boss).post(reverse("admin:auth_user_invitation", args=[noor.pk]), {"mail": "yes"})
    assert "The mail could not be sent" in answer.content.decode()
    assert answer.context["link"].startswith("http://testserver/admin/invitation/")
    assert not mail.outbox


def test_an_invitation_names_the_public_address(boss, settings):
    settings.PUBLIC_URL = "https://crier.example.com"
    noor = member("noor", OPERATORS)
    answer = login(boss).post(reverse("admin:auth_user_invitation", args=[noor.pk]))
    assert answer.context["link"].startswith("https://crier.example.com/admin/invitation/")


def test_teams_have_members_and_the_roles_keep_their_names(boss, operator):
    client = login(boss)
    assert client.post(reverse("admin:auth_group_add"), {"name": "Choir", "members": [operator.pk]}).status_code == 302
    choir = Group.objects.get(name="Choir")
    assert list(choir.user_set.all()) == [operator]
    listed = client.get(reverse("admin:auth_group_changelist")).context["cl"].result_list
    assert [group.name for group in listed] == ["Choir"]
    for path in (reverse("admin:auth_group_changelist"), reverse("admin:auth_group_delete", args=[choir.pk])):
        page = client.get(path).content.decode().split("<main", 1)[1]
        assert "team" in page
        assert not re.search(r"\bgroups?\b", re.sub("<[^>]*>", " ", page).lower()), path
    role = Group.objects.get(name=OPERATORS)
    permissions = role.permissions.count()
    client.post(reverse("admin:auth_group_change", args=[role.pk]), {"name": "Renamed", "members": [operator.pk]})
    role.refresh_from_db()
    assert (role.name, role.permissions.count()) == (OPERATORS, permissions)


def test_people_without_a_role_are_told_what_to_ask_for(boss):
    page = login(member("ada")).get(reverse("admin:index")).content.decode()
    assert "You have no role yet" in page
    assert "Needs you" not in page
