"""The parts that a forecast is put together from: each by itself, at its edges."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from fanout.models import Run
from fanout.plans.binding import slowest
from fanout.plans.forecast import Forecast, Reader, of_lanes
from fanout.plans.lane_work import LaneWork
from fanout.plans.outlook import DayPlan, RunOutlook, merged_days, together
from fanout.plans.owed import AccountPlan, DailyCap, Queued, Work
from fanout.plans.stretches import outside_hours
from fanout.plans.time_left import _days_of_new_chats, seconds_to_send
from fanout.rules.new_chats import NewChatHold, NewChats
from fanout.rules.pace import PaceSettings
from reminders.window import BusinessHours, Window

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
DAY = Window("UTC", 6, 18)
ALWAYS = BusinessHours("UTC")
PACE = PaceSettings(60, 1)
case = pytest.param


def account(**fields: Any) -> AccountPlan:
    stated: dict[str, Any] = {"account_id": 1, "pace": PACE, "hours": ALWAYS}
    return AccountPlan(**stated | fields)


def lane(targets: int, *, noun: str = "group", window: Window = DAY, starts: datetime = NOW, **fields: Any) -> LaneWork:
    return LaneWork(account(**fields), (Queued(Work.of(targets), window, starts),), noun)


def ask(*lanes: LaneWork, window: Window = DAY, now: datetime = NOW, zone: str = "") -> Forecast:
    return of_lanes(lanes, window, now, Reader(now, zone))


# --- lanes and days put together --------------------------------------------------------------------------


def day(n: int, targets: int, messages: int, hour: int) -> DayPlan:
    return DayPlan(date(2026, 1, n), targets, messages, datetime(2026, 1, n, hour, tzinfo=UTC))


@pytest.mark.parametrize(
    ("days", "merged"),
    [
        case([], [], id="none"),
        case([day(5, 2, 4, 10)], [day(5, 2, 4, 10)], id="one"),
        case([day(5, 2, 4, 10), day(5, 1, 3, 9)], [day(5, 3, 7, 10)], id="the-same-ends-with-the-later"),
        case([day(5, 2, 4, 9), day(5, 1, 3, 10)], [day(5, 3, 7, 10)], id="whichever-comes-first"),
        case([day(6, 1, 1, 9), day(5, 2, 4, 10)], [day(5, 2, 4, 10), day(6, 1, 1, 9)], id="in-order"),
    ],
)
def test_days_of_several_lanes(days: list[DayPlan], merged: list[DayPlan]) -> None:
    assert merged_days(days) == merged


def outlook(first: float | None, last: float | None, *days: DayPlan) -> RunOutlook:
    return RunOutlook(list(days), sum(d.targets for d in days), sum(d.messages for d in days), first, last)


def test_several_runs_as_if_they_were_one() -> None:
    late, early = outlook(50.0, 90.0, day(5, 2, 2, 9)), outlook(10.0, 60.0, day(5, 1, 1, 8))
    one = together([late, outlook(None, None), early])
    assert (one.first, one.last, one.targets, one.days) == (10.0, 90.0, 3, [day(5, 3, 3, 9)])
    assert together([outlook(None, None), late]) is late
    assert together([]) == RunOutlook()
    assert together([outlook(None, None)]) == RunOutlook()


def test_work_ends_with_the_slowest_lane_and_starts_with_the_first() -> None:
    soon, late = lane(3, starts=NOW + MINUTE), lane(61, starts=NOW + HOUR)
    both = ask(late, soon)
    assert (both.starts_at, both.left, both.fits_count, both.fits) == (NOW + MINUTE, 64, 64, True)
    assert both.ends_at == NOW + HOUR + MINUTE + timedelta(seconds=0.2)


def test_a_lane_without_work_says_nothing() -> None:
    idle = LaneWork(account(pace=PaceSettings(1, 1)), (), "mailbox")
    assert (idle.targets, idle.parts, idle.counted, idle.places) == (0, 1, "", range(0))
    assert ask(idle, lane(3)).sentence == "3 groups at 60/min: done about 09:00; fits."
    assert ask(idle).sentence == "Nothing to send."
    assert (ask(idle).bound_by, ask(idle).ends_at, ask(idle).starts_at) == ("nothing", None, None)


def test_a_lane_s_work_has_its_places_behind_what_goes_before() -> None:
    before = tuple(Queued(Work.of(n), DAY, NOW, run_id=n) for n in (1, 2))
    mine, after = (Queued(Work.of(3, 2), DAY, NOW), Queued(Work.of(4), DAY, NOW)), (Queued(Work.of(5), DAY, NOW),)
    work = LaneWork(account(queued_before=before), mine, "group", after)
    assert (work.targets, work.parts, work.places) == (7, 2, range(2, 4))
    assert [queued.work.targets for queued in work.queue] == [1, 2, 3, 4, 5]


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


# --- what binds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pace", "parts", "concurrency", "latency", "jitter", "binds"),
    [
        case(PaceSettings(30, 1), 1, 1, 0.2, (0, 0), ("pace", 2.0), id="pace"),
        case(PaceSettings(0, 1), 1, 1, 0.5, (9, 9), ("provider", 0.5), id="one-part-has-no-pauses"),
        case(PaceSettings(0, 1), 3, 1, 0.5, (1, 2), ("provider", 1.5), id="pauses-between-parts"),
        case(PaceSettings(0, 1), 3, 3, 0.5, (1, 2), ("provider", 0.5), id="three-at-once"),
        case(PaceSettings(60, 1, 2, 4), 1, 1, 0.2, (0, 0), ("gap", 3.0), id="gap"),
        case(PaceSettings(60, 1, 5, 0), 1, 1, 0.2, (0, 0), ("pace", 1.0), id="a-gap-without-an-end-is-none"),
        case(PaceSettings(60, 1, 0, 0, 10, 10), 1, 1, 0.2, (0, 0), ("pace", 2.0), id="a-pause-as-long-as-the-pace"),
        case(PaceSettings(60, 1, 0, 0, 10, 11), 1, 1, 0.2, (0, 0), ("batch pauses", 2.1), id="a-longer-one"),
        case(PaceSettings(60, 1, 0, 0, 0, 11), 1, 1, 0.2, (0, 0), ("pace", 1.0), id="no-batches"),
    ],
)
def test_the_limit_that_holds_a_lane_back(
    pace: PaceSettings, parts: int, concurrency: int, latency: float, jitter: tuple[float, float], binds: Any
) -> None:
    cause, seconds = slowest(pace, parts, concurrency, latency, jitter)
    assert (cause, seconds) == (binds[0], pytest.approx(binds[1]))


@pytest.mark.parametrize(
    ("fields", "bound_by"),
    [
        case({"cap": 9}, "daily cap", id="one-too-few"),
        case({"cap": 10}, "pace", id="just-enough"),
        case({"cap": 10, "used": 1}, "daily cap", id="used-already"),
        case({"cap": lambda day: 5 if day == date(2026, 1, 5) else None}, "daily cap", id="today"),
        case({"cap": lambda day: None if day == date(2026, 1, 5) else 5}, "pace", id="only-from-tomorrow"),
        case({"cap": 0}, "daily cap", id="nothing-at-all"),
    ],
)
def test_when_the_cap_binds(fields: dict[str, Any], bound_by: str) -> None:
    assert ask(lane(10, **fields)).bound_by == bound_by


def test_the_cap_of_the_day_on_which_it_starts_binds_too() -> None:
    tomorrow = NOW + timedelta(days=1)
    known = ask(lane(10, starts=tomorrow, cap=9, used=9), now=NOW)
    assert (known.bound_by, [d.targets for d in known.days]) == ("daily cap", [9, 1])


def test_the_caps_of_other_actions_do_not() -> None:
    others = {"connection_request": DailyCap(1, 1)}
    assert ask(lane(10, cap=10, channel="unipile", others=others)).bound_by == "pace"


@pytest.mark.parametrize(
    ("hours", "targets", "bound_by"),
    [
        case((9, 10), 3_600, "pace", id="just-done"),
        case((9, 10), 3_700, "business hours", id="not-done"),
        case((9, 18), 3_700, "pace", id="long-hours"),
        case((20, 22), 1, "business hours", id="never"),
    ],
)
def test_when_the_hours_bind(hours: tuple[int, int], targets: int, bound_by: str) -> None:
    assert ask(lane(targets, hours=BusinessHours("UTC", *hours))).bound_by == bound_by


def strangers(targets: int, new: int, chats: NewChats, **fields: Any) -> LaneWork:
    return LaneWork(account(new_chats=chats, **fields), Queued(Work.of(targets), DAY, NOW).split(new))


@pytest.mark.parametrize(
    ("targets", "new", "chats", "bound_by"),
    [
        case(5, 5, NewChats(budget=5), "pace", id="just-enough"),
        case(6, 6, NewChats(budget=5), "budget of new chats", id="one-too-many"),
        case(5, 5, NewChats(budget=5, begun=1), "budget of new chats", id="used-already"),
        case(5, 5, NewChats(budget=0), "budget of new chats", id="none-at-all"),
        case(9, 0, NewChats(budget=5, begun=5), "pace", id="nobody-is-new"),
        case(5, 5, NewChats(NewChatHold(NOW + HOUR, "refused")), "hold of new chats", id="held"),
        case(5, 5, NewChats(NewChatHold(NOW, "refused")), "pace", id="not-any-more"),
        case(60, 1, NewChats(NewChatHold(NOW + MINUTE / 2, "refused")), "pace", id="the-others-take-longer"),
    ],
)
def test_when_new_chats_bind(targets: int, new: int, chats: NewChats, bound_by: str) -> None:
    assert ask(strangers(targets, new, chats)).bound_by == bound_by


# --- in words ---------------------------------------------------------------------------------------------

GOES_ON = "if it goes on at each opening."


@pytest.mark.parametrize(
    ("lanes", "fields", "sentence"),
    [
        case(
            [lane(1, noun="group"), lane(1, noun="mailbox")],
            {},
            "2 recipients through 2 accounts: done about 09:00; fits.",
            id="of-two-kinds",
        ),
        case(
            [lane(1, noun="mailbox"), lane(1, noun="mailbox")],
            {},
            "2 mailboxs through 2 accounts: done about 09:00; fits.",
            id="of-one-kind",
        ),
        case(
            [lane(1, hours=BusinessHours("UTC", 20, 22)), lane(1)],
            {},
            "2 groups through 2 accounts will never finish: one account's business hours.",
            id="one-of-two-is-never-done",
        ),
        case(
            [lane(9, cap=5, hours=BusinessHours("UTC", 8, 17))],
            {},
            f"9 groups at 5 a day: 5 fit before the window closes at 18:00; done about Tue 08:00 {GOES_ON}",
            id="the-cap-is-named-before-the-hours",
        ),
        case(
            [lane(9, cap=5, window=Window("UTC", 6, 24))],
            {"window": Window("UTC", 6, 24)},
            f"9 groups at 5 a day: 5 fit before the window closes at 24:00; done about Tue 06:00 {GOES_ON}",
            id="until-midnight",
        ),
        case(
            [strangers(5, 5, NewChats(budget=1))],
            {},
            "5 recipients: 1 fit today. 1 new chat a day: 4 more wait for the following days; "
            f"done about Fri 06:00 {GOES_ON}",
            id="one-new-chat-a-day",
        ),
        case(
            [lane(3)],
            {"now": NOW.replace(hour=18)},
            f"3 groups at 60/min: the window has closed for today; done about Tue 06:00 {GOES_ON}",
            id="just-closed",
        ),
    ],
)
def test_sentences(lanes: list[LaneWork], fields: dict[str, Any], sentence: str) -> None:
    assert str(ask(*lanes, **fields)) == sentence


@pytest.mark.parametrize(
    ("zone", "closes"),
    [
        case("", "18:00", id="nobodys"),
        case("UTC", "18:00", id="the-same"),
        case("Asia/Kuala_Lumpur", "02:00 (18:00 UTC)", id="their-own"),
    ],
)
def test_the_closing_time_by_the_readers_clock(zone: str, closes: str) -> None:
    assert f"before the window closes at {closes};" in ask(lane(9, cap=5), zone=zone).sentence


@pytest.mark.parametrize(
    ("fields", "wait"),
    [
        case({"new_chats": "", "fits": False}, "", id="something-else-binds"),
        case({"new_chats": "5 new chats a day", "fits": True}, "", id="fits"),
        case(
            {"new_chats": "5 new chats a day", "fits": False},
            "5 new chats a day: 1,900 more wait for the following days",
            id="waits",
        ),
    ],
)
def test_who_waits_for_another_day(fields: dict[str, Any], wait: str) -> None:
    known = Forecast(None, None, False, 100, "pace", [], "", left=2_000)
    assert replace(known, **fields).wait == wait


# --- how long the rest takes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "budget", "days"),
    [(0, 0, 1), (0, 5, 1), (7, None, 1), (5, 5, 1), (6, 5, 2), (10, 5, 2), (1, 0, math.inf)],
)
def test_days_of_new_chats(new: int, budget: int | None, days: float) -> None:
    assert _days_of_new_chats(new, budget) == days


@pytest.mark.parametrize(
    ("lanes", "new", "seconds"),
    [
        case([1], 0, 60.0, id="one-lane"),
        case([1, 2], 0, 20.0, id="a-faster-one-helps"),
        case([], 0, 0.0, id="nobody-sends"),
        case([9], 0, 0.0, id="of-accounts-that-are-gone"),
        case([1], 11, 2 * 86_400.0, id="new-chats-take-days"),
        case([1], 5, 60.0, id="new-chats-of-one-day"),
    ],
)
def test_seconds_to_send(lanes: list[int], new: int, seconds: float) -> None:
    run = Run(pk=7, lanes=lanes, pending=20, sending=10, parts=[{}] * 2)
    chats = NewChats(budget=5)
    plans = {n: account(account_id=n, pace=PaceSettings(60 * n, 1), new_chats=chats) for n in (1, 2)}
    assert seconds_to_send(run, plans, {(7, 1): new}) == pytest.approx(seconds)
