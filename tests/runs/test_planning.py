"""The plan: by the same rules as the lane, streamed, and the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanout.rules.pace import PaceSettings, PaceState
from fanout.runs.planning import AccountPlan, freeze, plan, stretches, walk
from reminders.window import BusinessHours, Window
from tests.factories import AccountFactory, ReminderFactory, RunFactory

ALL_DAY = Window("UTC")
NEW_YORK = "America/New_York"
OFFICE = BusinessHours(NEW_YORK, 9, 18, frozenset({1, 2, 3, 4, 5}))
ONE_A_SECOND = PaceSettings(60, 1)
case = pytest.param


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOW = at("2026-01-05T09:00")  # a Monday


def lane(account_id: int = 1, **fields: Any) -> AccountPlan:
    return replace(AccountPlan(account_id, ONE_A_SECOND, BusinessHours("UTC")), **fields)


def moments(targets: int, account: AccountPlan, window: Window = ALL_DAY, now: datetime = NOW) -> list[datetime]:
    return [moment for _, moment in plan(targets, [account], window, now)]


# --- the pace --------------------------------------------------------------------------------------------


def test_a_stored_pace_is_kept_to() -> None:
    state = PaceState(next_send_at=NOW + timedelta(minutes=7))
    assert moments(1, lane(state=state)) == [NOW + timedelta(minutes=7)]


def test_a_slow_down_is_taken_back_while_all_goes_well() -> None:
    planned = moments(101, lane(pace=PaceSettings(30, 1), state=PaceState(slow_factor=1.5)))
    # Fifty delays from 3 s down to 2.02 s, a hundredth of the factor less each time; then 2 s.
    assert planned[-1] - NOW == timedelta(seconds=sum(2 * (1.5 - 0.01 * n) for n in range(50)) + 50 * 2)


# --- calendar and caps ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "starts", "ends"),
    [
        case("2026-01-05T09:00", "2026-01-05T14:00", "2026-01-05T18:00", id="hours-open-later"),
        case("2026-01-09T18:30", "2026-01-12T14:00", "2026-01-12T18:00", id="over-the-week-end"),
        case("2026-03-06T19:00", "2026-03-09T13:00", "2026-03-09T18:00", id="clocks-go-forward"),
        case("2026-10-30T19:00", "2026-11-02T14:00", "2026-11-02T18:00", id="clocks-go-back"),
        case("2026-12-31T18:00", "2027-01-01T14:00", "2027-01-01T18:00", id="year-end"),
    ],
)
def test_window_and_hours_overlap(now: str, starts: str, ends: str) -> None:
    first = next(stretches(Window("UTC", 6, 18), OFFICE, at(now)))
    assert (first.starts, first.ends) == (at(starts).timestamp(), at(ends).timestamp())


def test_hours_that_never_meet_the_window_give_no_plan() -> None:
    assert moments(3, lane(hours=BusinessHours("UTC", 20, 22)), Window("UTC", 6, 18)) == []


def test_a_cap_spreads_over_the_accounts_days() -> None:
    planned = moments(50, lane(cap=20, used=15, hours=OFFICE))
    by_day = Counter(moment.date().isoformat() for moment in planned)
    assert by_day == {"2026-01-05": 5, "2026-01-06": 20, "2026-01-07": 20, "2026-01-08": 5}


def test_a_cap_lowered_below_what_was_sent_leaves_today_alone() -> None:
    assert moments(1, lane(cap=10, used=35)) == [at("2026-01-06T00:00")]


def test_a_cap_of_zero_gives_no_plan() -> None:
    assert moments(3, lane(cap=0)) == []


def test_a_warm_up_is_a_cap_by_day() -> None:
    planned = moments(30, lane(cap=lambda day: day.day))
    assert Counter(moment.day for moment in planned) == {5: 5, 6: 6, 7: 7, 8: 8, 9: 4}


def test_two_windows_in_one_account_day_share_its_cap() -> None:
    """The account's day turns in the middle of the window: what was sent before counts for the old day."""
    tokyo = BusinessHours("Asia/Tokyo")  # its day begins at 15:00 UTC
    planned = moments(25, lane(cap=10, hours=tokyo), Window("UTC", 14, 18), at("2026-01-05T14:00"))
    assert [moment.strftime("%d %H") for moment in planned] == ["05 14"] * 10 + ["05 15"] * 10 + ["06 15"] * 5


def test_nothing_is_planned_at_or_after_the_end_of_the_window() -> None:
    planned = moments(20_000, lane(pace=PaceSettings(40, 3)), Window("UTC", 6, 18))
    assert all(6 <= moment.hour < 18 for moment in planned)


def test_parts_take_their_share_of_the_pace() -> None:
    three = [moment for _, moment in plan(10, [lane(concurrency=1)], ALL_DAY, NOW, parts=3)]
    assert three[-1] - NOW >= timedelta(seconds=27)


def test_earlier_runs_go_first() -> None:
    assert moments(1, lane(queued_before=60)) == [NOW + timedelta(seconds=60)]


# --- several accounts -----------------------------------------------------------------------------------


def test_round_robin_over_the_chosen_accounts() -> None:
    planned = list(plan(6, [lane(7), lane(8, pace=PaceSettings(6, 1))], ALL_DAY, NOW))
    assert [account for account, _ in planned] == [7, 8, 7, 8, 7, 8]
    assert [moment.second for account, moment in planned if account == 8] == [0, 10, 20]


def test_same_seed_same_plan() -> None:
    cold = [lane(n, pace=PaceSettings(0, 1, 300, 1_200)) for n in (1, 2)]
    one, again, other = (list(plan(40, cold, ALL_DAY, NOW, seed=seed)) for seed in (5, 5, 6))
    assert one == again
    assert one != other
    first = [moment for account, moment in one if account == 1]
    gaps = [after - before for before, after in pairwise(first)]
    assert all(timedelta(minutes=5) <= gap <= timedelta(minutes=20) for gap in gaps)


def test_a_plan_is_streamed() -> None:
    """A billion targets: the first few cost no more than a few."""
    assert len(list(islice(plan(10**9, [lane(), lane(2)], ALL_DAY, NOW), 10))) == 10


@given(st.integers(0, 40), st.integers(1, 4))
@settings(max_examples=30)
def test_every_target_gets_its_turn(targets: int, accounts: int) -> None:
    planned = list(plan(targets, [lane(n) for n in range(accounts)], ALL_DAY, NOW))
    assert [account for account, _ in planned] == [n % accounts for n in range(targets)]


def test_the_walk_says_where_targets_begin_and_end() -> None:
    account = replace(lane(), concurrency=1, latency=0.0, jitter=(0.0, 0.0))
    sends = list(walk(account, repeat(2, 2), ALL_DAY, NOW, random.Random(1)))
    assert [(first, last) for _, _, first, last in sends] == [(True, False), (False, True)] * 2


# --- stored ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("planned_for", [5, 3], ids=["whole", "ends-early"])
def test_freeze(planned_for: int) -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    reminder = ReminderFactory.create(account=one, targets=5)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    planned = list(plan(planned_for, [lane(two.pk)], ALL_DAY, NOW))
    freeze(run, planned)
    stored = list(run.targets.order_by("position").values_list("account_id", "planned_at"))
    assert stored == [*planned, *[(one.pk, None)] * (5 - planned_for)]
    run.refresh_from_db()
    assert (run.pending, run.total) == (5, 5)
    assert run.lanes == ([two.pk] if planned_for == 5 else sorted([one.pk, two.pk]))
