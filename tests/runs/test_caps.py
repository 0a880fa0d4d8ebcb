"""What the cap is today, where it comes from, and how much of it is used."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from accounts.channels import registry
from accounts.models import Account
from fanout.runs.caps import NO_WARMUP, Cap, OwnLimit, WarmUp, cap_for, daily_cap, local_date, used_today
from tests.factories import AccountFactory, ActivityFactory, DailyLimitFactory, RunFactory, RunTargetFactory

TODAY = date(2026, 1, 5)
FALLBACK = {"email": 20, "message": 50}
WARMING = WarmUp(date(2026, 1, 1), 14, 5)
case = pytest.param


@pytest.mark.parametrize(
    ("channel", "own", "warmup", "cap"),
    [
        case("smtp", None, NO_WARMUP, Cap(20, "fallback"), id="mail-falls-back"),
        case("smtp", OwnLimit(300), NO_WARMUP, Cap(300, "account"), id="own-limit"),
        case("smtp", OwnLimit(None), NO_WARMUP, Cap(None, "account"), id="own-limit-says-none"),
        case("sandbox", None, NO_WARMUP, Cap(None, "none"), id="messaging-has-none"),
        case("sandbox", OwnLimit(7), NO_WARMUP, Cap(7, "account"), id="messaging-with-its-own"),
        case("smtp", OwnLimit(300), WARMING, Cap(16, "warm-up"), id="warming-up"),
        case("sandbox", None, WARMING, Cap(22, "warm-up"), id="warming-up-without-a-cap"),
        case("smtp", OwnLimit(3), WARMING, Cap(3, "account"), id="already-below-the-floor"),
        case("smtp", OwnLimit(300), WarmUp(date(2025, 1, 1), 14, 5), Cap(300, "account"), id="warm"),
        case("smtp", OwnLimit(300), WarmUp(date(2026, 1, 5), 0, 5), Cap(300, "account"), id="warm-up-off"),
    ],
)
def test_daily_cap(channel: str, own: OwnLimit | None, warmup: WarmUp, cap: Cap) -> None:
    assert daily_cap(channel, "email", own, FALLBACK, warmup, TODAY) == cap


def test_a_channel_may_know_its_providers_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(registry.channel("smtp"), daily_caps={"email": 500})
    monkeypatch.setitem(registry.channels(), "smtp", known)

    assert daily_cap("smtp", "email", None, FALLBACK, NO_WARMUP, TODAY) == Cap(500, "channel")
    assert daily_cap("smtp", "message", None, FALLBACK, NO_WARMUP, TODAY) == Cap(50, "fallback")
    assert daily_cap("smtp", "email", OwnLimit(7), FALLBACK, NO_WARMUP, TODAY) == Cap(7, "account")


def test_an_action_without_a_fallback_has_no_cap() -> None:
    assert daily_cap("smtp", "inmail", None, FALLBACK, NO_WARMUP, TODAY) == Cap(None, "none")


@pytest.mark.parametrize(
    ("at", "day"),
    [
        case("2027-01-01T04:59", date(2026, 12, 31), id="still-last-year"),
        case("2027-01-01T05:00", date(2027, 1, 1), id="new-year"),
        case("2026-11-02T04:59", date(2026, 11, 1), id="day-with-25-hours"),
    ],
)
def test_the_day_is_the_accounts_own(at: str, day: date) -> None:
    assert local_date("America/New_York", datetime.fromisoformat(at).replace(tzinfo=UTC)) == day


NOW = datetime(2026, 1, 5, 20, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 5, 5, tzinfo=UTC)  # in New York


@pytest.fixture
def account(db: None) -> Account:
    account: Account = AccountFactory.create(timezone="America/New_York", channel="smtp")
    return account


def test_cap_for_reads_own_limit_and_warmup(account: Account, settings: object) -> None:
    assert cap_for(account, "email", TODAY) == Cap(20, "fallback")
    DailyLimitFactory.create(account=account, action="email", limit=300)
    assert cap_for(account, "email", TODAY) == Cap(300, "account")
    account.warmup_started_on, account.warmup_days, account.warmup_floor = TODAY, 14, 5
    assert cap_for(account, "email", TODAY) == Cap(5, "warm-up")
    assert cap_for(account, "email", TODAY + timedelta(days=14)) == Cap(300, "account")


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
