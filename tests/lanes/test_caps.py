"""What the cap is today, and how much of it is used."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from accounts.models import Account
from fanout.lanes.caps import cap_on, used_today
from fanout.rules.caps import Cap
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
