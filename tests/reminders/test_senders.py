"""Who sends to whom where a reminder has several senders."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Account
from reminders import senders
from reminders.models import Reminder
from reminders.senders import shares, turns
from tests.factories import AccountFactory, ReminderFactory, TeamFactory, UserFactory

KINDS = st.sampled_from(["group", "person", "mailbox"])
CHANNELS = st.sampled_from(["sandbox", "smtp", "gmail"])
STATUSES = st.sampled_from(["active", "active", "paused"])
case = pytest.param


def account(channel: str, status: str = "active") -> Account:
    return Account(label=channel, channel=channel, status=status)


@pytest.mark.parametrize(
    ("accounts", "kinds", "whose"),
    [
        case([account("sandbox")], ["group", "mailbox"], [0, 0], id="one"),
        case([account("sandbox"), account("sandbox")], ["group", "person", "group"], [0, 1, 0], id="in-turn"),
        case([account("smtp"), account("sandbox")], ["group", "group", "person"], [1, 1, 1], id="by-reach"),
        case([account("smtp"), account("gmail")], ["mailbox"] * 3, [0, 1, 0], id="two-kinds-of-mail"),
        case([account("smtp")], ["group", "mailbox"], [None, 0], id="out-of-reach"),
        case([account("smtp", "paused"), account("gmail")], ["mailbox"] * 2, [1, 1], id="the-active-one"),
        case([account("smtp", "suspended")], ["mailbox"], [0], id="none-is-active"),
    ],
)
def test_whose_turn_it_is(accounts: list[Account], kinds: list[str], whose: list[int | None]) -> None:
    assert turns(kinds, accounts) == whose


@given(st.lists(KINDS, max_size=60), st.lists(st.builds(account, CHANNELS, STATUSES), min_size=1, max_size=4))
def test_shares_are_what_the_turns_come_to(kinds: list[str], accounts: list[Account]) -> None:
    whose = Counter(turns(kinds, accounts))
    assert shares(Counter(kinds), accounts) == [whose[n] for n in range(len(accounts))]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("channels", "kinds", "subject", "says"),
    [
        case(["sandbox", "smtp"], ["group", "mailbox"], "Hello", "", id="fine"),
        case(["sandbox", "smtp"], [], " ", "Give the reminder a subject", id="no-subject"),
        case(["smtp"], ["group", "mailbox"], "Hello", "None of the senders reaches the groups", id="reach"),
    ],
)
def test_what_is_wrong_with_senders(channels: list[str], kinds: list[str], subject: str, says: str) -> None:
    owner = UserFactory.create()
    accounts = [AccountFactory.create(owner=owner, channel=channel) for channel in channels]
    problem = senders.problem(owner, accounts, kinds, subject)
    assert problem.startswith(says) if says else not problem


@pytest.mark.django_db
def test_a_sender_must_be_the_owners_or_the_teams() -> None:
    owner, team = UserFactory.create(), TeamFactory.create()
    foreign = AccountFactory.create()
    assert "belongs to somebody else" in senders.problem(owner, [foreign], [], "")
    foreign.team = team
    foreign.save(update_fields=["team"])
    owner.groups.add(team)
    assert not senders.problem(owner, [foreign], [], "")


@pytest.mark.django_db
def test_the_first_sender_is_named_once() -> None:
    reminder = ReminderFactory.create()
    other = AccountFactory.create(owner=reminder.owner)
    reminder.set_further_senders([other, reminder.account, other])
    assert reminder.senders == [reminder.account, other]
    reminder.set_further_senders([])
    assert reminder.senders == [reminder.account]


@pytest.mark.django_db
def test_senders_that_were_read_before_cost_no_query(django_assert_num_queries: Any) -> None:
    """As lists and the overview read many reminders."""
    reminder = ReminderFactory.create()
    other = AccountFactory.create(owner=reminder.owner)
    reminder.set_further_senders([other])
    read = Reminder.objects.select_related("account").prefetch_related("further_senders").get()
    with django_assert_num_queries(0):
        assert read.senders == [reminder.account, other]
