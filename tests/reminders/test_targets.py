"""Lists become recipients and targets, however long they are."""

from __future__ import annotations

from collections import Counter
from time import monotonic

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Account
from reminders import erasure, imports, targets
from reminders.imports import Entry
from reminders.models import Recipient, Reminder
from reminders.targets import shares, turns
from tests.factories import RecipientFactory, ReminderFactory, TeamFactory, UserFactory

pytestmark = pytest.mark.django_db

KINDS = st.sampled_from(["group", "person", "mailbox"])
CHANNELS = st.sampled_from(["sandbox", "smtp", "gmail"])
STATUSES = st.sampled_from(["active", "active", "paused"])
case = pytest.param


def entries(n: int, **columns: str) -> list[Entry]:
    """So many people; a column is a template that gets the number of the line."""
    header = ",".join(["address", "name", *columns])
    lines = (",".join([f"+4917{k:08d}", f"P{k}", *(text.format(k) for text in columns.values())]) for k in range(n))
    return imports.read("\n".join([header, *lines])).entries


def queries(reminder: Reminder, listed: list[Entry]) -> int:
    with CaptureQueriesContext(connection) as asked:
        targets.add_listed(reminder, reminder.owner, listed)
    assert reminder.targets.count() == len(listed)
    return len(asked)


