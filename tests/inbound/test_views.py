from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from reminders import suppressions
from reminders.models import Suppression
from tests.factories import RecipientFactory, RunTargetFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def public(settings: object) -> None:
    settings.PUBLIC_URL = "https://crier.example"  # type: ignore[attr-defined]


def path(address: str) -> str:
    url = suppressions.unsubscribe_url(address)
    assert url is not None
    return url.removeprefix("https://crier.example")


def test_a_get_changes_nothing_and_a_post_unsubscribes(client: Client) -> None:
    assert client.get(path("ann@example.org")).status_code == 200
    assert not Suppression.objects.exists()
    for _ in range(2):
        answer = client.post(path("ann@example.org"), {"List-Unsubscribe": "One-Click"})
        assert answer.status_code == 200
    assert Suppression.objects.get().address == "ann@example.org"
    assert Suppression.objects.get().reason == "unsubscribed"


def test_a_link_that_is_not_ours_is_not_found(client: Client) -> None:
    assert client.post("/unsubscribe/ann@example.org").status_code == 404
    assert client.post(path("ann@example.org") + "x").status_code == 404


def test_without_a_public_address_there_is_no_link(settings: object) -> None:
    settings.PUBLIC_URL = ""  # type: ignore[attr-defined]
    assert suppressions.unsubscribe_url("ann@example.org") is None


def test_a_link_in_an_old_mail_outlives_a_new_key(client: Client, settings: Any) -> None:
    link = path("ann@example.com")
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another key, long enough for this"
    assert client.post(link).status_code == 200
    assert Suppression.objects.filter(address="ann@example.com").exists()


def test_the_link_marks_the_latest_mail(client: Client) -> None:
    ann = RecipientFactory.create(kind="mailbox", address="ann@example.org")
    now = timezone.now()
    old, new = (
        RunTargetFactory.create(recipient=ann, status="sent", parts_sent=1, claimed_at=now - timedelta(days=days))
        for days in (2, 1)
    )
    for _ in range(2):
        assert client.post(path("ann@example.org")).status_code == 200
    for target in (old, new):
        target.refresh_from_db()
    assert old.opted_out_at is None
    assert new.opted_out_at is not None
    assert new.replied_at is None
