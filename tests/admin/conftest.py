"""People of every role, logged in."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.test import Client

from accounts.access import OPERATORS, VIEWERS
from tests.factories import TeamFactory, UserFactory


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


class Asked:
    """Mixed into a response: a test must look at the status before it reads the content of an error or a redirect.

    Otherwise a “not in” would pass on a page that was never shown.
    """

    asked = False

    @property
    def status_code(self) -> int:
        self.asked = True
        return self._status()

    @property
    def content(self) -> bytes:
        if self._status() != 200 and not self.asked:
            raise AssertionError(
                f"It answered {self._status()}, and the test read the content without looking at the status."
            )
        answered: bytes = super().content  # type: ignore[misc]
        return answered

    def _status(self) -> int:
        status: int = vars(self).get("status_code") or super().status_code  # type: ignore[misc]
        return status


def asking(answer: Any) -> Any:
    if isinstance(answer, HttpResponse):  # not a stream
        if not isinstance(answer, Asked):
            answer.__class__ = type("AskedResponse", (Asked, type(answer)), {})
        vars(answer).pop("asked", None)
    return answer


class AskingClient(Client):
    def request(self, **request: Any) -> Any:
        return asking(super().request(**request))

    def _handle_redirects(self, *words: Any, **options: Any) -> Any:
        return asking(super()._handle_redirects(*words, **options))  # type: ignore[misc]


def login(user: User) -> Client:
    client = AskingClient()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client
