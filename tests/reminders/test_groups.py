"""Groups as a provider lists them become recipients, and stay in step."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from accounts.channels.base import Group
from accounts.models import Account
from reminders.groups import Synchronised, synchronise
from reminders.models import Membership, Recipient
from tests.factories import AccountFactory, RecipientFactory, TeamFactory

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, 10, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
CHOIR = Group("120363000000000001@g.us", "Choir", 40)
BOARD = Group("120363000000000002@g.us", "Board", 7)


@pytest.fixture
def account() -> Account:
    return AccountFactory.create(team=TeamFactory.create())


def recipient(group: Group) -> Recipient:
    return Recipient.objects.get(address=group.address)


def test_listed_groups_become_recipients_with_name_and_size(account: Account) -> None:
    assert synchronise(account, [CHOIR, BOARD], NOW) == Synchronised(added=2)

    assert (recipient(CHOIR).kind, recipient(CHOIR).name) == ("group", "Choir")
    assert (recipient(CHOIR).owner, recipient(CHOIR).team) == (account.owner, account.team)
    assert list(Membership.objects.order_by("size").values_list("name", "size", "gone_at")) == [
        ("Board", 7, None),
        ("Choir", 40, None),
    ]


def test_a_second_time_changes_nothing(account: Account) -> None:
    synchronise(account, [CHOIR, BOARD], NOW)

    assert synchronise(account, [BOARD, CHOIR], LATER) == Synchronised()
    assert Recipient.objects.count() == Membership.objects.count() == 2


def test_a_recipient_that_was_there_keeps_its_status_and_its_name(account: Account) -> None:
    own = RecipientFactory.create(owner=account.owner, address=CHOIR.address, name="My choir", status="opted_out")

    assert synchronise(account, [CHOIR], NOW) == Synchronised()

    own.refresh_from_db()
    assert (own.name, own.status, own.memberships.get().name) == ("My choir", "opted_out", "Choir")


def test_a_new_name_is_followed_until_an_operator_chose_one(account: Account) -> None:
    synchronise(account, [CHOIR, BOARD], NOW)
    Recipient.objects.filter(address=BOARD.address).update(name="The five")

    renamed = [Group(CHOIR.address, "Choir 2027"), Group(BOARD.address, "Board 2027")]

    assert synchronise(account, renamed, LATER) == Synchronised(renamed=1)
    assert recipient(CHOIR).name == "Choir 2027"
    assert recipient(BOARD).name == "The five"


def test_a_name_that_is_missing_today_is_kept(account: Account) -> None:
    synchronise(account, [CHOIR], NOW)

    assert synchronise(account, [Group(CHOIR.address)], LATER) == Synchronised()
    assert recipient(CHOIR).name == "Choir"
    assert synchronise(account, [Group(CHOIR.address, "Chorus")], LATER) == Synchronised(renamed=1)


def test_a_group_that_is_no_longer_listed_is_marked_once_and_unmarked_when_it_is_back(account: Account) -> None:
    synchronise(account, [CHOIR, BOARD], NOW)

    assert synchronise(account, [BOARD], LATER) == Synchronised(gone=1)
    assert synchronise(account, [BOARD], LATER + timedelta(days=1)) == Synchronised()
    assert recipient(CHOIR).memberships.get().gone_at == LATER
    assert recipient(CHOIR).status == "active"

    assert synchronise(account, [CHOIR, BOARD], LATER) == Synchronised()
    assert recipient(CHOIR).memberships.get().gone_at is None


def test_an_empty_list_marks_nothing(account: Account) -> None:
    synchronise(account, [CHOIR], NOW)

    assert synchronise(account, [], LATER) == Synchronised()
    assert not Membership.objects.exclude(gone_at=None).exists()


def test_accounts_of_one_owner_share_recipients_and_have_memberships_of_their_own(account: Account) -> None:
    other = AccountFactory.create(owner=account.owner)
    synchronise(account, [CHOIR, BOARD], NOW)

    assert synchronise(other, [CHOIR], NOW) == Synchronised()
    assert synchronise(other, [Group(CHOIR.address, "Chorus")], LATER) == Synchronised(renamed=1)
    assert synchronise(other, [BOARD], LATER) == Synchronised(gone=1)
    assert account.memberships.filter(gone_at=None).count() == 2


READ = """
SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables
 WHERE relname IN ('reminders_recipient', 'reminders_membership')
"""


def test_the_first_list_of_many_groups_reads_each_a_few_times() -> None:
    """Without statistics the planner compared every group with every other to tag them: a minute for a thousand."""
    account, many = AccountFactory.create(channel="whatsapp", config={}), 300
    groups = [Group(f"120363{n:012d}@g.us", f"Group {n}", 20) for n in range(many)]
    assert synchronise(account, groups, NOW).added == many
    with connection.cursor() as cursor:
        cursor.execute(READ)
        (read,) = cursor.fetchone()

    assert read < 400 * many  # 15,000 for each without the numbers; statistics of an empty table cost 300 at most
    assert Recipient.objects.filter(tags__len=1).count() == many


def test_channels_are_skipped_and_unusual_names_are_stored(account: Account) -> None:
    strange = [Group("1234@newsletter", "News"), Group(CHOIR.address, "Ch\x00oir\n" + "x" * 300)]

    assert synchronise(account, strange, NOW) == Synchronised(added=1)
    assert recipient(CHOIR).name == "Choir " + "x" * 194


def test_who_may_write_is_kept_with_the_group_and_follows_the_provider(account: Account) -> None:
    synchronise(account, [replace(CHOIR, announce_only=True, may_write=False), BOARD], NOW)
    kept = Membership.objects.order_by("name").values_list("announce_only", "may_write")
    assert list(kept) == [(False, True), (True, False)]

    synchronise(account, [replace(CHOIR, announce_only=True), BOARD], LATER)
    assert list(kept.all()) == [(False, True), (True, True)]
