"""People of every role, logged in."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from accounts.roles import OPERATORS, VIEWERS
from tests.factories import TeamFactory, UserFactory


@pytest.fixture(autouse=True)
def plain_static_files(settings: Any) -> None:
    """The manifest exists only after collectstatic."""
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    }


def member(name: str, *groups: str, **facts: Any) -> User:
    user = UserFactory.create(username=name, **facts)
    user.groups.add(*Group.objects.filter(name__in=groups))
    return user


@pytest.fixture
def operator(db: None) -> User:
    return member("mei", OPERATORS)


@pytest.fixture
def colleague(db: None) -> User:
    """Another operator, who shares nothing."""
    return member("noor", OPERATORS)


@pytest.fixture
def team(operator: User) -> Group:
    group = TeamFactory.create()
    operator.groups.add(group)
    return group


@pytest.fixture
def viewer(team: Group) -> User:
    """Reads what the team has."""
    user = member("vera", VIEWERS)
    user.groups.add(team)
    return user


@pytest.fixture
def boss(db: None) -> User:
    return member("boss", is_superuser=True)


def login(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client
