"""The plan: by the same rules as the lane, streamed, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest

from fanout.plans.plan import NO_SENDER, Copied, Planned, plan
from fanout.plans.projection import (
    AccountSnapshot,
    Queued,
    Work,
)
from fanout.rules.new_chat_limits import NewChatHold, NewChats
from fanout.rules.pace import PaceSettings, PaceState
from reminders.window import BusinessHours, Window

ALL_DAY = Window("UTC")
NEW_YORK = "America/New_York"
OFFICE = BusinessHours(NEW_YORK, 9, 18, frozenset({1, 2, 3, 4, 5}))
ONE_A_SECOND = PaceSettings(60, 1)
case = pytest.param


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday


def lane(account_id: int = 1, **fields: Any) -> AccountSnapshot:
    return replace(AccountSnapshot(account_id, ONE_A_SECOND, BusinessHours("UTC")), **fields)


def moments(targets: int, account: AccountSnapshot, window: Window = ALL_DAY, now: datetime = NOW) -> list[datetime]:
    return [target.at for target in plan([0] * targets, [account], window, now) if target.at is not None]


def queued(targets: int, parts: int = 1, window: Window = ALL_DAY, starts: datetime = NOW) -> Queued:
    return Queued(Work.of(targets, parts), window, starts)


# --- the pace --------------------------------------------------------------------------------------------


def test_a_stored_pace_is_kept_to() -> None:
    state = PaceState(next_send_at=NOW + timedelta(minutes=7))
    assert moments(1, lane(pace=state)) == [NOW + timedelta(minutes=7)]


def test_a_slow_down_is_taken_back_while_all_goes_well() -> None:
    planned = moments(101, lane(pace_settings=PaceSettings(30, 1), pace=PaceState(slow_factor=1.5)))
    # Fifty delays from 3 s down to 2.02 s, a hundredth of the factor less each time; then 2 s.
    assert planned[-1] - NOW == timedelta(seconds=sum(2 * (1.5 - 0.01 * n) for n in range(50)) + 50 * 2)


# --- calendar and caps ----------------------------------------------------------------------------------


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
    planned = moments(20_000, lane(pace_settings=PaceSettings(40, 3)), Window("UTC", 6, 18))
    assert len(planned) == 20_000
    assert all(6 <= moment.hour < 18 for moment in planned)


def test_parts_take_their_share_of_the_pace() -> None:
    three = [target.at for target in plan([0] * 10, [lane(concurrency=1)], ALL_DAY, NOW, parts=3)]
    assert three[-1] is not None
    assert three[-1] - NOW >= timedelta(seconds=27)


def test_earlier_runs_go_first() -> None:
    assert moments(1, lane(queued_before=(queued(60),))) == [NOW + timedelta(seconds=60)]


@pytest.mark.parametrize(
    ("ahead", "starts"),
    [
        case(queued(40, starts=NOW - timedelta(hours=1)), {5: 0, 6: 0, 7: 20, 8: 10}, id="days-of-an-earlier-run"),
        case(queued(30, starts=at("2026-01-06T00:00")), {5: 20, 6: 0, 7: 10}, id="goes-on-tomorrow-by-itself"),
        case(queued(90, window=Window("UTC", 6, 8)), {5: 20, 6: 10}, id="its-window-is-over-for-today"),
    ],
)
def test_the_cap_of_a_day_is_shared_with_earlier_runs(ahead: Queued, starts: dict[int, int]) -> None:
    """Twenty a day, for the earlier run and thirty targets behind it."""
    planned = Counter(moment.day for moment in moments(30, lane(cap=20, queued_before=(ahead,))))
    assert planned == {day: n for day, n in starts.items() if n}


def test_a_later_run_goes_out_while_an_earlier_one_may_not() -> None:
    """The earlier one's window opens at ten, and then it goes first."""
    morning = queued(600, window=Window("UTC", 10, 12))
    planned = moments(4_000, lane(queued_before=(morning,)))
    assert planned[0] == NOW
    assert not [moment for moment in planned if at("2026-01-05T10:00") <= moment < at("2026-01-05T10:10")]


# --- several accounts -----------------------------------------------------------------------------------


