"""May a new chat begin? The budget of a day, and the hold after a refusal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.rules.gates import Wait
from fanout.rules.new_chat_limits import (
    NO_HOLD,
    NO_LIMIT,
    NewChatHold,
    NewChats,
    later,
    may_begin,
    refused,
    wait_for_new_chats,
    went_through,
)
from fanout.rules.outcomes import LONGEST_HOLD

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
HELD = NewChatHold(NOW + HOUR, "no strangers", 1)
OVER = NewChatHold(NOW, "no strangers", 1)
case = pytest.param


@pytest.mark.parametrize(
    ("chats", "expected"),
    [
        case(NewChats(), None, id="no limit"),
        case(NewChats(budget=30, begun=29, day_ends_at=MIDNIGHT), None, id="one left"),
        case(
            NewChats(budget=30, begun=30, day_ends_at=MIDNIGHT), Wait(MIDNIGHT, "New chats today: 30 of 30"), id="used"
        ),
        case(NewChats(budget=0, day_ends_at=MIDNIGHT), Wait(MIDNIGHT, "New chats today: 0 of 0"), id="none wanted"),
        case(NewChats(budget=1, begun=2), None, id="of a day that nobody knows"),
        case(NewChats(HELD), Wait(NOW + HOUR, "No new chats for now: no strangers"), id="held"),
        case(NewChats(OVER), None, id="hold is over"),
    ],
)
def test_the_wait_of_a_new_chat(chats: NewChats, expected: Wait | None) -> None:
    assert wait_for_new_chats(chats, NOW) == expected


@pytest.mark.parametrize(
    ("hold", "under_way", "expected"),
    [
        case(NO_HOLD, 5, True, id="many at once"),
        case(OVER, 0, True, id="the first after a refusal"),
        case(OVER, 1, False, id="one at a time after a refusal"),
        case(HELD, 0, False, id="held"),
    ],
)
def test_after_a_refusal_new_chats_begin_one_at_a_time(hold: NewChatHold, under_way: int, expected: bool) -> None:
    assert may_begin(NewChats(hold), under_way, NOW) is expected


def test_each_refusal_in_a_row_doubles_the_hold_up_to_a_day() -> None:
    now, hold, hours = NOW, NO_HOLD, []
    for _ in range(7):
        hold = refused(hold, 3600, "no strangers", now)
        assert hold.until is not None
        hours.append((hold.until - now) / HOUR)
        now = hold.until
    assert hours == [1, 2, 4, 8, 16, 24, 24]
    assert refused(NewChatHold(refusals=30_000), 3600, "", NOW).until == NOW + timedelta(seconds=LONGEST_HOLD)


def test_refusals_that_were_under_way_together_count_once() -> None:
    assert refused(HELD, 3600, "another", NOW) == HELD


def test_a_chat_that_goes_through_forgets_the_refusals_but_not_a_hold() -> None:
    assert went_through(OVER, NOW) == NewChatHold(NOW, "no strangers", 0)
    assert went_through(HELD, NOW) == HELD


def test_the_hold_that_ends_later_stands() -> None:
    assert later(HELD, OVER) == later(OVER, HELD) == later(NO_HOLD, HELD) == later(HELD, NO_HOLD) == HELD


@pytest.mark.parametrize(
    ("chats", "matters"),
    [
        case(NO_LIMIT, False, id="no limit"),
        case(NewChats(OVER), False, id="a hold that is over"),
        case(NewChats(HELD), True, id="held"),
        case(NewChats(budget=0), True, id="a budget"),
        case(NewChats(HELD, budget=30), True, id="both"),
    ],
)
def test_new_chats_are_limited_by_budget_or_hold(chats: NewChats, matters: bool) -> None:
    assert chats.limited(NOW) is matters


def test_chats_that_begin_are_added_to_those_of_the_day() -> None:
    chats = NewChats(HELD, budget=30, day_ends_at=MIDNIGHT).begin(4).begin(3).begin(-1)
    assert chats == NewChats(HELD, budget=30, begun=6, day_ends_at=MIDNIGHT)


def test_the_hold_in_memory_stands_when_both_end_together() -> None:
    stored = NewChatHold(HELD.until, "another", 5)
    assert (later(HELD, stored), later(stored, HELD)) == (HELD, stored)
    assert later(NO_HOLD, NewChatHold(refusals=2)) == NewChatHold(refusals=2)
