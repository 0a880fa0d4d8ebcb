"""An account is stopped and started again, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from accounts.models import Account
from fanout.lanes import status
from fanout.lanes.statements import Steps, carry_out
from fanout.models import Event, LaneState, Notification
from fanout.rules.outcomes import AccountChange
from fanout.runs import controls
from tests.factories import AccountFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
case = pytest.param


@pytest.fixture
def banned(db: None) -> Account:
    """Suspended until a moment ago, with crashes and errors on its lane."""
    account: Account = AccountFactory.create(
        status="suspended", status_reason="banned", status_until=NOW - timedelta(seconds=1)
    )
    LaneState.objects.create(account=account, crashes=4, sample="eee", poke=7)
    return account


@pytest.mark.parametrize(
    "again",
    [
        case(lambda account: carry_out(status.end_suspension(account.pk, NOW)), id="the-lane"),
        case(lambda account: controls.end_suspensions(NOW), id="every-minute"),
        case(lambda account: controls.reactivate(account, None, NOW).ok, id="an-operator"),
    ],
)
def test_whoever_reactivates_starts_with_a_probe_and_forgets_crashes(
    banned: Account, again: Callable[[Account], object]
) -> None:
    assert again(banned)
    banned.refresh_from_db()
    assert (banned.status, banned.status_reason, banned.status_until) == ("active", "", None)
    lane = LaneState.objects.get(account=banned)
    assert (lane.probing, lane.crashes, lane.sample, lane.poke, lane.due_at) == (True, 0, "", 8, NOW)
    assert Event.objects.filter(account=banned, verb="reactivated").count() == 1
    assert not again(banned)


def test_a_suspension_that_lasts_is_not_ended(banned: Account) -> None:
    Account.objects.update(status_until=NOW + timedelta(seconds=1))
    assert not carry_out(status.end_suspension(banned.pk, NOW))
    assert not LaneState.objects.get(account=banned).probing


def test_a_lane_that_never_was_begins_with_a_probe(db: None) -> None:
    account = AccountFactory.create(status="unpaired")
    assert carry_out(status.reactivate(account.pk, None, NOW))
    assert LaneState.objects.get(account=account).probing


@pytest.mark.parametrize(
    ("before", "stops", "after"),
    [
        case("active", True, "suspended", id="active"),
        case("paused", False, "paused", id="an-operators-pause-stands"),
        case("suspended", False, "suspended", id="once"),
    ],
)
def test_the_engine_stops_only_an_active_account(db: None, before: str, stops: bool, after: str) -> None:
    account = AccountFactory.create(status=before, label="Ann")
    stop: Steps[bool] = status.stop(account.pk, AccountChange("suspended", "login refused", NOW), NOW)
    assert carry_out(stop) is stops
    account.refresh_from_db()
    assert account.status == after
    assert account.last_error == ("login refused" if stops else "")
    told = Notification.objects.filter(user=account.owner, title="Account suspended", body="Ann: login refused")
    assert told.exists() is stops


def test_an_operators_pause_is_no_error(banned: Account) -> None:
    assert carry_out(status.pause(banned.pk, "holiday", None, NOW))
    banned.refresh_from_db()
    assert (banned.status, banned.status_reason, banned.last_error) == ("paused", "holiday", "")
    assert not Notification.objects.exists()
    assert not carry_out(status.pause(banned.pk, "holiday", None, NOW))
