"""Whose turn it is, where some recipients get nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from accounts.models import Account
from fanout.runs import freezing
from tests.engine.ledgers import NOW


def test_who_gets_nothing_has_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suppressed mailbox in front must not move a group to the account that sends mail."""
    people = ([1, 2, 3], ["mailbox", "group", "mailbox"], ["suppressed", "", ""])
    monkeypatch.setattr(freezing, "_people", lambda run, now: people)
    run: Any = SimpleNamespace(follow_up=False)
    senders = [Account(channel="smtp", status="active"), Account(channel="waha", status="active")]
    recipients, turns, whys = freezing.admitted(run, senders, NOW)
    assert (recipients, turns, whys) == (people[0], [None, 1, 0], people[2])
