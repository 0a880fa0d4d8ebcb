"""The pace of gateways: 2 to 10 seconds between two messages, and what Wassenger's batches come to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.channels.registry import channels
from accounts.models import Account
from accounts.presets import PRESETS
from fanout.database import conninfo
from fanout.engine.simulation import Scenario, simulate
from fanout.plans.forecast import forecast_reminder
from reminders.models import Reminder, ReminderMessage, ReminderTarget
from tests.factories import RecipientFactory, UserFactory

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "waha": ({"url": "https://waha.example.com"}, {"api_key": "k"}),
    "evolution": ({"url": "https://evolution.example.com", "instance": "acme"}, {"api_key": "k"}),
    "wassenger": ({"device": "5f3a0c1d2e4b6a7890abcdef"}, {"token": "k"}),
}


def account(owner: User, channel: str, **pace: Any) -> Account:
    config, credentials = SETTINGS[channel]
    return Account(owner=owner, label="Line", channel=channel, config=config, credentials=credentials, **pace)


@pytest.mark.django_db
@pytest.mark.parametrize("channel", SETTINGS)
def test_the_channels_own_pace_is_accepted(channel: str) -> None:
    assert channels()[channel].delay == (2, 10)
    account(UserFactory.create(), channel).full_clean()


@pytest.mark.django_db
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 60).map(lambda seconds: round(seconds, 2)), st.sampled_from(sorted(SETTINGS)))
def test_a_delay_of_2_to_10_seconds_is_accepted_and_nothing_else(delay: float, channel: str) -> None:
    owner = User.objects.first() or UserFactory.create()
    line = account(owner, channel, max_send_per_minute=0, min_gap_seconds=delay, max_gap_seconds=delay)
    if 2 <= delay <= 10:
        line.full_clean()
    else:
        with pytest.raises(ValidationError, match="one message every 2 to 10 seconds"):
            line.full_clean()


def test_the_preset_says_the_same_as_wassengers_defaults() -> None:
    assert PRESETS["mature-gateway"].values.items() <= channels()["wassenger"].knobs.items()


def test_the_preset_is_not_for_linkedin() -> None:
    preset = PRESETS["mature-gateway"]

    assert [preset.problem(key) for key in SETTINGS] == ["", "", ""]
    assert preset.problem("unipile") == (
        "The preset mature-gateway is for accounts that send to groups, not for LinkedIn (Unipile)."
    )


@pytest.mark.django_db
def test_a_thousand_messages_take_56_minutes_on_the_engine() -> None:
    scenario = Scenario(groups=1000, knobs=dict(channels()["wassenger"].knobs))
    report = simulate(conninfo(connection.settings_dict), scenario)

    moments = [delivery.t for delivery in report.book.deliveries()]
    assert len(moments) == 1000
    assert (max(moments) - min(moments)) / 60 == pytest.approx(56, rel=0.1)


@pytest.mark.django_db
def test_a_thousand_messages_are_forecast_at_56_minutes() -> None:
    line = account(UserFactory.create(), "wassenger")
    line.save()
    now = datetime(2026, 1, 5, 9, tzinfo=UTC)
    reminder = Reminder.objects.create(owner=line.owner, account=line, title="Rent", delivery_window_end_hour=18)
    ReminderMessage.objects.create(reminder=reminder, text="Rent is due")
    groups = RecipientFactory.create_batch(1000, owner=line.owner)
    ReminderTarget.objects.bulk_create(ReminderTarget(reminder=reminder, recipient=group) for group in groups)

    expected = forecast_reminder(reminder, now)

    assert expected.ends_at is not None
    assert (expected.ends_at - now).total_seconds() / 60 == pytest.approx(56, rel=0.1)
