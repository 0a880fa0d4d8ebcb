"""Fixtures of the commands' tests."""

from __future__ import annotations

import pytest

from tests.factories import UserFactory


@pytest.fixture
def owner():
    return UserFactory.create(username="admin", is_superuser=True)
