"""Checks of a reminder before it is switched on."""

from __future__ import annotations

import pytest

from reminders import readiness
from tests.factories import AccountFactory, TeamFactory, UserFactory

case = pytest.param


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("channels", "kinds", "subject", "says"),
    [
        case(["sandbox", "smtp"], ["group", "mailbox"], "Hello", "", id="fine"),
        case(["sandbox", "smtp"], [], " ", "Give the reminder a subject", id="no-subject"),
        case(["smtp"], ["group", "mailbox"], "Hello", "None of the senders reaches the groups", id="reach"),
    ],
)
def test_senders_that_cannot_send(channels: list[str], kinds: list[str], subject: str, says: str) -> None:
    owner = UserFactory.create()
    accounts = [AccountFactory.create(owner=owner, channel=channel) for channel in channels]
    problem = readiness.senders_problem(owner, accounts, kinds, subject)
    assert problem.startswith(says) if says else not problem


@pytest.mark.django_db
def test_a_sender_must_be_the_owners_or_the_teams() -> None:
    owner, team = UserFactory.create(), TeamFactory.create()
    foreign = AccountFactory.create()
    assert "belongs to another operator" in readiness.senders_problem(owner, [foreign], [], "")
    foreign.team = team
    foreign.save(update_fields=["team"])
    owner.groups.add(team)
    assert not readiness.senders_problem(owner, [foreign], [], "")