def rows_read() -> int:
    """Return how many recipients this connection has read in its transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'reminders_recipient'"
        )
        return int(cursor.fetchone()[0])


def test_a_long_list_takes_as_many_queries_as_a_short_one() -> None:
    short, long = entries(100, flat="{}"), entries(5_000, flat="{}")
    fresh = queries(ReminderFactory.create(), short)
    assert queries(ReminderFactory.create(), long) == fresh
    erasure.remember("ann@example.com", UserFactory.create().date_joined)
    fresh = queries(ReminderFactory.create(), short)
    reminder = ReminderFactory.create()
    assert queries(reminder, long) == fresh
    assert queries(reminder, long) < fresh  # everybody is known


def test_a_long_list_is_stored_without_reading_the_others_for_every_row() -> None:
    """A trigger looks for what is known of each new address; it must not read the whole table for each of them."""
    people = 3_000
    RecipientFactory.create_batch(20)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE reminders_recipient")  # for so few rows any plan is good
        before = rows_read()
        assert targets.store_recipients(entries(people), UserFactory.create()) == people
    assert rows_read() - before < 20 * people


def test_known_people_are_added_in_linear_time_after_a_list_was_deleted() -> None:
    """Statistics call the table empty then, and a plan for an empty table compares every row with every other."""
    RecipientFactory.create_batch(300)
    Recipient.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE reminders_recipient")

    def seconds(people: int) -> float:
        targets.store_recipients(entries(people), UserFactory.create())
        other = UserFactory.create()
        Recipient.objects.update(follow_up_attempts=1)
        started = monotonic()
        targets.store_recipients(entries(people), other)
        taken = monotonic() - started
        assert set(Recipient.objects.values_list("follow_up_attempts", flat=True)) == {1}
        return taken

    short = seconds(500)
    Recipient.objects.all().delete()
    assert seconds(4_000) < 25 * short, "eight times as many; sixty-four times as long with the plan for an empty table"


def test_a_list_becomes_targets_in_its_order() -> None:
    reminder = ReminderFactory.create(team=TeamFactory.create(), targets=1)
    other = ReminderFactory.create(owner=reminder.owner, account=reminder.account)
    known = RecipientFactory.create(owner=reminder.owner, kind="person", address="+491700000001", name="Known")
    listed = entries(3, flat="{} B", tags="choir;flat {}")
    assert targets.add_listed(reminder, reminder.owner, listed) == 3
    added = [target.recipient for target in reminder.targets.select_related("recipient")][1:]
    assert [one.address for one in added] == [entry.address for entry in listed]
    assert [target.position for target in reminder.targets.all()] == [0, 1, 2, 3]
    assert [one.name for one in added] == ["P0", "Known", "P2"]
    assert [one.fields for one in added] == [{"flat": f"{n} B"} for n in range(3)]
    assert [one.tags for one in added] == [["choir", "flat 0"], [], ["choir", "flat 2"]]
    assert added[1] == known
    new = Recipient.objects.get(address="+491700000000")
    assert (new.owner, new.team, new.kind, new.status) == (reminder.owner, reminder.team, "person", "active")
    # The same list again, and once more for another reminder.
    assert targets.add_listed(reminder, reminder.owner, listed) == 0
    assert targets.add_listed(other, reminder.owner, [*listed, *listed]) == 3
    assert Recipient.objects.filter(owner=reminder.owner).count() == 4


def test_a_colleagues_recipient_is_used_before_a_new_one_is_made() -> None:
    team = TeamFactory.create()
    owner, colleague, stranger = (UserFactory.create() for _ in range(3))
    for person in (owner, colleague):
        person.groups.add(team)
    shared = RecipientFactory.create(owner=colleague, team=team, kind="person", address="+491700000000")
    RecipientFactory.create(owner=stranger, kind="person", address="+491700000001")
    reminder = ReminderFactory.create(account__owner=owner, team=team)
    assert targets.add_listed(reminder, owner, entries(2)) == 2
    first, second = (target.recipient for target in reminder.targets.select_related("recipient__owner"))
    assert first == shared
    assert second.owner == owner


def test_a_message_goes_to_the_persons_own_recipient_before_an_older_shared_one() -> None:
    team, owner = TeamFactory.create(), UserFactory.create()
    owner.groups.add(team)
    (entry,) = entries(1)
    shared = RecipientFactory.create(team=team, kind="person", address=entry.address)
    assert targets.find_or_add(entry, owner, None, timezone.now()) == shared
    own = RecipientFactory.create(owner=owner, kind="person", address=entry.address)
    assert targets.find_or_add(entry, owner, None, timezone.now()) == own
    assert targets.find_or_add(entry, owner, team.pk, timezone.now()) == shared


@pytest.mark.parametrize(
    ("known", "given", "becomes"),
    [
        pytest.param({"status": "opted_out"}, "active", ("opted_out", False), id="opted-out"),
        pytest.param({"status": "opted_out"}, "converted", ("converted", False), id="said-otherwise"),
        pytest.param({"status": "not_interested", "limited": True}, "active", ("not_interested", True), id="limited"),
        pytest.param({"status": "not_interested"}, "active", ("active", False), id="an-operators-word"),
    ],
)
def test_new_recipients_get_the_follow_up_state_of_their_address(
    known: dict[str, object], given: str, becomes: tuple[str, bool]
) -> None:
    """Also of several at once, and whoever's list they are in: the first recipient with the address counts."""
    now = UserFactory.create().date_joined
    facts = {"follow_up_attempts": 2, "attempts_reset_at": now, "cooldown_until": now, "replied_at": now}
    first = RecipientFactory.create(kind="person", address="+491700000000", **known, **facts)
    Recipient.objects.bulk_create(
        Recipient(owner=UserFactory.create(), kind="person", address=address, status=given)
        for address in ("+491700000000", "+491700000000", "+491700000001")
    )
    again = Recipient.objects.filter(address=first.address).exclude(pk=first.pk)
    assert [(one.status, one.limited) for one in again] == [becomes] * 2
    assert list(again.values(*facts)) == [facts] * 2
    other = Recipient.objects.get(address="+491700000001")
    assert (other.status, other.limited, other.follow_up_attempts) == (given, False, 0)


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
def test_senders_take_turns(accounts: list[Account], kinds: list[str], whose: list[int | None]) -> None:
    assert turns(kinds, accounts) == whose


@given(st.lists(KINDS, max_size=60), st.lists(st.builds(account, CHANNELS, STATUSES), min_size=1, max_size=4))
def test_shares_agree_with_turns(kinds: list[str], accounts: list[Account]) -> None:
    whose = Counter(turns(kinds, accounts))
    assert shares(Counter(kinds), accounts) == [whose[n] for n in range(len(accounts))]
