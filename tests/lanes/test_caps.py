"""What the cap is today, and how much of it is used."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.lanes.account_limits import cap_on, cap_today, day_of, used_on, used_today
from fanout.rules.gates import Cap
from reminders.window import local_day_bounds
from tests.factories import AccountFactory, ActivityFactory, DailyLimitFactory, RunFactory, RunTargetFactory

TODAY = date(2026, 1, 5)
NOW = datetime(2026, 1, 5, 20, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 5, 5, tzinfo=UTC)  # in New York


@pytest.fixture
def account(db: None) -> Account:
    account: Account = AccountFactory.create(timezone="America/New_York", channel="smtp")
    return account


def test_cap_on_reads_own_limit_and_warmup(account: Account, settings: object) -> None:
    assert cap_on(account, "email", TODAY) == Cap(20, "fallback")
    DailyLimitFactory.create(account=account, action="email", limit=300)
    assert cap_on(account, "email", TODAY) == Cap(300, "account")
    account.warmup_started_on, account.warmup_days, account.warmup_floor = TODAY, 14, 5
    assert cap_on(account, "email", TODAY) == Cap(5, "warm-up")
    assert cap_on(account, "email", TODAY + timedelta(days=14)) == Cap(300, "account")


def test_what_counts_as_used(account: Account) -> None:
    run = RunFactory.create(account=account, action="email")
    for outcome, at in [
        ("sent", MIDNIGHT),
        ("sent", NOW),
        ("sent", MIDNIGHT - timedelta(seconds=1)),  # yesterday
        ("failed", NOW),
        ("rate_limited", NOW),
    ]:
        ActivityFactory.create(account=account, action="email", outcome=outcome, at=at)
    ActivityFactory.create(account=account, action="message", outcome="sent", at=NOW)
    ActivityFactory.create(action="email", outcome="sent", at=NOW)  # somebody else's
    for status in ("pending", "sending", "unconfirmed", "failed", "skipped"):
        RunTargetFactory.create(run=run, account=account, status=status, claimed_at=NOW)
    RunTargetFactory.create(run=run, account=account, status="unconfirmed", claimed_at=MIDNIGHT - timedelta(hours=1))
    # Two sent today, one in flight, one unconfirmed.
    assert used_today(account, "email", NOW) == 4


@pytest.mark.parametrize(
    ("at", "counted"),
    [
        pytest.param(MIDNIGHT, 1, id="from-midnight"),
        pytest.param(MIDNIGHT - timedelta(seconds=1), 0, id="yesterday"),
        pytest.param(MIDNIGHT + timedelta(days=1) - timedelta(seconds=1), 1, id="until-midnight"),
        pytest.param(MIDNIGHT + timedelta(days=1), 0, id="tomorrow"),
    ],
)
@pytest.mark.parametrize("what", ["sent", "in flight"])
def test_a_day_is_the_accounts_own(account: Account, what: str, at: datetime, counted: int) -> None:
    if what == "sent":
        ActivityFactory.create(account=account, action="email", at=at)
    else:
        RunTargetFactory.create(run=RunFactory.create(account=account, action="email"), status="sending", claimed_at=at)
    assert used_today(account, "email", NOW) == counted


@pytest.mark.django_db
def test_what_is_in_flight_counts_for_its_own_account_and_action() -> None:
    seat = AccountFactory.create(timezone="UTC", channel="unipile")
    beside = AccountFactory.create(timezone="UTC", channel="unipile")
    for account, action in ((seat, "connection_request"), (seat, "email"), (beside, "message")):
        run = RunFactory.create(account=account, action=action)
        RunTargetFactory.create(run=run, status="sending", claimed_at=NOW)
    assert used_today(seat, "connection_request", NOW) == 1
    assert used_today(seat, "message", NOW) == 1, "a run of several channels counts as what the provider takes"


def test_many_days_are_asked_at_once_and_none_without_a_query(account: Account, django_assert_num_queries: Any) -> None:
    other = AccountFactory.create(timezone="UTC", channel="smtp")
    ActivityFactory.create(account=account, action="email", at=NOW)
    bounds = local_day_bounds("UTC", NOW)
    with django_assert_num_queries(1):
        found = used_on([day_of(one.pk, "smtp", "email", bounds) for one in (account, other)])
    assert found == {(account.pk, "email"): 1, (other.pk, "email"): 0}
    with django_assert_num_queries(0):
        assert used_on([]) == {}


def test_the_cap_of_today_is_that_of_the_accounts_own_date(account: Account) -> None:
    account.warmup_started_on, account.warmup_days, account.warmup_floor = TODAY, 14, 5
    DailyLimitFactory.create(account=account, action="email", limit=300)
    assert cap_today(account, "email", MIDNIGHT) == Cap(5, "warm-up")
    assert cap_today(account, "email", MIDNIGHT + timedelta(days=14)) == Cap(300, "account")
    assert cap_today(account, "email", MIDNIGHT + timedelta(days=14, seconds=-1)).source == "warm-up"
