"""The contents of a commit, and its values as PostgreSQL reads them."""

from __future__ import annotations

import enum
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from fanout.engine.commit import (
    Claim,
    Commit,
    LaneWrite,
    Locked,
    Result,
    Skip,
    array,
    calls_of,
    columns,
    entries_of,
    ignore_written,
    never_sent,
    plain,
)
from fanout.rules.new_chat_limits import NewChatHold
from tests.engine.ledgers import EPOCH, NOW, lane_write

case = pytest.param
LATER = NOW + timedelta(minutes=1)


def claims(*those: Claim) -> Any:
    """Make a future that no lane waits for."""
    return list(those), None


def claim(target: int = 1, run: int = 1, account: int = 1, to: str = "") -> Claim:
    return Claim(target, run, account, EPOCH, NOW, follow_up_to=to)


def result(target: int = 1, run: int = 1, account: int = 1, **fields: Any) -> Result:
    return Result(target, run, account, EPOCH, NOW, "sent", 1, 1, NOW, **fields)


def skip(target: int = 1, run: int = 1) -> Skip:
    return Skip(target, run, "not today", NOW)


def with_one(field: str) -> Commit:
    things: dict[str, Any] = {
        "claims": [claims(claim())],
        "results": [(result(), ignore_written)],
        "skips": [skip()],
        "starts": {1: NOW},
        "lanes": {1: lane_write(1)},
        "times": {1: [1.0] * 5},
    }
    return Commit(**{field: things[field]})


def names(batch: Commit) -> list[str]:
    return [name for name, _ in calls_of(batch)]


def values(batch: Commit, name: str) -> Any:
    return dict(calls_of(batch))[name]


# --- what is in it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "calls", "size"),
    [
        ("claims", ["lock_runs", "claim"], 1),
        ("results", ["lock_runs", "record"], 1),
        ("skips", ["lock_runs", "skip"], 0),
        ("starts", ["lock_runs", "start"], 0),
        ("lanes", ["pace"], 0),
        ("times", ["lock_runs", "times"], 0),
    ],
)
def test_each_thing_by_itself_is_worth_a_commit(field: str, calls: list[str], size: int) -> None:
    batch = with_one(field)
    assert (bool(batch), names(batch), batch.size) == (True, calls, size)


def test_nothing_is_worth_no_commit() -> None:
    assert (bool(Commit()), calls_of(Commit()), Commit().size, entries_of(Commit())) == (False, [], 0, [])


def test_the_runs_of_a_batch_are_locked_in_their_order() -> None:
    batch = Commit(
        claims=[claims(claim(run=9), claim(run=5))],
        results=[(result(run=7), ignore_written)],
        skips=[skip(run=6)],
        starts={8: NOW, 5: NOW},
        times={4: [0.0] * 5},
    )
    assert batch.runs() == [4, 5, 6, 7, 8, 9]
    assert calls_of(batch)[0] == ("lock_runs", ["{4,5,6,7,8,9}"])


def test_people_who_get_a_follow_up_are_locked_before_they_are_written_to() -> None:
    batch = Commit(
        claims=[claims(claim(to="b"), claim(to=""))],
        results=[(result(follow_up_to="a"), ignore_written), (result(), ignore_written)],
    )
    assert batch.people() == ["a", "b"]
    assert calls_of(batch)[1] == ("lock_people", ['{"a","b"}'])
    assert names(batch) == ["lock_runs", "lock_people", "record_follow_ups", "claim"]


def test_a_later_lane_state_keeps_claim_and_delivery_of_the_first() -> None:
    def after(first: dict[str, Any], second: dict[str, Any]) -> LaneWrite:
        commit = Commit()
        for fields in (first, second):
            commit.hand_in_lane(lane_write(1, sample=str(len(commit.lanes)), **fields))
        return commit.lanes[1]

    assert after({}, {}).sample == "1"
    assert (after({"claimed_at": NOW}, {}).claimed_at, after({}, {"claimed_at": NOW}).claimed_at) == (NOW, NOW)
    assert after({"claimed_at": NOW}, {"claimed_at": LATER}).claimed_at == LATER
    delivered: dict[str, Any] = {"clears_crashes": True}
    assert after(delivered, {}).clears_crashes
    assert after({}, delivered).clears_crashes
    assert not after({}, {}).clears_crashes


def test_a_batch_is_parted_by_what_belongs_to_locked_runs() -> None:
    both = [claims(claim(1, run=1)), claims(claim(2, run=2), claim(3, run=1)), claims(claim(4, run=2))]
    batch = Commit(
        claims=both,
        results=[(result(1, run=1), ignore_written), (result(2, run=2), ignore_written)],
        skips=[skip(1, run=1), skip(2, run=2)],
        starts={1: NOW, 2: LATER},
        lanes={5: lane_write(5)},
        times={1: [1.0] * 5, 2: [2.0] * 5},
    )
    free, theirs = batch.parted(Locked(runs={1}))
    assert [[one.target_id for one in entry] for entry, _ in free.claims] == [[2], [4]]
    assert theirs.claims == both[:1]
    assert [[one.target_id for one, _ in part.results] for part in (free, theirs)] == [[2], [1]]
    assert [[one.target_id for one in part.skips] for part in (free, theirs)] == [[2], [1]]
    assert [part.starts for part in (free, theirs)] == [{2: LATER}, {1: NOW}]
    assert [part.times for part in (free, theirs)] == [{2: [2.0] * 5}, {}]
    assert [list(part.lanes) for part in (free, theirs)] == [[5], []]


