"""Whom an account has not written to yet."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.database import execute
from fanout.lanes import chats
from fanout.lanes.account_state import new_chats_now
from fanout.lanes.chats import only_new_chats
from fanout.models import Event, KnownChat, LaneState, Run, RunTarget
from fanout.rules.new_chat_limits import NewChatHold
from reminders.models import Recipient
from tests.factories import (
    AccountFactory,
    LaneStateFactory,
    RecipientFactory,
    ReminderFactory,
    ReminderTargetFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MIDNIGHT = NOW.replace(hour=0)
HOUR = timedelta(hours=1)
case = pytest.param


@pytest.fixture
def run() -> Run:
    """Owes a message to one person who is new to its account."""
    made: Run = RunFactory.create(status="running")
    add_target(made, "+60123456789")
    return made


def add_target(run: Run, address: str, **fields: Any) -> RunTarget:
    """A person whom another account knows."""
    person = RecipientFactory.create(owner=run.owner, kind="person", address=address)
    Recipient.objects.filter(pk=person.pk).update(kind=fields.pop("kind", "person"))
    KnownChat.objects.create(account=AccountFactory.create(), address=address, begun_at=NOW)
    target: RunTarget = RunTargetFactory.create(run=run, recipient=person, address=address, **fields)
    return target


def known(run: Run, address: str) -> None:
    KnownChat.objects.create(account=run.account, address=address, begun_at=NOW)


def test_nothing_but_new_chats(run: Run) -> None:
    assert only_new_chats(run.pk, run.account_id)
    add_target(run, "+60123456780")
    known(run, "+60123456780")
    assert not only_new_chats(run.pk, run.account_id)


def test_settled_targets_and_those_of_other_accounts_do_not_count(run: Run) -> None:
    other = RunFactory.create(reminder__account=run.account, status="running")
    add_target(other, "+60123456781")
    add_target(run, "+60123456782", status="sent")
    add_target(run, "+60123456783", account=AccountFactory.create())
    for address in ("+60123456781", "+60123456782", "+60123456783"):
        known(run, address)
    assert only_new_chats(run.pk, run.account_id)
    assert not only_new_chats(other.pk, run.account_id)


def test_a_group_is_never_a_new_chat(run: Run) -> None:
    RunTargetFactory.create(run=run)
    assert not only_new_chats(run.pk, run.account_id)


# --- how many ---------------------------------------------------------------------------------------------


def test_new_chats_among_the_pending_targets_of_a_run(run: Run) -> None:
    """Not groups, known chats, settled targets, or targets of other accounts or runs."""
    add_target(run, "+60123456780")
    add_target(run, "+60123456781")
    known(run, "+60123456781")
    add_target(run, "+60123456782", status="sent")
    add_target(run, "+60123456783", account=AccountFactory.create())
    add_target(run, "+60123456784", kind="group")
    add_target(run, "60123456785")
    another = RunFactory.create(reminder__account=run.account, status="running")
    add_target(another, "+60123456786")
    pairs = [(run.pk, run.account_id), (another.pk, run.account_id)]
    assert chats.pending_new_chats(pairs) == {pairs[0]: 2, pairs[1]: 1}


def test_only_the_first_pending_targets_are_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    add_target(run, "+60123456780")
    known(run, "+60123456780")
    pair = (run.pk, run.account_id)
    monkeypatch.setattr(chats, "MOST_LOOKED_AT", 1)
    assert chats.pending_new_chats([pair]) == {pair: 1}
    RunTarget.objects.filter(address="+60123456789").update(position=10**6)
    assert chats.pending_new_chats([pair]) == {pair: 0}


def test_without_pairs_no_query_is_made(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert chats.pending_new_chats([]) == {}
        assert chats.new_in_reminders([]) == {}
        assert chats.new_recipients([]) == set()


def test_new_chats_among_the_persons_of_a_reminder() -> None:
    reminder, another = ReminderFactory.create(targets=1), ReminderFactory.create(targets=1)
    account = reminder.account
    people = [listed(reminder, f"+6012345678{n}") for n in range(3)]
    listed(another, "+60123456789")
    KnownChat.objects.create(account=account, address=people[0].address)
    KnownChat.objects.create(account=another.account, address=people[1].address)
    pairs = [(reminder.pk, account.pk), (another.pk, account.pk), (reminder.pk, AccountFactory.create().pk)]
    assert chats.new_in_reminders(pairs) == {pairs[0]: 2, pairs[1]: 1, pairs[2]: 3}


def listed(reminder: Any, address: str) -> Recipient:
    person: Recipient = RecipientFactory.create(owner=reminder.owner, kind="person", address=address)
    ReminderTargetFactory.create(reminder=reminder, recipient=person, position=person.pk)
    return person


def person(n: int) -> Recipient:
    made: Recipient = RecipientFactory.create(kind="person", address=f"+6012345678{n}")
    return made


def test_which_recipients_are_new_to_the_account_beside_them() -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    *strangers, friend = (person(n) for n in range(3))
    group = RecipientFactory.create()
    KnownChat.objects.create(account=one, address=friend.address)
    KnownChat.objects.create(account=two, address=strangers[0].address)
    asked = [(recipient.pk, one.pk) for recipient in (*strangers, friend, group)]
    assert chats.new_recipients(asked) == {stranger.pk for stranger in strangers}
    assert chats.new_recipients([(friend.pk, two.pk)]) == {friend.pk}


def test_new_among_and_the_addresses_that_are_known() -> None:
    account = AccountFactory.create()
    people = [person(n) for n in range(3)]
    KnownChat.objects.create(account=account, address=people[0].address)
    KnownChat.objects.create(account=AccountFactory.create(), address=people[1].address)
    everybody = Recipient.objects.filter(pk__in=[one.pk for one in people])
    assert chats.new_among(everybody, account.pk) == 2
    addresses = [one.address for one in people]
    assert chats.addresses_with_chat(account.pk, addresses) == {people[0].address}


@pytest.mark.parametrize(
    ("new", "targets", "all_of_them"),
    [
        case(0, 0, 0, id="nobody"),
        case(3, 10, 3, id="few"),
        case(20_000, 20_000, 20_000, id="as-many-as-are-looked-at"),
        case(5_000, 60_000, 15_000, id="a-quarter-of-them"),
        case(1, 30_001, 1, id="rounded-down"),
    ],
)
def test_a_count_of_the_first_is_scaled_to_all(new: int, targets: int, all_of_them: int) -> None:
    assert chats.scaled_to_all(new, targets) == all_of_them


@pytest.mark.parametrize(("knob", "budget"), [case(math.inf, None, id="no-limit"), (0.0, 0), (7.0, 7)])
def test_the_budget(knob: float, budget: int | None) -> None:
    assert chats.budget_of({"new_chats_per_day": knob}) == budget


# --- begun today ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun_at", "counted"),
    [
        case(MIDNIGHT - timedelta(microseconds=1), 0, id="yesterday"),
        case(MIDNIGHT, 1, id="at-midnight"),
        case(NOW, 1, id="today"),
        case(MIDNIGHT + timedelta(days=1), 0, id="tomorrow"),
        case(None, 0, id="they-wrote-first"),
    ],
)
def test_which_chats_were_begun_today(begun_at: datetime | None, counted: int) -> None:
    account = AccountFactory.create(timezone="UTC", new_chats_per_day=5)
    KnownChat.objects.create(account=account, address="+60123456789", begun_at=begun_at)
    KnownChat.objects.create(account=AccountFactory.create(), address="+60123456780", begun_at=NOW)
    found = new_chats_now(account, NOW)
    assert (found.budget, found.begun, found.day_ends_at) == (5, counted, MIDNIGHT + timedelta(days=1))


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        case({"status": "sending"}, 1, id="in-flight"),
        case({"status": "unconfirmed"}, 1, id="unconfirmed"),
        case({"status": "pending"}, 0, id="not-yet"),
        case({"status": "failed"}, 0, id="failed"),
        case({"claimed_at": MIDNIGHT}, 1, id="since-midnight"),
        case({"claimed_at": MIDNIGHT - timedelta(seconds=1)}, 0, id="yesterday"),
        case({"claimed_at": MIDNIGHT + timedelta(days=1)}, 0, id="tomorrow"),
        case({"kind": "group"}, 0, id="a-group"),
    ],
)
def test_targets_under_way_count_as_begun(fields: dict[str, Any], counted: int) -> None:
    account = AccountFactory.create(timezone="UTC", new_chats_per_day=5)
    run = RunFactory.create(reminder__account=account, status="running")
    add_target(run, "+60123456789", **{"status": "sending", "claimed_at": NOW} | fields)
    add_target(run, "+60123456780", status="sending", claimed_at=NOW, account=AccountFactory.create())
    assert new_chats_now(account, NOW).begun == counted
    known(run, "+60123456789")
    KnownChat.objects.update(begun_at=None)
    assert new_chats_now(account, NOW).begun == 0, "no new chat any more"


def test_one_person_in_two_runs_is_one_chat() -> None:
    account = AccountFactory.create(timezone="UTC", new_chats_per_day=5)
    person = RecipientFactory.create(kind="person", address="+60123456789")
    for _ in range(2):
        run = RunFactory.create(reminder__account=account, status="running")
        RunTargetFactory.create(run=run, recipient=person, status="unconfirmed", claimed_at=NOW)
    assert new_chats_now(account, NOW).begun == 1


def test_without_a_budget_nothing_is_counted_and_the_hold_is_told(django_assert_num_queries: Any) -> None:
    account = AccountFactory.create(timezone="UTC")
    LaneStateFactory.create(account=account, new_chats_after=NOW + HOUR, new_chats_why="refused", new_chat_refusals=2)
    KnownChat.objects.create(account=account, address="+60123456789", begun_at=NOW)
    account = Account.objects.select_related("lane").get(pk=account.pk)
    with django_assert_num_queries(0):
        found = new_chats_now(account, NOW)
    assert (found.budget, found.begun) == (None, 0)
    assert found.hold == NewChatHold(NOW + HOUR, "refused", 2)


# --- chats begin ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "begins"),
    [
        case({}, True, id="a-person"),
        case({"kind": "group"}, False, id="a-group"),
        case({"claim_epoch": 0}, False, id="erased"),
    ],
)
def test_whose_chat_begins(run: Run, fields: dict[str, Any], begins: bool) -> None:
    beside = RunTarget.objects.get()
    RunTarget.objects.update(claim_epoch=1, claimed_at=NOW)
    target = add_target(run, "+60123456780", **{"claim_epoch": 1, "claimed_at": NOW} | fields)
    chats.begin_chats([target.pk])
    mine = KnownChat.objects.filter(account=run.account)
    assert list(mine.values_list("address", "begun_at")) == ([(target.address, NOW)] if begins else [])
    assert not mine.filter(address=beside.address).exists()


def test_a_chat_keeps_the_day_on_which_it_began(run: Run) -> None:
    first, second = (add_target(run, f"+6012345678{n}", claim_epoch=1, claimed_at=NOW) for n in range(2))
    KnownChat.objects.create(account=run.account, address=first.address, begun_at=NOW - HOUR)
    again = RunFactory.create(reminder__account=run.account, status="running")
    later = RunTargetFactory.create(run=again, recipient=second.recipient, claim_epoch=1, claimed_at=NOW + HOUR)
    chats.begin_chats([later.pk, first.pk, second.pk])
    mine = KnownChat.objects.filter(account=run.account)
    assert dict(mine.values_list("address", "begun_at")) == {first.address: NOW - HOUR, second.address: NOW}


@pytest.mark.parametrize(
    ("address", "already", "news"),
    [
        case("+60123456789", False, True, id="a-stranger"),
        case("+60123456789", True, False, id="known-already"),
        case("120363000000000001@g.us", False, False, id="a-group"),
    ],
)
def test_a_person_who_writes_is_no_new_chat_any_more(address: str, already: bool, news: bool) -> None:
    account = AccountFactory.create()
    if already:
        KnownChat.objects.create(account=account, address=address)
    chats.note_message_from(account.pk, address, NOW, NOW)
    assert KnownChat.objects.filter(account=account, address=address).exists() is (news or already)
    assert LaneState.objects.filter(account=account, wake_count=1, due_at=NOW).exists() is news


# --- holds ------------------------------------------------------------------------------------------------


def held(lane: LaneState) -> tuple[datetime | None, str, int, int]:
    lane.refresh_from_db()
    return lane.new_chats_after, lane.new_chats_why, lane.new_chat_refusals, lane.wake_count


@pytest.mark.parametrize(
    ("stored", "until", "taken", "told"),
    [
        case(None, NOW + HOUR, True, True, id="the-first"),
        case(NOW - HOUR, NOW + HOUR, True, True, id="after-one-that-is-over"),
        case(NOW + HOUR, NOW + HOUR, True, True, id="as-long"),
        case(NOW + 2 * HOUR, NOW + HOUR, False, False, id="shorter"),
        case(None, NOW, True, False, id="over-at-once"),
        case(None, NOW - HOUR, True, False, id="over-already"),
    ],
)
def test_a_hold_is_not_shortened(stored: datetime | None, until: datetime, taken: bool, told: bool) -> None:
    lane = LaneStateFactory.create(new_chats_after=stored, new_chats_why="before", new_chat_refusals=1)
    beside = LaneStateFactory.create()
    row = chats.hold_row(lane.account_id, NewChatHold(until, "after" * 100, 2), NOW)
    execute(chats.HOLD_NEW_CHATS, [[value] for value in row])
    assert held(lane)[:3] == ((until, ("after" * 100)[:300], 2) if taken else (stored, "before", 1))
    assert held(beside) == (None, "", 0, 0)
    events = Event.objects.filter(account=lane.account_id, verb="new chats held", at=NOW)
    assert events.count() == Event.objects.count() == told


def test_a_chat_that_is_refused_late_has_not_begun_and_others_wait(run: Run) -> None:
    target = add_target(run, "+60123456780", status="sent", claim_epoch=1, claimed_at=NOW - HOUR)
    lane, beside = LaneStateFactory.create(account=run.account), LaneStateFactory.create()
    for address, begun_at in ((target.address, target.claimed_at), ("+60123456781", target.claimed_at)):
        KnownChat.objects.create(account=run.account, address=address, begun_at=begun_at)
    chats.refused_late(target, HOUR, "too many", NOW)
    assert [chat.address for chat in KnownChat.objects.filter(account=run.account)] == ["+60123456781"]
    assert held(lane) == (NOW + HOUR, "too many", 1, 1)
    assert held(beside) == (None, "", 0, 0)
    chats.refused_late(target, HOUR, "again", NOW)
    assert held(lane) == (NOW + HOUR, "too many", 1, 1), "those that were under way together count as one"


def test_a_chat_that_began_with_another_message_stays(run: Run) -> None:
    target = add_target(run, "+60123456780", status="sent", claim_epoch=1, claimed_at=NOW)
    KnownChat.objects.create(account=run.account, address=target.address, begun_at=NOW - HOUR)
    chats.refused_late(target, HOUR, "too many", NOW)
    assert KnownChat.objects.filter(account=run.account, address=target.address).exists()


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
