"""Every time on the pages is in the reader's timezone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import time_machine
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import localize

from accounts.models import Profile
from fanout.models import Run
from fanout.templatetags.crier import away, when
from tests.admin.conftest import login
from tests.factories import RunFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("chosen", "cookie", "zone"),
    [
        pytest.param("Asia/Kuala_Lumpur", "Europe/Paris", "Asia/Kuala_Lumpur", id="chosen"),
        pytest.param("", "Europe/Paris", "Europe/Paris", id="guessed-from-the-browser"),
        pytest.param("", "../etc/passwd", "UTC", id="nonsense"),
        pytest.param("", "", "UTC", id="neither"),
    ],
)
def test_the_timezone_is_the_chosen_one_or_the_browsers(operator: User, chosen: str, cookie: str, zone: str) -> None:
    Profile.objects.create(user=operator, timezone=chosen)
    client = login(operator)
    client.cookies["timezone"] = cookie
    assert f"Times in {zone}</a>" in client.get(reverse("admin:index")).content.decode()
    assert timezone.get_current_timezone_name() == "UTC", "the next request has a clock of its own"


def test_a_person_chooses_a_timezone(operator: User, colleague: User) -> None:
    client, url = login(operator), reverse("admin:my_timezone")
    refused = client.post(url, {"timezone": "Kuala Lumpur"})
    assert "is not a known timezone" in refused.content.decode()
    assert client.post(url, {"timezone": "Asia/Kuala_Lumpur"}).status_code == 302
    assert "Times in Asia/Kuala_Lumpur" in client.get(url).content.decode()
    assert "Times in UTC" in login(colleague).get(url).content.decode()
    client.post(url, {"timezone": ""})
    assert "Times in UTC" in client.get(url).content.decode()


def test_a_run_shows_its_own_time_beside_the_readers_where_they_differ(operator: User) -> None:
    run: Run = RunFactory.create(
        reminder__owner=operator, owner=operator, status="success", scheduled_for=NOW, timezone="Asia/Kuala_Lumpur"
    )
    client, url = login(operator), reverse("admin:fanout_run_change", args=[run.pk])
    with time_machine.travel(NOW, tick=False):
        client.cookies["timezone"] = "Europe/Paris"
        there = client.get(url).content.decode()
        client.cookies["timezone"] = "Asia/Singapore"
        here = client.get(url).content.decode()
    assert ">10:00 " in there
    assert "17:00 Asia/Kuala_Lumpur" in there
    assert ">17:00 " in here
    assert "17:00 Asia/Kuala_Lumpur" not in here


def test_no_time_is_written_by_the_12_hour_clock() -> None:
    assert localize(NOW) == "Mon 5 Jan 2026 09:00"


def test_times_carry_what_the_script_needs_to_tick() -> None:
    with time_machine.travel(NOW, tick=False):
        assert 'datetime="2026-01-05T09:00:00+00:00"' in when(NOW)
        assert '<span data-away="ahead">in 2 s</span>' in away(NOW.replace(second=2))
        assert '<span data-away="ahead">now</span>' in away(NOW.replace(hour=8))
        assert away(None) == ""


def test_a_new_account_keeps_its_operators_hours(operator):
    client = login(operator)
    client.cookies["timezone"] = "Asia/Kuala_Lumpur"
    page = client.get(reverse("admin:accounts_account_add"), {"channel": "smtp"})
    assert page.context["adminform"].form["timezone"].value() == "Asia/Kuala_Lumpur"