@pytest.mark.parametrize(
    ("locked", "claimed", "recorded", "lanes"),
    [
        pytest.param(Locked(lanes={1}), [3], [2, 3], [2], id="a lane: what changes it waits"),
        pytest.param(Locked(targets={1}), [2, 3], [2, 3], [1, 2], id="a target"),
        pytest.param(Locked(people={"me"}), [1, 3], [1, 3], [1, 2], id="a person"),
        pytest.param(Locked(accounts={1: 9.0}), [3], [3], [1, 2], id="a row of another kind"),
    ],
)
def test_a_batch_is_parted_by_what_needs_locked_rows(
    locked: Locked, claimed: list[int], recorded: list[int], lanes: list[int]
) -> None:
    lane_after = lane_write(1)
    results = [
        result(1, account=1, lane_after=lane_after),
        result(2, account=1, follow_up_to="me"),
        result(3, account=2),
    ]
    batch = Commit(
        claims=[claims(claim(1, account=1), claim(2, account=1, to="me")), claims(claim(3, account=2))],
        results=[(one, ignore_written) for one in results],
        lanes={1: lane_after, 2: lane_write(2)},
    )
    free, theirs = batch.parted(locked)
    assert [one.target_id for entry, _ in free.claims for one in entry] == claimed
    assert [one.target_id for one, _ in free.results] == recorded
    assert len(free.results) + len(theirs.results) == 3
    assert list(free.lanes) == lanes
    assert locked.unclaimable() == locked.targets | ({2} if locked.people else set())


def test_lane_states_that_could_not_be_written_go_before_later_ones() -> None:
    earlier = Commit(lanes={1: lane_write(1, claimed_at=NOW), 2: lane_write(2, claimed_at=NOW)}, starts={7: NOW})
    later = Commit(lanes={1: lane_write(1, probing=True)}, starts={7: LATER})
    earlier.go_before(later)
    assert (later.lanes[1].probing, later.lanes[1].claimed_at, later.lanes[2].claimed_at) == (True, NOW, NOW)
    assert later.starts == {7: LATER}


def test_entries_are_what_can_be_written_alone() -> None:
    lanes = {1: lane_write(1), 2: lane_write(2)}
    batch = Commit(
        claims=[claims(claim(account=1))],
        results=[(result(), ignore_written), (result(2), ignore_written)],
        skips=[skip(), skip(2)],
        starts={1: NOW, 2: NOW},
        lanes=lanes,
        times={1: [1.0] * 5},
    )
    entries = entries_of(batch)
    assert [names(entry)[-1] for entry in entries] == [
        *["skip"] * 2,
        *["record"] * 2,
        *["start"] * 2,
        "pace",
        "pace",
        "pace",
        "times",
    ]
    (claiming,) = [entry for entry in entries if entry.claims]
    assert claiming.lanes == {1: lanes[1]}  # a claim never goes without the pace it was computed for


def test_a_claim_that_was_never_sent_is_as_before_it() -> None:
    given_back = never_sent(claim(3, run=4, account=5))
    assert (given_back.target_id, given_back.run_id, given_back.account_id) == (3, 4, 5)
    assert (given_back.epoch, given_back.claimed_at, given_back.at) == (EPOCH, NOW, NOW)
    assert (given_back.status, given_back.parts_sent, given_back.attempts) == ("pending", -1, -1)
    assert (given_back.kind, given_back.activity) == ("network", "")


# --- as statements --------------------------------------------------------------------------------------------


def test_statements_come_in_the_order_in_which_they_must_happen() -> None:
    hold = NewChatHold(LATER, "no strangers", 1)
    telling = result(
        account=8, suppress="a@example.com", begins_chat=True, new_chat_hold=hold, hold_until=LATER, error="gone"
    )
    batch = Commit(
        claims=[claims(claim(to="a"))],
        results=[(telling, ignore_written)],
        skips=[skip()],
        starts={1: NOW},
        lanes={9: lane_write(9), 2: lane_write(2)},
        times={3: [1.0] * 5, 1: [2.0] * 5},
    )
    assert names(batch) == [
        "lock_runs",
        "lock_people",
        "skip",
        "record",
        "suppress",
        "begin_chats",
        "start",
        "claim",
        "times",
        "lock_lane_states",
        "hold_new_chats",
        "hold_lanes",
        "pace",
    ]
    assert values(batch, "lock_lane_states") == ["{2,8,9}"]
    assert values(batch, "times")[:2] == ["{1,3}", "{2.0,1.0}"]
    assert values(batch, "pace")[0] == "{2,9}"
    assert values(batch, "suppress")[:4] == ['{"a@example.com"}', '{"hard_bounce"}', '{"provider"}', '{"gone"}']
    assert values(batch, "begin_chats") == ["{1}"]
    assert values(batch, "hold_new_chats")[:4] == ["{8}", f"{{{LATER.isoformat()}}}", '{"no strangers"}', "{1}"]
    assert values(batch, "hold_lanes") == ["{8}", f"{{{EPOCH}}}", f"{{{LATER.isoformat()}}}"]
    assert values(batch, "start") == ["{1}", f"{{{NOW.isoformat()}}}"]
    assert values(batch, "skip") == ["{1}", '{"not today"}', f"{{{NOW.isoformat()}}}"]
    assert values(batch, "claim")[-1] == str(settings.BOT_FOLLOW_UP_MAX_ATTEMPTS)


