"""People, and codes as their apps would show them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django_otp.oath import totp

from tests.admin.conftest import boss, colleague, operator, team, viewer

__all__ = ["boss", "colleague", "operator", "team", "viewer"]

PASSWORD = "a long enough word"


@pytest.fixture
def person(operator: User) -> User:
    operator.set_password(PASSWORD)
    operator.save()
    return operator


@pytest.fixture
def unlogged_refusals() -> Iterator[None]:
    """Leave out the traceback that Django logs of every 403, 404 and 405: formatting it takes time."""
    log = logging.getLogger("django.request")
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def app_code(app: Any, steps: int = 0) -> str:
    """What the person's app shows, now or some steps of 30 seconds later."""
    return f"{totp(app.bin_key, drift=steps):06d}"
