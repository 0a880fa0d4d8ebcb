"""What the cap of a day is, and where it comes from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from accounts.channels import registry
from fanout.rules.gates import Cap, OwnLimit, WarmUp, cap_of_day, local_date

TODAY = date(2026, 1, 5)
FALLBACK = {"email": 20, "message": 50}
NO_WARMUP = WarmUp()
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
    assert cap_of_day(channel, "email", own, FALLBACK, warmup, TODAY) == cap


def test_a_channel_may_know_its_providers_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    capped = replace(registry.channel("smtp"), daily_caps={"email": 500})
    monkeypatch.setitem(registry.channels(), "smtp", capped)

    assert cap_of_day("smtp", "email", None, FALLBACK, NO_WARMUP, TODAY) == Cap(500, "channel")
    assert cap_of_day("smtp", "message", None, FALLBACK, NO_WARMUP, TODAY) == Cap(50, "fallback")
    assert cap_of_day("smtp", "email", OwnLimit(7), FALLBACK, NO_WARMUP, TODAY) == Cap(7, "account")


def test_an_action_without_a_fallback_has_no_cap() -> None:
    assert cap_of_day("smtp", "inmail", None, FALLBACK, NO_WARMUP, TODAY) == Cap(None, "none")


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
