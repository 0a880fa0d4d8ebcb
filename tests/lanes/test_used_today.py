"""Everything that counts against a daily cap, and beside it everything that does not: one test, because it is quick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.lanes.account_limits import used_today
from tests.factories import AccountFactory, ActivityFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 20, tzinfo=UTC)
STARTS, ENDS = NOW.replace(hour=0), NOW.replace(hour=0) + timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.mark.django_db
def test_what_is_used_of_today() -> None:
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
