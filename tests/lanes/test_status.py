"""Stopping and starting accounts, and the consequences of bounces for an account and an address."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.database import Steps, carry_out, execute
from fanout.lanes import status
from fanout.lanes import status as lane_status
from fanout.models import Event, LaneState, Notification, Run
from fanout.rules.outcomes import AccountChange
from fanout.runs import controls
from reminders.models import Recipient, Suppression
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
    TeamFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
case = pytest.param


@pytest.fixture
def banned(db: None) -> Account:
    """Suspended until a moment ago, with crashes and errors on its lane."""
    account: Account = AccountFactory.create(
        status="suspended", status_reason="banned", status_until=NOW - timedelta(seconds=1)
    )
    LaneState.objects.create(account=account, crashes=4, sample="eee", wake_count=7)
    return account


@pytest.mark.parametrize(
    "again",
    [
        case(lambda account: carry_out(status.end_suspension(account.pk, NOW)), id="the-lane"),
        case(lambda account: controls.end_suspensions(NOW), id="every-minute"),
        case(lambda account: controls.reactivate(account, None, NOW).ok, id="an-operator"),
    ],
)
def test_reactivation_starts_with_a_probe_and_forgets_crashes(
    banned: Account, again: Callable[[Account], object]
) -> None:
    assert again(banned)
    banned.refresh_from_db()
    assert (banned.status, banned.status_reason, banned.status_until) == ("active", "", None)
    lane = LaneState.objects.get(account=banned)
    assert (lane.probing, lane.crashes, lane.sample, lane.wake_count, lane.due_at) == (True, 0, "", 8, NOW)
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


MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
NOON = MIDNIGHT + timedelta(hours=12)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


@pytest.fixture
def run() -> Run:
    """An account that has not been stopped today."""
    made: Run = RunFactory.create(status="running")
    Account.objects.filter(pk=made.account_id).update(status_changed_at=None)
    return made


def test_a_day_ends(run: Run) -> None:
    ActivityFactory.create(account=run.account, at=NOON)
    (row,) = execute(*lane_status.bounces_of_day(run.account_id, MIDNIGHT, NOON))
    assert row["sends"] == 0
    (row,) = execute(*lane_status.bounces_of_day(run.account_id, MIDNIGHT, NOON + SECOND))
    assert row["sends"] == 1


def day_of(run: Run) -> tuple[int, int]:
    (row,) = execute(*lane_status.bounces_of_day(run.account_id, MIDNIGHT))
    return row["sends"], row["bounced"]


@pytest.mark.parametrize(
    ("activity", "sends"),
    [
        case({}, 1, id="sent"),
        case({"at": MIDNIGHT}, 1, id="at-midnight"),
        case({"at": MIDNIGHT - SECOND}, 0, id="yesterday"),
        case({"outcome": "failed"}, 0, id="failed"),
        case({"outcome": "rate_limited"}, 0, id="put-off"),
        case({"action": "something-else"}, 0, id="no-message"),
    ],
)
def test_messages_sent_today(run: Run, activity: dict[str, Any], sends: int) -> None:
    ActivityFactory.create(account=run.account, **{"at": NOON} | activity)
    ActivityFactory.create(account=AccountFactory.create(), at=NOON)
    assert day_of(run) == (sends, 0)


@pytest.mark.parametrize(("ago", "sends"), [(SECOND, 0), (timedelta(0), 1)], ids=["before", "since"])
def test_messages_sent_before_the_account_was_activated_do_not_count(run: Run, ago: timedelta, sends: int) -> None:
    ActivityFactory.create(account=run.account, at=NOON - ago)
    Account.objects.update(status_changed_at=NOON)
    assert day_of(run) == (sends, 0)


@pytest.mark.parametrize(
    ("kind", "target", "counted"),
    [
        case("hard_bounce", {}, (0, 1), id="hard"),
        case("soft_bounce", {}, (0, 1), id="soft-and-final"),
        case("soft_bounce", {"status": "pending"}, (0, 0), id="soft-and-tried-again"),
        case("hard_bounce", {"status": "sent"}, (0, 1), id="hard-whatever-became-of-it"),
        case("auth", {}, (0, 0), id="the-accounts-own-trouble"),
        case("hard_bounce", {"parts_sent": 0}, (1, 1), id="refused-at-once"),
        case("hard_bounce", {"claimed_at": MIDNIGHT}, (0, 1), id="sent-since-midnight"),
        case("hard_bounce", {"claimed_at": MIDNIGHT - SECOND}, (0, 0), id="sent-yesterday"),
        case("sender_rejected", {"parts_sent": 0}, (1, 1), id="the-sender-refused"),
        case("hard_bounce", {"claimed_at": None, "parts_sent": 0}, (1, 1), id="never-claimed"),
    ],
)
def test_bounces_of_today(run: Run, kind: str, target: dict[str, Any], counted: tuple[int, int]) -> None:
    bounced = RunTargetFactory.create(run=run, **{"status": "failed", "parts_sent": 1, "claimed_at": NOON} | target)
    for _ in range(2):  # two lines about one message
        ActivityFactory.create(account=run.account, run_target=bounced, at=NOON, outcome="failed", kind=kind)
    assert day_of(run) == counted


@pytest.mark.parametrize(
    ("claimed_at", "bounced"),
    [(NOON - HOUR - SECOND, 0), (NOON - HOUR, 1), (None, 1)],
    ids=["before", "since", "never"],
)
def test_a_message_of_before_the_activation_bounces_without_counting(
    run: Run, claimed_at: datetime | None, bounced: int
) -> None:
    target = RunTargetFactory.create(run=run, status="failed", parts_sent=1, claimed_at=claimed_at)
    ActivityFactory.create(account=run.account, run_target=target, at=NOON, outcome="failed", kind="hard_bounce")
    Account.objects.update(status_changed_at=NOON - HOUR)
    assert day_of(run) == (0, bounced)


# --- an address -------------------------------------------------------------------------------------------

SOFT = {"status": "failed", "error_kind": "soft_bounce"}


def judged(*outcomes: dict[str, Any], person: Recipient | None = None) -> bool:
    """After these outcomes, oldest first."""
    person = person or RecipientFactory.create(kind="mailbox", address="ann@example.org")
    for n, outcome in enumerate(outcomes):
        RunTargetFactory.create(recipient=person, **{"settled_at": NOON + n * HOUR} | outcome)
    return carry_out(lane_status.judge_address("ann@example.org", "full", NOON))


@pytest.mark.parametrize(
    ("third", "suppressed"),
    [
        case(SOFT, True, id="soft"),
        case({"status": "failed", "error_kind": "content_rejected"}, False, id="another-failure"),
        case({"status": "sent", "error_kind": "soft_bounce"}, False, id="sent-at-last"),
        case({"status": "pending", "error_kind": "soft_bounce"}, False, id="tried-again"),
        case({**SOFT, "address": "before@example.org"}, False, id="to-an-address-of-before"),
    ],
)
def test_the_third_soft_bounce(third: dict[str, Any], suppressed: bool) -> None:
    assert judged(SOFT, SOFT, third) is suppressed
    assert Suppression.objects.filter(address="ann@example.org", reason="soft_bounces").exists() is suppressed


@pytest.mark.parametrize(
    ("tail", "suppressed"), [case(["sent"] * 2, True, id="of-the-last-five"), case(["sent"] * 3, False, id="long-ago")]
)
def test_only_the_last_five_outcomes_speak(tail: list[str], suppressed: bool) -> None:
    assert judged(SOFT, SOFT, SOFT, *({"status": status} for status in tail)) is suppressed


def test_bounces_of_other_addresses_do_not_count() -> None:
    bob = RecipientFactory.create(kind="mailbox", address="bob@example.org")
    RecipientFactory.create(kind="mailbox", address="ann@example.org")
    assert judged(SOFT, SOFT, SOFT, person=bob) is False
