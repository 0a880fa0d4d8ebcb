"""The stored state of an account: engine, forecast and `why` read the same."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.engine import loading
from fanout.lanes.account_state import AccountState
from fanout.models import LaneState
from fanout.plans.queue import account_snapshot
from fanout.runs import why
from reminders.moments import TimeWords
from tests.engine.ledgers import ledger_in_test, with_ledger
from tests.factories import AccountFactory

__all__ = ["ledger_in_test"]

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SHARED = [field.name for field in fields(AccountState)]


def shared(state: AccountState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in SHARED}


@pytest.mark.usefixtures("ledger_in_test")
@pytest.mark.parametrize("driven_before", [True, False], ids=["a-lane-with-a-past", "a-new-account"])
def test_engine_forecast_and_why_read_the_same_account(driven_before: bool) -> None:
    made = AccountFactory.create(
        timezone="Asia/Tokyo", hours_start=8, hours_end=20, max_send_per_minute=7, new_chats_per_day=5
    )
    lane = LaneState.objects.create(account=made)
    if driven_before:
        lane.theoretical_arrival, lane.next_send_at = NOW + timedelta(seconds=3), NOW + timedelta(seconds=4)
        lane.batch_sent, lane.slow_factor, lane.probing = 2, 1.5, True
        lane.new_chats_after, lane.new_chats_why, lane.new_chat_refusals = NOW + timedelta(hours=1), "blocked", 2
        lane.save()
    account = Account.objects.select_related("lane").get(pk=made.pk)

    by_lane = with_ledger(lambda ledger: loading.load(ledger, [made.pk], NOW))[made.pk].account
    by_plan = account_snapshot(account, NOW)
    by_why = why._lane_now(account, "message", TimeWords("UTC"), NOW)

    assert shared(by_lane) == shared(by_plan) == shared(by_why)
    assert (by_lane.pace.slow_factor, by_lane.probing) == ((1.5, True) if driven_before else (1.0, False))
    assert by_lane.new_chats.budget == 5
