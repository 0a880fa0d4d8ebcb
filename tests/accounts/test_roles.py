"""The groups that every installation has, and what their members may do."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission

from accounts.roles import OPERATOR_PERMISSIONS, OPERATORS, VIEWERS, ensure_roles

pytestmark = pytest.mark.django_db


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