def test_only_results_that_say_so_suppress_or_begin_a_chat() -> None:
    those = [result(1, suppress="a"), result(2, begins_chat=True), result(3)]
    batch = Commit(results=[(one, ignore_written) for one in those])
    assert values(batch, "suppress")[0] == '{"a"}'
    assert values(batch, "begin_chats") == ["{2}"]


def test_the_first_of_two_follow_ups_to_one_person_is_claimed() -> None:
    batch = Commit(
        claims=[
            claims(claim(1, to="a"), claim(2, to="b")),
            claims(claim(3, to="a"), claim(4), claim(5)),  # others are no follow-ups
        ]
    )
    assert values(batch, "claim")[0] == "{1,2,4,5}"


def test_the_last_word_on_new_chats_and_the_longest_break_stand() -> None:
    first, last = NewChatHold(LATER, "first", 1), NewChatHold(None, "last\x00", 0)
    those = [
        result(1, account=2, new_chat_hold=first, hold_until=LATER + timedelta(minutes=5)),
        result(2, account=2, new_chat_hold=last, hold_until=LATER),
        result(3, account=1, hold_until=LATER),
    ]
    those[2].epoch = EPOCH + 1
    batch = Commit(results=[(one, ignore_written) for one in those])
    assert values(batch, "hold_new_chats")[:4] == ["{2}", "{NULL}", '{"last"}', "{0}"]
    longest = (LATER + timedelta(minutes=5)).isoformat()
    assert values(batch, "hold_lanes") == ["{1,2}", f"{{{EPOCH + 1},{EPOCH}}}", f"{{{LATER.isoformat()},{longest}}}"]


def test_the_later_epoch_wins_among_breaks_of_one_length() -> None:
    those = [replace(result(n, hold_until=LATER), epoch=epoch) for n, epoch in enumerate((4, 5, 3))]
    assert values(Commit(results=[(one, ignore_written) for one in those]), "hold_lanes")[1] == "{5}"


def test_words_of_a_provider_are_cut_to_their_columns() -> None:
    row = values(Commit(results=[(result(provider_id="p" * 201, error="e" * 501), ignore_written)]), "record")
    assert row[9] == f'{{"{"p" * 200}"}}'
    assert row[11] == f'{{"{"e" * 500}"}}'


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        case("plain", 500, "plain", id="as-it-is"),
        case("abcd", 3, "abc", id="too-long"),
        case("äöüß", 3, "äöü", id="too-long-and-not-ascii"),
        case("a\x00bcd", 3, "abc", id="nul"),
        case("ä\x00bcd", 3, "äbc", id="nul-and-not-ascii"),
        case("half \ud83d", 500, "half ?", id="half-a-character"),
    ],
)
def test_words_fit_into_a_column(text: str, limit: int, expected: str) -> None:
    assert plain(text, limit) == expected


def test_texts_have_five_hundred_characters_by_default() -> None:
    assert plain("x" * 501) == "x" * 500


class Word(enum.StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    ("column", "written"),
    [
        case([1, 2], "{1,2}", id="numbers"),
        case([7, 7, 7], "{7,7,7}", id="one-number"),
        case([1.5, None], "{1.5,NULL}", id="nothing"),
        case([True, False], "{t,f}", id="truth"),
        case(["", "a"], '{"","a"}', id="no-words"),
        case(['say "x"', "back\\slash"], '{"say \\"x\\"","back\\\\slash"}', id="quotes"),
        case([datetime(2026, 1, 5, tzinfo=UTC)], "{2026-01-05T00:00:00+00:00}", id="a-moment"),
        case([Word.ONE, Word.ONE], '{"one","one"}', id="a-kind-of-word"),
        case([Word.ONE, "two"], '{"one","two"}', id="a-kind-of-word-among-others"),
    ],
)
def test_values_are_spelled_as_postgresql_reads_them(column: list[Any], written: str) -> None:
    assert columns((value,) for value in column) == [written]


def test_a_value_without_a_column_type_is_refused() -> None:
    with pytest.raises(TypeError, match="no column takes a value of type object"):
        columns([(object(),)])


def test_rows_become_columns() -> None:
    assert columns([(1, "a"), (2, "b")]) == ["{1,2}", '{"a","b"}']
    assert (array([3, 1]), array([])) == ("{3,1}", "{}")
