"""tune: values with their source, overrides, advice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from accounts.channels.registry import channel
from accounts.knobs import KNOBS
from accounts.models import Account
from fanout.lanes.tuning import RecentActivity, advise, recent_activity
from fanout.models import Activity, Event, LaneState
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import AccountFactory, ActivityFactory, DailyLimitFactory, UserFactory

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.django_db
def test_every_value_is_shown_with_its_source(settings):
    settings.BOT = {"send_burst": 5}
    AccountFactory(label="Line", max_send_per_minute=25)
    found = data("tune", "Line")["knobs"]
    assert set(KNOBS) <= set(found)
    assert (found["max_send_per_minute"]["value"], found["max_send_per_minute"]["source"]) == (25, "account")
    assert (found["send_burst"]["value"], found["send_burst"]["source"]) == (5, "environment")
    assert found["group_concurrency"]["source"] == "default"
    assert found["daily_limit_message"]["value"] is None


@pytest.mark.django_db
def test_without_an_account_the_sites_values_are_shown():
    found = data("tune")
    assert found["account"] is None
    assert found["knobs"]["fire_concurrency"]["source"] == "default"
    assert "max_send_per_minute" in text("tune")


@pytest.mark.django_db
def test_set_is_stored_logged_and_heard_by_the_lane():
    account = AccountFactory.create(label="Line")
    found = data("tune", "Line", "--set", "max_send_per_minute=30", "--set", "daily_limit_message=500")
    assert found["changed"] == {"max_send_per_minute": [40, 30], "daily_limit_message": [None, 500]}
    account.refresh_from_db()
    assert account.max_send_per_minute == 30
    assert account.daily_limits.get().limit == 500
    assert Event.objects.get().detail == "max_send_per_minute: 40 → 30, daily_limit_message: none → 500"
    assert LaneState.objects.get(account=account).wake_count == 1


@pytest.mark.django_db
def test_an_empty_value_gives_the_knob_back():
    AccountFactory(label="Line", max_send_per_minute=30)
    found = data("tune", "Line", "--set", "max_send_per_minute=")
    assert found["knobs"]["max_send_per_minute"]["source"] == "default"


@pytest.mark.django_db
def test_an_empty_cap_is_the_environments_and_none_is_none_at_all(settings):
    settings.BOT_DAILY_LIMITS = {"email": 20}
    account = AccountFactory.create(label="Office", channel="smtp", address="office@example.com")
    DailyLimitFactory(account=account, action="email", limit=500)
    found = data("tune", "Office", "--set", "daily_limit_email=")
    assert found["changed"] == {"daily_limit_email": [500, 20]}
    assert not account.daily_limits.exists()
    found = data("tune", "Office", "--set", "daily_limit_email=none")
    assert found["changed"] == {"daily_limit_email": [20, None]}
    assert account.daily_limits.get().limit is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("pair", "says"),
    [
        pytest.param("speed=9", "There is no knob 'speed'", id="unknown"),
        pytest.param("send_burst=0", "must be between 1 and", id="out of range"),
        pytest.param("send_burst=two", "takes a whole number", id="not a number"),
        pytest.param("send_burst", "is not KEY=VALUE", id="no value"),
        pytest.param("min_gap_seconds=9", "is above max_gap_seconds", id="does not fit the others"),
        pytest.param("fire_concurrency=9", "BOT_FIRE_CONCURRENCY", id="the site's"),
        pytest.param("message=9", "There is no knob 'message'", id="an action by itself"),
        pytest.param("daily_limit_faxes=9", "There is no knob 'daily_limit_faxes'", id="cap of an unknown action"),
        pytest.param("daily_limit_message=many", "takes a whole number up to 1000000 or 'none'", id="cap"),
        pytest.param("daily_limit_message=99999999999", "takes a whole number up to", id="cap beyond the database"),
        pytest.param("daily_limit_message=²", "takes a whole number up to", id="cap that is no number"),
    ],
)
def test_a_wrong_value_changes_nothing(pair, says):
    account = AccountFactory.create(label="Line")
    before = Account.objects.values().get(pk=account.pk)
    assert says in bad_input("tune", "Line", "--set", "send_burst=4", "--set", pair)
    assert Account.objects.values().get(pk=account.pk) == before
    assert not Event.objects.exists()


@pytest.mark.django_db
def test_set_needs_an_account_and_the_right_to_it():
    assert "Name an account" in bad_input("tune", "--set", "send_burst=2")
    AccountFactory(label="Line")
    UserFactory(username="stranger")
    assert "another operator" in not_done("tune", "Line", "--set", "send_burst=2", "--as", "stranger")


# --- advice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "known", "proposed"),
    [
        pytest.param(40, RecentActivity(sent=5000, days=20), 50, id="weeks without a flag: a step faster"),
        pytest.param(55, RecentActivity(sent=5000, days=20), 60, id="never beyond 60"),
        pytest.param(60, RecentActivity(sent=5000, days=20), None, id="60 is enough"),
        pytest.param(40, RecentActivity(sent=5000, days=20, rate_limited=1, limited_at=NOW), 30, id="a flag: slower"),
        pytest.param(25, RecentActivity(sent=50, days=2, rate_limited=1, limited_at=NOW), 20, id="never below 20"),
        pytest.param(0, RecentActivity(rate_limited=1, limited_at=NOW), 20, id="no limit, and a flag"),
        pytest.param(40, RecentActivity(sent=10, days=1), None, id="too little to judge by"),
        pytest.param(40, RecentActivity(sent=900, failed=100, days=20), None, id="errors first"),
    ],
)
def test_advice_follows_recent_activity(rate, known, proposed):
    (advice,) = advise(rate, 3, 0.05, known, NOW)
    assert (advice.knob, advice.proposed) == ("max_send_per_minute", proposed)
    assert advice.reason.endswith(".")


def test_a_slow_account_that_is_flagged_loses_its_burst():
    (advice,) = advise(20, 3, 0.05, RecentActivity(rate_limited=2, limited_at=NOW), NOW)
    assert (advice.knob, advice.proposed) == ("send_burst", 1)


@pytest.mark.django_db
def test_recent_activity_is_counted():
    account, now = AccountFactory.create(), timezone.now()
    for days, outcome in ((1, "sent"), (2, "sent"), (2, "failed"), (3, "rate_limited"), (60, "rate_limited")):
        ActivityFactory(account=account, outcome=outcome, at=now - timedelta(days=days))
    found = recent_activity(account, now)
    assert (found.sent, found.failed, found.rate_limited, found.days) == (2, 1, 1, 2)
    assert found.limited_at == Activity.objects.filter(outcome="rate_limited").latest("at").at


@pytest.mark.django_db
def test_advise_is_part_of_the_answer():
    AccountFactory(label="Line")
    (advice,) = data("tune", "Line", "--advise")["advice"]
    assert advice["proposed"] is None
    assert "Keep max_send_per_minute at 40" in text("tune", "Line", "--advise")


@pytest.mark.django_db
def test_a_preset_is_applied_as_a_whole_and_noted():
    account = AccountFactory.create(label="Office", channel="smtp", address="office@example.com")
    changed = data("tune", "Office", "--preset", "cold-mail", "--set", "daily_limit_email=30")["changed"]
    assert changed["max_gap_seconds"] == [0, 1200]
    account.refresh_from_db()
    assert (account.hours_start, account.hours_end, account.send_days) == (9, 18, [1, 2, 3, 4, 5])
    assert (account.min_gap_seconds, account.daily_limits.get().limit) == (360, 30)
    verbs = set(Event.objects.values_list("verb", flat=True))
    assert verbs == {"preset applied", "changed", "tuned"}


@pytest.mark.django_db
def test_a_preset_is_for_its_kind_of_account():
    AccountFactory(label="Line")
    assert "is for accounts that send e-mails, not for Sandbox" in bad_input("tune", "Line", "--preset", "cold-mail")
    assert not Event.objects.exists()


@pytest.mark.parametrize(
    ("key", "per_minute", "cap"), [("gmail", 150, 2000), ("smtp", 300, None)], ids=["400-ms", "200-ms"]
)
def test_mail_is_spaced_as_its_providers_ask(key, per_minute, cap):
    described = channel(key)
    assert described.knobs == {"group_concurrency": 1, "max_send_per_minute": per_minute, "send_burst": 1}
    assert described.daily_caps.get("email") == cap
