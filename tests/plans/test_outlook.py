"""The outlook through a queue: blocks, days, lanes and the limit that binds."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fanout.plans.outlook import (
    Block,
    DayPlan,
    LaneWork,
    RunOutlook,
    _budget_used_up,
    _part_before,
    combined,
    merged_days,
    slowest,
)
from fanout.plans.projection import AccountSnapshot, Queued, Work
from fanout.rules.pace import PaceSettings
from reminders.window import BusinessHours, Window


@pytest.mark.parametrize(
    ("last", "at", "messages"),
    [
        pytest.param(110.0, 105.0, 5, id="half of it"),
        pytest.param(110.0, 110.0, 10, id="just done"),
        pytest.param(110.0, 130.0, 10, id="done long ago"),
        pytest.param(100.0, 100.0, 10, id="all at once"),
    ],
)
def test_a_part_of_a_block(last: float, at: float, messages: int) -> None:
    assert _part_before(Block(0, cast(Any, None), 100.0, last, 10, 10), at) == messages


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ONE_DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("starts", "begun", "ahead", "ends", "used_up"),
    [
        pytest.param(NOON, 5, {}, NOON + ONE_DAY, True, id="today"),
        pytest.param(NOON, 4, {}, NOON + ONE_DAY, False, id="today, with one left"),
        pytest.param(NOON, 4, {date(2026, 1, 5): 1}, NOON + ONE_DAY, True, id="today, by its own"),
        pytest.param(NOON, 5, {}, NOON, False, id="on the day on which it is done"),
        pytest.param(NOON + ONE_DAY, 5, {}, NOON + 3 * ONE_DAY, False, id="before it starts"),
        pytest.param(NOON + ONE_DAY, 0, {date(2026, 1, 6): 5}, NOON + 3 * ONE_DAY, True, id="on its first day"),
        pytest.param(NOON + ONE_DAY, 0, {date(2026, 1, 6): 5}, None, True, id="without an end"),
    ],
)
def test_a_budget_is_used_up_between_the_start_and_the_last_day(
    starts: datetime, begun: int, ahead: dict[date, int], ends: datetime | None, used_up: bool
) -> None:
    account = SimpleNamespace(hours=SimpleNamespace(timezone="UTC"), new_chats=SimpleNamespace(begun=begun))
    share: Any = SimpleNamespace(
        lane=SimpleNamespace(account=account),
        ahead=SimpleNamespace(new_chats=ahead),
        end=ends.timestamp() if ends else math.inf,
    )
    assert _budget_used_up(share, 5, starts, NOON) is used_up


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
DAY = Window("UTC", 6, 18)
ALWAYS = BusinessHours("UTC")
PACE = PaceSettings(60, 1)
case = pytest.param


def account(**fields: Any) -> AccountSnapshot:
    stated: dict[str, Any] = {"account_id": 1, "pace_settings": PACE, "hours": ALWAYS}
    return AccountSnapshot(**stated | fields)


def day(n: int, targets: int, messages: int, hour: int, begins: int | None = None) -> DayPlan:
    first, last = (datetime(2026, 1, n, at, tzinfo=UTC) for at in (hour if begins is None else begins, hour))
    return DayPlan(date(2026, 1, n), targets, messages, first, last)


@pytest.mark.parametrize(
    ("days", "merged"),
    [
        case([], [], id="none"),
        case([day(5, 2, 4, 10)], [day(5, 2, 4, 10)], id="one"),
        case([day(5, 2, 4, 10), day(5, 1, 3, 9)], [day(5, 3, 7, 10, 9)], id="the-same-ends-with-the-later"),
        case([day(5, 2, 4, 9), day(5, 1, 3, 10)], [day(5, 3, 7, 10, 9)], id="whichever-comes-first"),
        case([day(6, 1, 1, 9), day(5, 2, 4, 10)], [day(5, 2, 4, 10), day(6, 1, 1, 9)], id="in-order"),
    ],
)
def test_days_of_several_lanes(days: list[DayPlan], merged: list[DayPlan]) -> None:
    assert merged_days(days) == merged


def outlook(first: float | None, last: float | None, *days: DayPlan) -> RunOutlook:
    return RunOutlook(list(days), sum(d.targets for d in days), sum(d.messages for d in days), first, last)


def test_several_runs_as_if_they_were_one() -> None:
    late, early = outlook(50.0, 90.0, day(5, 2, 2, 9)), outlook(10.0, 60.0, day(5, 1, 1, 8))
    one = combined([late, outlook(None, None), early])
    assert (one.first, one.last, one.targets, one.days) == (10.0, 90.0, 3, [day(5, 3, 3, 9, 8)])
    assert combined([outlook(None, None), late]) is late
    assert combined([]) == RunOutlook()
    assert combined([outlook(None, None)]) == RunOutlook()


def test_a_lanes_work_comes_after_earlier_runs() -> None:
    before = tuple(Queued(Work.of(n), DAY, NOW, run_id=n) for n in (1, 2))
    mine, after = (Queued(Work.of(3, 2), DAY, NOW), Queued(Work.of(4), DAY, NOW)), (Queued(Work.of(5), DAY, NOW),)
    work = LaneWork(account(queued_before=before), mine, frozenset({"group"}), after)
    assert (work.targets, work.parts, work.positions) == (7, 2, range(2, 4))
    assert [queued.work.targets for queued in work.queue] == [1, 2, 3, 4, 5]


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
