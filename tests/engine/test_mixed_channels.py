"""Runs that go out through accounts of several channels at once: each lane counts what its own provider counts."""

from __future__ import annotations

import enum
from collections import Counter
from datetime import UTC, datetime

import pytest

from accounts.actions import Action
from accounts.channels.registry import channel, channels
from accounts.models import Account
from fanout.engine.commit import columns
from fanout.models import Activity, Run
from reminders.models import Recipient, Reminder, ReminderTarget
from tests.engine.stage import Stage, books_balance

ADDRESSES = {
    "group": "12036300000000{:04}@g.us",
    "person": "+4915112345{:03}",
    "mailbox": "ann{}@example.com",
    "profile": "https://www.linkedin.com/in/ann-{}",
}
OF_EACH_KIND = 2 * len(channels())  # several accounts reach the same kind: each has its turns


def reminder_to_everybody(stage: Stage, accounts: list[Account]) -> Reminder:
    """To addresses of all kinds, so that every account has some of its own."""
    reminder = stage.reminder(accounts[0], groups=0, subject="Rent")
    reminder.set_further_senders(accounts[1:])
    people = [
        Recipient.objects.create(owner=stage.user, kind=kind, address=address.format(n))
        for kind, address in ADDRESSES.items()
        for n in range(OF_EACH_KIND)
    ]
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    return reminder


@pytest.mark.parametrize("first", channels())
def test_a_run_through_accounts_of_every_channel(stage: Stage, first: str) -> None:
    """The run's action is that of its first sender: every other channel stands once behind every one."""
    keys = [first, *(key for key in channels() if key != first)]
    pace = {"max_send_per_minute": 60, "min_gap_seconds": 0, "max_gap_seconds": 0}
    accounts = [stage.account(channel=key, address=key, **pace) for key in keys]
    run = stage.fire(reminder_to_everybody(stage, accounts))
    stage.play(120)
    assert books_balance(run)
    assert (run.status, run.sent) == (Run.Status.SUCCESS, run.total)
    assert len(stage.book.deliveries()) == run.total == len(ADDRESSES) * OF_EACH_KIND
    counted = Counter(Activity.objects.values_list("account__channel", "action"))
    assert counted.keys() == {(key, str(channel(key).action)) for key in keys}
    assert all(n == len(stage.book.deliveries(key)) for (key, _), n in counted.items())
    assert set(Account.objects.values_list("status", flat=True)) == {Account.Status.ACTIVE}


@pytest.mark.parametrize("action", Action.values)
@pytest.mark.parametrize("key", channels())
def test_counted_actions_are_plain_text(key: str, action: str) -> None:
    """It goes into statements and texts, where a member of an enumeration may read otherwise."""
    assert type(channel(key).action) is type(channel(key).counts(action)) is type(channel(key).counts(Action(action)))
    assert type(channel(key).action) is str


class Word(str, enum.Enum):  # noqa: UP042 - the old kind, whose str() is not its value
    MAIL = "e-mail"


class Number(int, enum.Enum):
    FOUR = 4


class Moment(datetime):
    pass


def test_the_ledger_spells_what_is_only_a_kind_of_a_known_type() -> None:
    """An outcome with a member of an enumeration is not lost."""
    moment = Moment(2026, 1, 5, tzinfo=UTC)
    assert columns([(Action.EMAIL, Word.MAIL, Number.FOUR, True, moment)]) == [
        '{"email"}',
        '{"e-mail"}',
        "{4}",
        "{t}",
        "{2026-01-05T00:00:00+00:00}",
    ]


def test_the_ledger_does_not_guess() -> None:
    with pytest.raises(TypeError, match="bytes"):
        columns([(b"no",)])
