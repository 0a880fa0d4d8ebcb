"""Which bounces count for an account's day, and which for the address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.lanes import status as lane_status
from fanout.models import Run
from reminders.models import Recipient, Suppression
from tests.factories import AccountFactory, ActivityFactory, RecipientFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
NOON = MIDNIGHT + timedelta(hours=12)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
case = pytest.param


@pytest.fixture
def run() -> Run:
    """Of an account that has not been stopped today."""
    made: Run = RunFactory.create(status="running")
    Account.objects.filter(pk=made.account_id).update(status_changed_at=None)
    return made


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
def test_what_was_sent_today(run: Run, activity: dict[str, Any], sends: int) -> None:
    ActivityFactory.create(account=run.account, **{"at": NOON} | activity)
    ActivityFactory.create(account=AccountFactory.create(), at=NOON)
    assert day_of(run) == (sends, 0)


@pytest.mark.parametrize(("ago", "sends"), [(SECOND, 0), (timedelta(0), 1)], ids=["before", "since"])
def test_what_was_sent_before_the_account_was_activated_is_settled(run: Run, ago: timedelta, sends: int) -> None:
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
        case("hard_bounce", {"claimed_at": MIDNIGHT - SECOND}, (1, 1), id="sent-yesterday"),
        case("hard_bounce", {"claimed_at": None, "parts_sent": 0}, (1, 1), id="never-claimed"),
    ],
)
def test_what_came_back_today(run: Run, kind: str, target: dict[str, Any], counted: tuple[int, int]) -> None:
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


def test_what_bounced_at_somebody_else_says_nothing() -> None:
    bob = RecipientFactory.create(kind="mailbox", address="bob@example.org")
    RecipientFactory.create(kind="mailbox", address="ann@example.org")
    assert judged(SOFT, SOFT, SOFT, person=bob) is False
