"""Every new chat that counts for today, and beside it every one that does not: one test, because it is quick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.lanes.new_chats import new_chats_now
from fanout.models import KnownChat, RunTarget
from reminders.models import Recipient
from tests.factories import AccountFactory, RunFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
STARTS, ENDS = NOW.replace(hour=0), NOW.replace(hour=0) + timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.mark.django_db
def test_which_new_chats_were_begun_today() -> None:
    account, beside = (AccountFactory.create(timezone="UTC", new_chats_per_day=5) for _ in range(2))
    begun = [STARTS, ENDS - SECOND, STARTS - SECOND, ENDS, None]
    KnownChat.objects.bulk_create(
        [KnownChat(account=account, address=f"+6010000000{n}", begun_at=at) for n, at in enumerate(begun)]
        + [KnownChat(account=beside, address="+60100000009", begun_at=NOW)]
    )
    assert new_chats_now(account, NOW).begun == 2
    run = RunFactory.create(account=account, status="running")
    targets: list[dict[str, Any]] = [
        {"status": "sending", "claimed_at": STARTS},
        {"status": "unconfirmed", "claimed_at": ENDS - SECOND},
        {"address": "+60100000009"},  # whom only the other account knows
        {"claimed_at": STARTS - SECOND},
        {"claimed_at": ENDS},
        {"status": "failed"},
        {"kind": "group"},
        {"account": beside},
        {"address": "+60100000004"},  # who wrote first
    ]
    for n, fields in enumerate(targets):
        plain: dict[str, Any] = {"status": "sending", "claimed_at": NOW, "account": account}
        given = plain | {"address": f"+6020000000{n}"} | fields
        kind = given.pop("kind", "person")
        (person,) = Recipient.objects.bulk_create([Recipient(owner=run.owner, kind=kind, address=given["address"])])
        RunTarget.objects.create(run=run, recipient=person, position=n, **given)
    assert new_chats_now(account, NOW).begun == 5
