"""Whom an account has not written to yet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fanout.lanes.new_chats import only_new_chats
from fanout.models import KnownChat, Run
from tests.factories import AccountFactory, RecipientFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.fixture
def run() -> Run:
    """Owes a message to one person who is new to its account."""
    made: Run = RunFactory.create(status="running")
    owe(made, "+60123456789")
    return made


def owe(run: Run, address: str, **fields: Any) -> None:
    person = RecipientFactory.create(owner=run.owner, kind="person", address=address)
    RunTargetFactory.create(run=run, recipient=person, address=address, **fields)
    KnownChat.objects.create(account=AccountFactory.create(), address=address, begun_at=NOW)


def known(run: Run, address: str) -> None:
    KnownChat.objects.create(account=run.account, address=address, begun_at=NOW)


def test_nothing_but_new_chats(run: Run) -> None:
    assert only_new_chats(run.pk, run.account_id)
    owe(run, "+60123456780")
    known(run, "+60123456780")
    assert not only_new_chats(run.pk, run.account_id)


def test_what_is_settled_and_what_others_owe_does_not_count(run: Run) -> None:
    other = RunFactory.create(reminder__account=run.account, status="running")
    owe(other, "+60123456781")
    owe(run, "+60123456782", status="sent")
    owe(run, "+60123456783", account=AccountFactory.create())
    for address in ("+60123456781", "+60123456782", "+60123456783"):
        known(run, address)
    assert only_new_chats(run.pk, run.account_id)
    assert not only_new_chats(other.pk, run.account_id)
