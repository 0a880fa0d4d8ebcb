"""An account is stopped and started again, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.database import Steps, carry_out
from fanout.lanes import status
from fanout.models import Event, LaneState, Notification, Run
from fanout.rules.outcomes import AccountChange
from fanout.runs import account_controls
from tests.factories import AccountFactory, RunFactory, TeamFactory, UserFactory

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
        case(lambda account: account_controls.end_suspensions(NOW), id="every-minute"),
        case(lambda account: account_controls.reactivate(account, None, NOW).ok, id="an-operator"),
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


@pytest.mark.parametrize("archived", [True, False])
def test_an_archived_account_is_stopped_but_never_started(banned: Account, archived: bool) -> None:
    Account.objects.update(archived=archived)
    assert carry_out(status.reactivate(banned.pk, None, NOW)) is not archived
    assert carry_out(status.pause(banned.pk, "tidied up", None, NOW))
    banned.refresh_from_db()
    assert banned.status == "paused"


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


@pytest.mark.parametrize(
    ("titles", "holds"),
    [
        case(["Rent"], "Holds: Rent (1 run).", id="one"),
        case(["Rent", "Water", "Rent"], "Holds: Rent, Water (3 runs).", id="each-reminder-once"),
        case(["A", "B", "C", "D"], "Holds: A, B, C (4 runs).", id="no-more-than-three"),
    ],
)
def test_a_stopped_account_names_the_reminders_it_holds(db: None, titles: list[str], holds: str) -> None:
    account = AccountFactory.create(label="Ann")
    for n, title in enumerate(titles):
        hold(account, title, scheduled_for=NOW + timedelta(minutes=n))
    hold(account, "Done", status="success")
    hold(AccountFactory.create(), "Another account's")
    carry_out(status.stop(account.pk, AccountChange("suspended", "login refused"), NOW))
    assert Notification.objects.get().body == f"Ann: login refused. {holds}"


def test_a_further_sender_names_the_run_and_a_strangers_run_is_only_counted(db: None) -> None:
    account, other = AccountFactory.create(label="Ann"), AccountFactory.create()
    hold(account, "Secret", owner=UserFactory.create())
    hold(other, "Rent", owner=account.owner, lanes=[other.pk, account.pk])
    carry_out(status.stop(account.pk, AccountChange("paused", "bounces."), NOW))
    assert Notification.objects.get().body == "Ann: bounces. Holds: Rent (2 runs)."
    Notification.objects.all().delete()
    Run.objects.filter(title="Rent").delete()
    Account.objects.update(status="active")
    carry_out(status.stop(account.pk, AccountChange("paused", "bounces."), NOW))
    assert Notification.objects.get().body == "Ann: bounces. Holds 1 run."


def test_a_run_shared_with_the_owners_team_is_named(db: None) -> None:
    account, team = AccountFactory.create(label="Ann"), TeamFactory.create()
    account.owner.groups.add(team)
    hold(account, "Shared", owner=UserFactory.create(), team=team)
    carry_out(status.stop(account.pk, AccountChange("paused", "bounces"), NOW))
    assert Notification.objects.get().body == "Ann: bounces. Holds: Shared (1 run)."


def hold(account: Account, title: str, **fields: Any) -> None:
    owner = fields.pop("owner", account.owner)
    RunFactory.create(
        **{"account": account, "lanes": [account.pk], "title": title, "status": "running", "owner": owner} | fields
    )


def test_an_operators_pause_is_no_error(banned: Account) -> None:
    assert carry_out(status.pause(banned.pk, "holiday", None, NOW))
    banned.refresh_from_db()
    assert (banned.status, banned.status_reason, banned.last_error) == ("paused", "holiday", "")
    assert not Notification.objects.exists()
    assert not carry_out(status.pause(banned.pk, "holiday", None, NOW))
