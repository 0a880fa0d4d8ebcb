"""The projection of a lane: its periods, limits, runs and slots, each by itself and at its edges."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from fanout.plans.plan import Copied
from fanout.plans.projection import (
    AccountSnapshot,
    DailyCap,
    Even,
    ProjectedLane,
    ProjectedLimit,
    ProjectedRun,
    Queued,
    SendingPeriod,
    Work,
    _starts,
    outside_hours,
    project_sends,
    projected_limits,
    sending_periods,
    whose_turn,
)
from fanout.rules.new_chat_limits import NewChatHold, NewChats
from fanout.rules.pace import PaceSettings, PaceState
from reminders.window import BusinessHours, Window

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
TODAY, TOMORROW = date(2026, 1, 5), date(2026, 1, 6)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
ALWAYS = BusinessHours("UTC")
DAY = Window("UTC", 6, 18)
PACE = PaceSettings(60, 1)
case = pytest.param


def account(**fields: Any) -> AccountSnapshot:
    return replace(AccountSnapshot(1, PACE, ALWAYS), **fields)


def queued(targets: int = 1, parts: int = 1, **fields: Any) -> Queued:
    return replace(Queued(Work.of(targets, parts), DAY, NOW), **fields)


def test_defaults_of_a_snapshot() -> None:
    plain = AccountSnapshot(1, PACE, ALWAYS)
    assert (plain.pace, plain.cap, plain.used, plain.others) == (PaceState(), None, 0, {})
    assert (plain.concurrency, plain.latency, plain.jitter, plain.backpressure_above) == (3, 0.2, (0.2, 0.5), 200)
    assert (plain.caps, plain.queued_before) == ({"": DailyCap(None, 0)}, ())
    assert (DailyCap(), Copied(2)) == ((None, 0), (2, 0))
    made = Queued(Work.of(1), DAY, NOW)
    assert (made.due, made.follow_up, made.run_id, made.new_chats, made.action) == (None, False, 0, False, "")


@pytest.mark.parametrize(
    ("work", "parts"),
    [
        case(Work.of(2, 3), [3, 3], id="whole"),
        case(Work(5, 3, 2), [2, 3], id="one-has-had-one"),
        case(Work(3, 3, 2), [1, 2], id="the-first-has-had-the-most"),
        case(Work(2, 3, 2), [1, 1], id="only-the-last-parts"),
        case(Work.of(0), [], id="nothing"),
    ],
)
def test_how_many_parts_each_target_still_gets(work: Work, parts: list[int]) -> None:
    assert list(work.queue()) == parts


@pytest.mark.parametrize(
    ("work", "new", "pieces"),
    [
        case(Work.of(5, 2), 0, [(10, 5, False)], id="none-new"),
        case(Work.of(5, 2), 2, [(4, 2, True), (6, 3, False)], id="some"),
        case(Work.of(5, 2), 5, [(10, 5, True)], id="all"),
        case(Work.of(5, 2), 9, [(10, 5, True)], id="more-than-there-are"),
        case(Work(6, 2, 5), 2, [(4, 2, True), (3, 3, False)], id="each-of-the-rest-gets-a-part-at-least"),
    ],
)
def test_new_chats_stand_apart(work: Work, new: int, pieces: list[tuple[int, int, bool]]) -> None:
    found = queued(work=work).split(new)
    assert [(one.work.messages, one.work.targets, one.new_chats) for one in found] == pieces


@pytest.mark.parametrize(
    ("due", "before"),
    [
        case(None, True, id="ahead-of-all"),
        case((NOW, 6), True, id="the-same-moment-and-a-lower-number"),
        case((NOW, 7), False, id="itself"),
        case((NOW - SECOND, 9), True, id="earlier"),
        case((NOW + SECOND, 1), False, id="later"),
    ],
)
def test_what_goes_before_a_run(due: tuple[datetime, int] | None, before: bool) -> None:
    one = queued(due=due)
    assert account(queued_before=(one,)).before(NOW, 7).queued_before == ((one,) if before else ())


@pytest.mark.parametrize(
    ("action", "counted"),
    [("", ""), ("connection_request", "connection_request"), ("message", ""), ("email", "")],
)
def test_which_cap_a_run_uses(action: str, counted: str) -> None:
    seat = account(channel="unipile", others={"connection_request": DailyCap(5)})
    assert seat.counted(queued(action=action)) == counted


@pytest.mark.parametrize(("cap", "limit"), [(None, None), (5, 5), (0, 0), (lambda day: day.day, 6)])
def test_the_cap_of_a_day(cap: Any, limit: int | None) -> None:
    assert DailyCap(cap).on(TOMORROW) == limit


# --- the calendar -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "by_day", "first"),
    [
        case(ALWAYS, False, (9, 18, "delivery window", None), id="the-window"),
        case(ALWAYS, True, (9, 18, "delivery window", TODAY), id="by-day"),
        case(BusinessHours("UTC", 8, 17), False, (9, 17, "business hours", None), id="the-hours"),
        case(BusinessHours("UTC", 10, 20), True, (10, 18, "delivery window", TODAY), id="hours-that-begin-later"),
        case(BusinessHours("Asia/Tokyo"), True, (9, 15, "day", TODAY), id="the-accounts-midnight"),
        case(BusinessHours("Asia/Tokyo"), False, (9, 18, "delivery window", None), id="not-by-day"),
    ],
)
def test_a_sending_period(hours: BusinessHours, by_day: bool, first: tuple[int, int, str, date | None]) -> None:
    period = next(sending_periods(DAY, hours, NOW, by_day))
    starts, ends, ended_by, account_day = first
    assert (period.starts, period.ends) == (
        NOW.replace(hour=starts).timestamp(),
        NOW.replace(hour=ends).timestamp(),
    )
    assert (period.day, period.ended_by, period.account_day) == (TODAY, ended_by, account_day)


# --- limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "planned", "left"),
    [
        case(DailyCap(), {}, (math.inf, math.inf), id="none"),
        case(DailyCap(5, 2), {}, (3, 5), id="used-today"),
        case(DailyCap(5, 2), {TODAY: 1, TOMORROW: 4}, (2, 1), id="planned-already"),
        case(DailyCap(5, 7), {}, (-2, 5), id="lowered"),
    ],
)
def test_what_a_limit_leaves(limit: DailyCap, planned: dict[date | None, int], left: tuple[float, float]) -> None:
    ahead = ProjectedLimit(limit, TODAY, planned)
    assert (ahead.left_on(TODAY), ahead.left_on(TOMORROW), ahead.left_on(None)) == (*left, math.inf)
    assert ahead.counts is (limit.cap is not None)
    ahead.use(TOMORROW)
    ahead.use(TODAY, 3)
    assert (ahead.left_on(TODAY), ahead.left_on(TOMORROW)) == (left[0] - 3, left[1] - 1)


def test_limits_by_action_and_of_new_chats() -> None:
    seat = account(cap=9, used=1, others={"inmail": DailyCap(4, 1)}, new_chats=NewChats(budget=6, begun=2))
    ahead = projected_limits(seat, NOW, {"inmail": {TODAY: 2}}, {TODAY: 1})
    assert [ahead.caps[action].left_on(TODAY) for action in ("", "inmail")] == [8, 1]
    assert ahead.budget.left_on(TODAY) == 3


# --- a run ahead of time ----------------------------------------------------------------------------------


def ahead(one: Queued, plan: AccountSnapshot) -> ProjectedRun:
    return ProjectedRun(0, one, plan, NOW, projected_limits(plan, NOW))


def test_a_run_without_limits_goes_on_until_it_is_done() -> None:
    run = ahead(queued(2, 2), account())
    assert (run.done, run.may_begin, run.spent) == (False, True, False)
    assert (run.chats_left, run.messages_left) == (math.inf, math.inf)
    assert [run.take(), run.take()] == [(2, True), (2, True)]
    assert (run.done, run.may_begin, run.spent) == (True, False, False)
    run.begun = [(1.0, 1)]
    assert not run.done
    assert run.put_back() == 1
    assert (run.up_next, run.begun, run.may_begin) == ((1, False), [], True)
    assert run.take() == (1, False)
    assert run.done


def test_what_was_begun_comes_before_what_was_not() -> None:
    run = ahead(queued(2, 2), account())
    run.take()
    run.begun = [(1.0, 1)]
    assert run.put_back() == 1
    assert [run.take(), run.take()] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("chats", "left", "may_begin"),
    [
        case(NewChats(budget=2), 2, True, id="two-left"),
        case(NewChats(budget=2, begun=2), 0, False, id="none-left"),
        case(NewChats(), math.inf, True, id="no-budget"),
    ],
)
def test_new_chats_of_a_period(chats: NewChats, left: float, may_begin: bool) -> None:
    run = ahead(queued(3, new_chats=True), account(new_chats=chats))
    assert (run.chats_left, run.may_begin, run.spent) == (left, may_begin, not may_begin)
    if may_begin and left < math.inf:
        run.take()
        assert run.chats_left == left - 1
    known = ahead(queued(3), account(new_chats=chats))
    assert (known.chats_left, known.may_begin) == (math.inf, True)


def test_a_budget_of_zero_never_sends_and_a_cap_spends_a_period() -> None:
    assert ahead(queued(new_chats=True), account(new_chats=NewChats(budget=0))).period is None
    assert ahead(queued(), account(new_chats=NewChats(budget=0))).period is not None
    run = ahead(queued(2), account(cap=1))
    assert (run.messages_left, run.spent) == (1, False)
    run.cap.use(TODAY)
    assert (run.messages_left, run.spent) == (0, True)
    run.skip_periods(NOW.timestamp())
    assert run.period is not None
    assert (run.period.day, run.messages_left) == (TOMORROW, 1)


@pytest.mark.parametrize(
    ("hour", "day"), [case(17, TODAY, id="open"), case(18, TOMORROW, id="over"), case(19, TOMORROW, id="past")]
)
def test_periods_that_are_over_are_skipped(hour: int, day: date) -> None:
    run = ahead(queued(), account())
    run.skip_periods(NOW.replace(hour=hour).timestamp())
    assert run.period is not None
    assert run.period.day == day


@pytest.mark.parametrize(
    ("starts", "turn", "until"),
    [
        case([0, 0], 0, 18, id="the-first"),
        case([1, 0], 1, 10, id="the-second-until-the-first-may"),
        case([2, 1], None, 10, id="none-yet"),
    ],
)
def test_whose_turn_it_is(starts: list[int], turn: int | None, until: int) -> None:
    plan = account()
    runs = [
        ProjectedRun(n, queued(starts=NOW + h * HOUR), plan, NOW, projected_limits(plan, NOW))
        for n, h in enumerate(starts)
    ]
    run, holds = whose_turn(runs, NOW.timestamp())
    assert (None if run is None else run.number) == turn
    assert holds == NOW.replace(hour=until).timestamp()


def test_without_a_period_no_run_has_its_turn() -> None:
    never = ahead(queued(), account(hours=BusinessHours("UTC", 20, 22)))
    assert whose_turn([never], NOW.timestamp()) == (None, math.inf)
    assert list(project_sends(account(cap=0), [queued()], NOW, random.Random(1))) == []


@pytest.mark.parametrize(
    ("hold", "new_chats", "starts"),
    [
        case(NOW + HOUR, True, NOW + HOUR, id="held"),
        case(NOW + HOUR, False, NOW, id="no-new-chat"),
        case(NOW - HOUR, True, NOW, id="over"),
        case(None, True, NOW, id="no-hold"),
    ],
)
def test_when_a_run_starts(hold: datetime | None, new_chats: bool, starts: datetime) -> None:
    plan = account(new_chats=NewChats(NewChatHold(hold, "refused")))
    assert _starts(queued(new_chats=new_chats), plan, NOW) == starts
    assert _starts(queued(starts=NOW + 2 * HOUR), plan, NOW) == NOW + 2 * HOUR


# --- the lane ---------------------------------------------------------------------------------------------


def test_a_lane_has_its_slots_and_its_draws_cover_their_range() -> None:
    lane = ProjectedLane(account(latency=2.0, concurrency=2), NOW, random.Random(1))
    assert (lane.free, lane.latency, lane.follow_ups) == ([NOW.timestamp()] * 2, (1.0, 3.0), 0)
    draws = [Even().random(), *(lane.latencies.random() for _ in range(2))]
    assert draws == pytest.approx([0.118034, 0.118034, 0.736068], abs=1e-6)


def test_a_slot_is_free_when_its_last_part_was_answered() -> None:
    plan = account(latency=0.0, jitter=(5.0, 5.0), concurrency=1)
    sends = [
        (s.at - NOW.timestamp(), s.first, s.last) for s in project_sends(plan, [queued(2, 2)], NOW, random.Random(1))
    ]
    assert sends == [(0, True, False), (5, False, True), (6, True, False), (11, False, True)]


@pytest.mark.parametrize(("above", "longer"), [(2, True), (3, False)])
def test_follow_ups_above_the_threshold_wait_longer(above: int, longer: bool) -> None:
    plan = account(backpressure_above=above, latency=0.0)
    sends = [s.at for s in project_sends(plan, [queued(3, follow_up=True)], NOW, random.Random(1))]
    assert (sends[1] - sends[0] > 1.0, sends[2] - sends[1]) == (longer, pytest.approx(1.0))
    ordinary = [s.at for s in project_sends(plan, [queued(3)], NOW, random.Random(1))]
    assert ordinary[1] - ordinary[0] == pytest.approx(1.0)


def test_the_projection_names_run_and_period() -> None:
    first, second = project_sends(account(latency=0.0), [queued(), queued(starts=NOW + HOUR)], NOW, random.Random(1))
    assert (first.run, first.at, second.run, second.at) == (0, NOW.timestamp(), 1, (NOW + HOUR).timestamp())
    closes = NOW.replace(hour=18).timestamp()
    assert first.period == SendingPeriod(NOW.timestamp(), closes, TODAY, "delivery window", None)


def test_a_target_between_two_parts_holds_no_slot_while_its_run_may_not_send() -> None:
    plan = account(latency=0.0, jitter=(5.0, 5.0), concurrency=1)
    begun = queued(1, 2, window=Window("UTC", 6, 10), starts=NOW + HOUR - 2 * SECOND)
    other = queued(1, starts=NOW + HOUR)
    sends = [
        (s.run, datetime.fromtimestamp(s.at, UTC)) for s in project_sends(plan, [begun, other], NOW, random.Random(1))
    ]
    assert sends[:2] == [(0, NOW + HOUR - 2 * SECOND), (1, NOW + HOUR)]
    assert [(run, at.date()) for run, at in sends[2:]] == [(0, TOMORROW)]


# --- the plan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "at", "outside"),
    [
        case((8, 17), NOW, True, id="end-before-the-window"),
        case((8, 18), NOW, False, id="end-with-it"),
        case((8, 19), NOW, False, id="end-after-it"),
        case((None, None), NOW, False, id="always"),
        case((18, 20), NOW, True, id="begin-when-it-closes"),
        case((17, 20), NOW, False, id="begin-before-it-closes"),
        case((6, 8), NOW, True, id="are-over"),
        case((4, 6), NOW.replace(hour=5), True, id="are-over-when-the-window-opens"),
    ],
)
def test_hours_that_end_before_the_window(hours: tuple[int | None, int | None], at: datetime, outside: bool) -> None:
    assert outside_hours(BusinessHours("UTC", *hours), DAY, at) is outside


ALL_DAY = Window("UTC")
NEW_YORK = "America/New_York"
OFFICE = BusinessHours(NEW_YORK, 9, 18, frozenset({1, 2, 3, 4, 5}))
ONE_A_SECOND = PaceSettings(60, 1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def lane(account_id: int = 1, **fields: Any) -> AccountSnapshot:
    return replace(AccountSnapshot(account_id, ONE_A_SECOND, BusinessHours("UTC")), **fields)


def queued_in(targets: int, parts: int = 1, window: Window = ALL_DAY, starts: datetime = NOW) -> Queued:
    return Queued(Work.of(targets, parts), window, starts)


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
    first = next(sending_periods(Window("UTC", 6, 18), OFFICE, at(now)))
    assert (first.starts, first.ends) == (at(starts).timestamp(), at(ends).timestamp())


def test_the_projection_says_where_targets_begin_and_end() -> None:
    account = replace(lane(), concurrency=1, latency=0.0, jitter=(0.0, 0.0))
    sends = list(project_sends(account, [queued_in(2, parts=2)], NOW, random.Random(1)))
    assert [(first, last) for _, _, _, first, last in sends] == [(True, False), (False, True)] * 2
