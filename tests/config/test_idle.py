"""A session ends after hours without a page, and no sooner."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def visits(*hours: float) -> list[int]:
    """The statuses of visits after so many hours each."""
    client, start = Client(), timezone.now()
    client.force_login(UserFactory.create(is_superuser=True), backend="django.contrib.auth.backends.ModelBackend")
    statuses = []
    for hour in hours:
        with time_machine.travel(start + timedelta(hours=hour), tick=False):
            statuses.append(client.get("/admin/bell/").status_code)
    return statuses


def test_who_works_stays_and_who_does_not_logs_in_again():
    assert visits(0, 11, 22, 33) == [200] * 4
    assert visits(0, 13) == [200, 302]


def test_a_made_up_cookie_makes_no_session():
    client = Client()
    client.cookies["sessionid"] = "made-up"
    client.get("/metrics")
    assert not Session.objects.exists()
