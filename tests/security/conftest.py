"""People, and codes as their apps would show them."""

from __future__ import annotations

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


def app_code(app: Any, steps: int = 0) -> str:
    """What the person's app shows, now or some steps of 30 seconds later."""
    return f"{totp(app.bin_key, drift=steps):06d}"
