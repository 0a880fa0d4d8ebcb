"""Tests and deliveries verify an account; other things do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from accounts.signin import SignIn
from fanout.lanes import accounts
from fanout.models import Event
from tests.factories import AccountFactory, ActivityFactory

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
case = pytest.param


@pytest.fixture
def account() -> Account:
    """Changed at noon, and nothing has shown since that it works; another one beside it."""
    AccountFactory.create(label="beside", untested_since=NOON)
    made: Account = AccountFactory.create(label="Office", untested_since=NOON)
    return made


def untested() -> set[str]:
    return set(Account.objects.filter(untested_since__isnull=False).values_list("label", flat=True))


@pytest.mark.parametrize(
    ("activity", "proven"),
    [
        case({}, True, id="sent"),
        case({"action": "email"}, True, id="of-any-kind"),
        case({"action": "something-else"}, False, id="no-delivery"),
        case({"outcome": "failed"}, False, id="failed"),
        case({"at": NOON}, False, id="at-the-same-moment"),
        case({"at": NOON - MINUTE}, False, id="before"),
    ],
)
def test_which_activity_is_a_proof(account: Account, activity: dict[str, Any], proven: bool) -> None:
    ActivityFactory.create(account=account, **{"at": NOON + MINUTE} | activity)
    accounts.note_deliveries(NOON + 2 * MINUTE)
    assert untested() == ({"beside"} if proven else {"beside", "Office"})


@pytest.mark.parametrize(
    ("ok", "asked_at", "proven", "words"),
    [
        case(True, NOON, True, "Office: fine", id="at-once"),
        case(True, NOON + MINUTE, True, "Office: fine", id="later"),
        case(True, NOON - MINUTE, False, "Office: fine", id="changed-meanwhile"),
        case(False, NOON + MINUTE, False, "Office could not sign in: fine", id="refused"),
    ],
)
def test_which_test_is_a_proof(account: Account, ok: bool, asked_at: datetime, proven: bool, words: str) -> None:
    accounts.note_test(account, SignIn(ok, "fine"), account.owner, asked_at)
    assert untested() == ({"beside"} if proven else {"beside", "Office"})
    told = Event.objects.get()
    assert (told.account, told.actor, told.at, told.verb, told.detail) == (
        account,
        account.owner,
        asked_at,
        "tested",
        words,
    )


@pytest.mark.parametrize(("channel", "since"), [("sandbox", NOON), ("whatsapp", None)])
def test_a_paired_account_needs_no_test(channel: str, since: datetime | None) -> None:
    account = AccountFactory.build(channel=channel)
    accounts.mark_untested(account, NOON)
    assert account.untested_since == since
