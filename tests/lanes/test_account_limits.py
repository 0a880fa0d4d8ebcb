"""An account's limits as stored: the cap of a day and how much of it is used, and its queue of follow-ups."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from accounts.models import Account
from fanout.lanes import account_limits, tuning
from fanout.lanes.account_limits import cap_on, cap_today, day_of, used_on, used_today
from fanout.lanes.tuning import CAP, MOST_PER_DAY, NO_CAP, UNLIMITED
from fanout.rules.gates import Cap
from reminders.window import local_day_bounds
from tests.factories import AccountFactory, ActivityFactory, DailyLimitFactory, RunFactory, RunTargetFactory

TODAY = date(2026, 1, 5)
pytestmark = pytest.mark.django_db
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


def test_which_outcomes_count_as_used(account: Account) -> None:
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
    ActivityFactory.create(action="email", outcome="sent", at=NOW)  # another account's
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
def test_targets_in_flight_count_for_their_own_account_and_action() -> None:
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


case = pytest.param


@pytest.mark.parametrize(
    ("raw", "limit"),
    [
        case("0", 0, id="nothing"),
        case("50", 50, id="some"),
        case(str(MOST_PER_DAY), MOST_PER_DAY, id="the most"),
        case(NO_CAP, UNLIMITED, id="no limit"),
    ],
)
def test_a_daily_limit_is_read(raw: str, limit: float) -> None:
    assert tuning._cap(f"{CAP}email", raw) == limit


@pytest.mark.parametrize("raw", [str(MOST_PER_DAY + 1), "999999999", "9" * 5_000, "-1", "1.5", "²", "many", ""])
def test_an_invalid_daily_limit_is_refused_in_a_sentence(raw: str) -> None:
    with pytest.raises(ValidationError) as refused:
        tuning._cap(f"{CAP}email", raw)
    assert refused.value.messages == [
        f"{CAP}email takes a whole number up to {MOST_PER_DAY} or {NO_CAP!r}, not {raw[:40]!r}."
    ]


STARTS, ENDS = NOW.replace(hour=0), NOW.replace(hour=0) + timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.mark.django_db
def test_use_of_the_cap_of_today() -> None:
    seat, beside = (AccountFactory.create(timezone="UTC", channel="unipile") for _ in range(2))
    run = RunFactory.create(account=seat, action="message")
    for at in (STARTS, NOW, ENDS - SECOND):
        ActivityFactory.create(account=seat, at=at)
    for fields in ({"at": STARTS - SECOND}, {"at": ENDS}, {"action": "inmail"}, {"outcome": "failed"}):
        ActivityFactory.create(**{"account": seat, "at": NOW} | fields)
    ActivityFactory.create(account=beside, at=NOW)
    assert used_today(seat, "message", NOW) == 3
    for status, at in (("sending", STARTS), ("unconfirmed", ENDS - SECOND)):
        RunTargetFactory.create(run=run, status=status, claimed_at=at)
    for status, at in (("sending", STARTS - SECOND), ("sending", ENDS), ("failed", NOW), ("pending", NOW)):
        RunTargetFactory.create(run=run, status=status, claimed_at=at)
    RunTargetFactory.create(run=run, status="sending", claimed_at=NOW, account=beside)
    RunTargetFactory.create(
        run=RunFactory.create(account=seat, action="connection_request"), status="sending", claimed_at=NOW
    )
    assert used_today(seat, "message", NOW) == 5


WAITING = ("preparing", "queued", "running", "waiting", "paused")


@pytest.mark.parametrize("status", [*WAITING, "skipped", "canceled"])
@pytest.mark.parametrize("follow_up", [True, False])
def test_which_runs_stand_in_the_queue(status: str, follow_up: bool) -> None:
    reason = "operator" if status == "paused" else ""
    run = RunFactory.create(status=status, pause_reason=reason, follow_up=follow_up, targets={"pending": 2})
    assert account_limits.queued([run.account_id], 9) == {run.account_id: 2 if follow_up and status in WAITING else 0}


@pytest.mark.parametrize("status", ["running", "paused", "preparing"])
def test_targets_an_account_stepped_aside_from_are_not_in_its_queue(status: str) -> None:
    run = RunFactory.create(status=status, pause_reason="operator" if status == "paused" else "", follow_up=True)
    aside = AccountFactory.create()
    RunTargetFactory.create(run=run, account=aside)
    assert account_limits.queued([aside.pk, run.account_id], 9) == {aside.pk: 0, run.account_id: 0}


def test_a_queue_is_what_is_pending_of_that_account_and_counted_up_to_a_limit() -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    run = RunFactory.create(account=one, lanes=[one.pk, two.pk], follow_up=True, status="running")
    for status in ("pending", "pending", "sending", "sent", "unconfirmed", "skipped"):
        RunTargetFactory.create(run=run, account=one, status=status)
    RunTargetFactory.create(run=run, account=two)
    RunFactory.create(account=one, follow_up=True, status="queued", targets={"pending": 2})
    assert account_limits.queued([one.pk, two.pk], 9) == {one.pk: 4, two.pk: 1}
    assert account_limits.queued([one.pk, two.pk], 3) == {one.pk: 3, two.pk: 1}


@pytest.mark.parametrize(("pending", "under_backpressure"), [(1, False), (2, False), (3, True)])
def test_pressure_begins_above_the_threshold(settings: Any, pending: int, under_backpressure: bool) -> None:
    settings.BOT_BACKPRESSURE_THRESHOLD, settings.BOT_QUEUE_MAX = 2, 5
    run = RunFactory.create(follow_up=True, status="running", targets={"pending": pending})
    assert account_limits.under_backpressure(run.account_id) is under_backpressure
    limits = account_limits.queue_limits()
    assert account_limits.up_to_threshold([7], limits) == {"accounts": [7], "most": 3}