def test_round_robin_over_the_chosen_accounts() -> None:
    planned = list(plan([0, 1] * 3, [lane(7), lane(8, pace_settings=PaceSettings(6, 1))], ALL_DAY, NOW))
    assert [target.account_id for target in planned] == [7, 8, 7, 8, 7, 8]
    assert [moment.second for account, moment, _ in planned if account == 8 and moment] == [0, 10, 20]


def test_an_unreachable_target_has_no_account() -> None:
    assert list(plan([None, 0], [lane(7)], ALL_DAY, NOW)) == [NO_SENDER, Planned(7, NOW)]


def test_follow_ups_wait_longer_while_many_are_left() -> None:
    """Three of five: above a threshold of two. A later message of the same target counts too, ordinary ones do not."""
    account = replace(lane(pace_settings=PaceSettings(60, 1)), concurrency=1, latency=0.0, backpressure_above=2)
    moments = [target.at for target in plan([0] * 5, [account], ALL_DAY, NOW, follow_up=True)]
    waits = [(after - before).total_seconds() for before, after in pairwise(moments) if after and before]
    assert len(waits) == 4
    assert all(1.2 <= wait <= 1.4 for wait in waits[:3]), waits
    assert waits[3] == pytest.approx(1)
    ordinary = [target.at for target in plan([0] * 5, [account], ALL_DAY, NOW)]
    assert ordinary[-1] == NOW + timedelta(seconds=4)


def test_same_seed_same_plan() -> None:
    cold = [lane(n, pace_settings=PaceSettings(0, 1, 300, 1_200)) for n in (1, 2)]
    one, again, other = (list(plan([0, 1] * 20, cold, ALL_DAY, NOW, seed=seed)) for seed in (5, 5, 6))
    assert one == again
    assert one != other
    first = [moment for account, moment, _ in one if account == 1 and moment]
    gaps = [after - before for before, after in pairwise(first)]
    assert len(gaps) == 19
    assert all(timedelta(minutes=5) <= gap <= timedelta(minutes=20) for gap in gaps)


def test_a_plan_is_streamed() -> None:
    """Ten million targets: the first few cost no more than a few."""
    assert len(list(islice(plan([0, 1] * 5_000_000, [lane(), lane(2)], ALL_DAY, NOW), 10))) == 10


def test_a_plan_goes_on_behind_what_was_copied() -> None:
    whole = list(plan([0, 1] * 5, [lane(7), lane(8)], ALL_DAY, NOW, seed=3))
    rest = list(plan([0, 1] * 3, [lane(7), lane(8)], ALL_DAY, NOW, seed=3, copied={7: Copied(2), 8: Copied(2)}))
    assert rest == whole[4:]


HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
ALWAYS = BusinessHours("UTC")
DAY = Window("UTC", 6, 18)
PACE = PaceSettings(60, 1)


def account(**fields: Any) -> AccountSnapshot:
    return replace(AccountSnapshot(1, PACE, ALWAYS), **fields)


def one_queued(targets: int = 1, parts: int = 1, **fields: Any) -> Queued:
    return replace(Queued(Work.of(targets, parts), DAY, NOW), **fields)


def test_new_chats_and_the_others_have_moments_of_their_own() -> None:
    limited = account(new_chats=NewChats(NewChatHold(NOW + HOUR, "refused")), latency=0.0)
    found = list(plan([0, 0, None, 0], [limited], DAY, NOW, new={1}))
    assert [one.at for one in found] == [NOW, NOW + HOUR, None, NOW + SECOND]
    assert [one.account_id for one in found] == [1, 1, None, 1]
    rest = list(plan([0, 0], [limited], DAY, NOW, new={0}, copied={1: Copied(3, 1)}))
    assert [one.at for one in rest] == [NOW + HOUR + SECOND, NOW + 2 * SECOND]


def test_a_plan_starts_when_it_is_due_and_behind_the_queue() -> None:
    behind = account(queued_before=(one_queued(2),), latency=0.0)
    assert [one.at for one in plan([0], [behind], DAY, NOW)] == [NOW + 2 * SECOND]
    assert [one.at for one in plan([0], [account()], DAY, NOW, starts=NOW + HOUR)] == [NOW + HOUR]
