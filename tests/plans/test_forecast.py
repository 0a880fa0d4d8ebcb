"""The forecast: its sentence, and within ten per cent of what the engine then does on the virtual clock."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from fanout.database import conninfo
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.connection import BlockingLink
from fanout.engine.simulation import Scenario, World, simulate
from fanout.models import Run
from fanout.plans.forecast import (
    Forecast,
    Reader,
    _days_of_new_chats,
    forecast_lanes,
    forecast_offload,
    forecast_reminder,
    forecast_run,
    forecast_runs,
    seconds_to_send,
)
from fanout.plans.outlook import DayPlan, LaneWork, RunOutlook, slowest
from fanout.plans.projection import (
    AccountSnapshot,
    DailyCap,
    Queued,
    Work,
)
from fanout.plans.queue import USUAL_LATENCY, account_snapshots
from fanout.rules.new_chat_limits import NewChatHold, NewChats
from fanout.rules.pace import PaceSettings, PaceState
from reminders.window import BusinessHours, Window
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    DailyLimitFactory,
    LaneStateFactory,
    ReminderFactory,
    RunFactory,
    RunTargetFactory,
)

UTC_HOURS = BusinessHours("UTC")
DAY = Window("UTC", 6, 18)
case = pytest.param


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday


def ask(
    targets: int | Work,
    pace_settings: PaceSettings,
    *,
    window: Window = DAY,
    now: datetime = NOW,
    kind: str = "group",
    **account: Any,
) -> Forecast:
    work = Work.of(targets) if isinstance(targets, int) else targets
    plan = AccountSnapshot(0, pace_settings, account.pop("hours", UTC_HOURS), **account)
    return forecast_lanes([LaneWork(plan, (Queued(work, window, now),), frozenset({kind}))], window, now, Reader(now))


@pytest.mark.parametrize(
    ("targets", "pace", "given", "sentence"),
    [
        case(1_000, PaceSettings(40), {}, "1,000 groups at 40/min: done about 09:24; fits.", id="fits"),
        case(1, PaceSettings(40), {}, "1 group at 40/min: done about 09:00; fits.", id="one"),
        case(0, PaceSettings(40), {}, "Nothing to send.", id="nothing"),
        case(3, PaceSettings(0), {}, "3 groups without a rate limit: done about 09:00; fits.", id="no-limit"),
        case(
            2_000,
            PaceSettings(2),
            {},
            "2,000 groups at 2/min: 1,082 fit before the window closes at 18:00; "
            "done about Tue 13:37 if it goes on at each opening.",
            id="too-many-for-today",
        ),
        case(
            50,
            PaceSettings(40),
            {"cap": 20, "kind": "person"},
            "50 people at 20 a day: 20 fit before the window closes at 18:00; "
            "done about Wed 06:00 if it goes on at each opening.",
            id="capped",
        ),
        case(
            50,
            PaceSettings(0, 1, 300, 1_200),
            {},
            "50 groups with gaps of 300–1200 s: 44 fit before the window closes at 18:00; "
            "done about Tue 07:06 if it goes on at each opening.",
            id="cold-mail",
        ),
        case(
            5,
            PaceSettings(40),
            {"now": at("2026-01-05T20:00")},
            "5 groups at 40/min: the window has closed for today; done about Tue 06:00 if it goes on at each opening.",
            id="closed",
        ),
        case(
            50,
            PaceSettings(1),
            {"hours": BusinessHours("UTC", 8, 17), "now": at("2026-01-05T16:50")},
            "50 groups at 1/min: 12 fit today, the rest is outside the account's business hours; "
            "done about Tue 08:35 if it goes on at each opening.",
            id="hours-end-before-the-window",
        ),
        case(
            5,
            PaceSettings(40),
            {"hours": BusinessHours("UTC", 20, 22)},
            "5 groups at 40/min will never finish because of the account's business hours.",
            id="never",
        ),
        case(
            5,
            PaceSettings(40),
            {"cap": 0},
            "5 groups at 0 a day will never finish because of the account's daily cap.",
            id="cap-zero",
        ),
        case(
            60,
            PaceSettings(60, 1),
            {"window": Window("America/New_York", 4, 18)},
            "60 groups at 60/min: done about 04:00; fits.",
            id="on-the-reminders-clock",
        ),
    ],
)
def test_sentence(targets: int, pace: PaceSettings, given: dict[str, Any], sentence: str) -> None:
    assert str(ask(targets, pace, **given)) == sentence


@pytest.mark.parametrize(
    ("pace", "given", "bound_by"),
    [
        case(PaceSettings(40), {}, "pace", id="pace"),
        case(PaceSettings(40, 3, 5, 10), {}, "gap", id="gap"),
        case(PaceSettings(60, 1, batch_size=5, batch_pause=30), {}, "batch pauses", id="batches"),
        case(PaceSettings(0), {"latency": 3.0}, "provider", id="provider"),
        case(PaceSettings(40), {"cap": 50}, "daily cap", id="cap"),
        case(PaceSettings(40), {"cap": 500}, "pace", id="cap-is-enough"),
        case(PaceSettings(40), {"cap": 50, "used": 80}, "daily cap", id="cap-lowered-below-what-was-sent"),
        case(PaceSettings(1, 1), {"hours": BusinessHours("UTC", 9, 10)}, "business hours", id="hours"),
    ],
)
def test_what_binds(pace: PaceSettings, given: dict[str, Any], bound_by: str) -> None:
    assert ask(100, pace, **given).bound_by == bound_by


@pytest.mark.parametrize(("n", "delay", "size", "pause"), [(1_000, 5, 50, 60), (1_000, 3, 75, 30), (500, 3, 75, 30)])
def test_the_plain_case(n: int, delay: int, size: int, pause: int) -> None:
    """The documents' own sums: 6,140 s before, 3,390 s after."""
    known = ask(n, PaceSettings(60 / delay, 1, batch_size=size, batch_pause=pause), latency=0.2)
    assert known.ends_at is not None
    pauses = (n - 1) // size
    assert (known.ends_at - NOW).total_seconds() == pytest.approx((n - 1) * delay + pauses * pause, abs=1)


def test_parts_that_went_out_already_are_not_counted_again() -> None:
    whole = ask(Work(300, 3, 100), PaceSettings(60, 1))
    begun = ask(Work(290, 3, 100), PaceSettings(60, 1))
    assert whole.ends_at is not None
    assert begun.ends_at is not None
    assert (whole.ends_at - begun.ends_at).total_seconds() == pytest.approx(10, abs=1)
    assert begun.fits_count == 100


def test_an_earlier_queue_and_a_stored_pace_come_first() -> None:
    state = PaceState(next_send_at=NOW + timedelta(minutes=10))
    known = ask(60, PaceSettings(60, 1), pace=state, queued_before=(Queued(Work.of(120), DAY, NOW),))
    assert known.starts_at == NOW + timedelta(minutes=12)


def test_days_of_a_drip_over_the_week_end() -> None:
    office = BusinessHours("UTC", 9, 17, frozenset({1, 2, 3, 4, 5}))
    known = ask(50, PaceSettings(40), cap=20, hours=office, now=at("2026-01-09T09:00"))
    assert [(day.date.isoformat(), day.targets) for day in known.days] == [
        ("2026-01-09", 20),
        ("2026-01-12", 20),
        ("2026-01-13", 10),
    ]


@pytest.mark.parametrize(("day", "minutes"), [("2026-03-29", 660), ("2026-10-25", 780)], ids=["23-hours", "25-hours"])
def test_the_window_of_a_dst_day(day: str, minutes: int) -> None:
    """One a minute from midnight to noon in Berlin, asked on the evening before."""
    evening = at(day) - timedelta(hours=6)
    known = ask(5_000, PaceSettings(1, 1), window=Window("Europe/Berlin", 0, 12), now=evening)
    assert (known.days[0].date.isoformat(), known.days[0].targets) == (day, minutes)


def test_slowest_adds_up() -> None:
    assert slowest(PaceSettings(60, 1, batch_size=10, batch_pause=5), 1, 3, 0.2, (0, 0)) == ("pace", 1.5)


# --- against the engine ---------------------------------------------------------------------------------

GAPS = st.sampled_from([(0, 0), (0, 0), (0.5, 1.5), (2, 6), (10, 30)])
BATCHES = st.sampled_from([(0, 0), (0, 0), (10, 20), (25, 5), (75, 30)])
LATENCIES = st.sampled_from([(0, 0), (80, 250), (500, 1_500)])


@pytest.mark.slow
@pytest.mark.django_db
@given(
    rate=st.integers(5, 600),
    burst=st.integers(1, 10),
    groups=st.integers(20, 400),
    parts=st.integers(1, 3),
    concurrency=st.integers(1, 5),
    gaps=GAPS,
    batches=BATCHES,
    latency=LATENCIES,
    cap=st.none() | st.integers(10, 300),
    end=st.sampled_from([10, 12, 18]),
    seed=st.integers(0, 1_000),
)
# Every example plays a whole run: there are few, the same every time, and a failing one is not made smaller.
@settings(
    max_examples=16,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_within_ten_per_cent_of_the_simulation(
    rate: int,
    burst: int,
    groups: int,
    parts: int,
    concurrency: int,
    gaps: tuple[float, float],
    batches: tuple[int, float],
    latency: tuple[float, float],
    cap: int | None,
    end: int,
    seed: int,
) -> None:
    assume(groups * parts <= 400)
    knobs = {
        "max_send_per_minute": rate,
        "send_burst": burst,
        "group_concurrency": concurrency,
        "min_gap_seconds": gaps[0],
        "max_gap_seconds": gaps[1],
        "batch_size": batches[0],
        "batch_pause_seconds": batches[1],
    }
    scenario = Scenario(
        groups=groups,
        parts=("text",) * parts,
        window=(6, end),
        latency_ms=latency,
        daily_cap=cap,
        seed=seed,
        at=NOW,
        knobs=knobs,
    )
    report = simulate(conninfo(connection.settings_dict), scenario)
    mean = sum(latency) / 2_000
    known = ask(
        Work.of(groups, parts),
        PaceSettings(rate, burst, *gaps, *batches),
        window=Window("UTC", 6, end),
        cap=cap,
        concurrency=concurrency,
        latency=mean,
    )
    took = report.book.deliveries()[-1].t - NOW.timestamp()
    foreseen = (known.days[0].ends_at - NOW).total_seconds() + mean
    assert foreseen == pytest.approx(took, rel=0.1, abs=2)
    # Where the day ends first, as many targets may be between two parts as there are positions.
    assert abs(known.fits_count - report.run["sent"]) <= max(0.1 * report.run["sent"], concurrency)
    assert known.fits == (report.run["status"] == "success")


class Drip(World):
    """Resumed at each opening of the window, as auto-resume does."""

    async def play(self) -> None:
        start, end = self.scenario.window
        while True:
            await super().play()
            if (await self.run_row())["status"] != "paused":
                return
            now = self.clock.now()
            midnight = Window(self.scenario.timezone).closes_on(now)
            window = Window(self.scenario.timezone, start, end)
            opens = window.next_opening(midnight)
            await self.clock.sleep((opens - now).total_seconds())
            await self.link.query(
                "UPDATE fanout_run SET status = 'queued', pause_reason = '', finished_at = NULL, window_closes_at = %s",
                (window.closes_on(opens),),
            )
            await self.link.query("UPDATE fanout_lanestate SET due_at = %s, wake_count = wake_count + 1", (opens,))


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("groups", "cap", "pace", "begins"),
    [
        case(70, 20, {"max_send_per_minute": 40}, "2026-01-05T09:00", id="cap"),
        case(
            90,
            None,
            {"max_send_per_minute": 1, "send_burst": 1, "hours_start": 9, "hours_end": 10},
            "2026-01-05T09:30",
            id="hours",
        ),
        case(
            70,
            30,
            {"max_send_per_minute": 40, "hours_start": 9, "hours_end": 17, "send_days": [1, 5]},
            "2026-02-27T09:00",
            id="send-days-over-a-month-end",
        ),
    ],
)
def test_a_drip_day_by_day(groups: int, cap: int | None, pace: dict[str, Any], begins: str) -> None:
    scenario = Scenario(groups=groups, window=(6, 18), at=at(begins), daily_cap=cap, knobs=pace)

    async def play(clock: VirtualClock) -> World:
        world = Drip(BlockingLink.open(conninfo(connection.settings_dict)), clock, scenario)
        try:
            await world.build()
            await world.play()
        finally:
            await world.link.close()
        return world

    book = run_virtual(play, scenario.at).book
    days = frozenset(pace.get("send_days", range(1, 8)))
    hours = BusinessHours("UTC", pace.get("hours_start"), pace.get("hours_end"), days)
    settings = PaceSettings(pace["max_send_per_minute"], pace.get("send_burst", 3))
    known = ask(groups, settings, now=at(begins), cap=cap, hours=hours)
    by_day: dict[str, int] = {}
    for delivery in book.deliveries():
        day = datetime.fromtimestamp(delivery.t, UTC).date().isoformat()
        by_day[day] = by_day.get(day, 0) + 1
    assert {day.date.isoformat(): day.targets for day in known.days} == by_day


# --- read from the database -----------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_reminder_before_it_fires(django_assert_max_num_queries: Any) -> None:
    account = AccountFactory.create(max_send_per_minute=60, send_burst=1)
    reminder = ReminderFactory.create(
        account=account, targets=30, next_fire_at=NOW, delivery_window_start_hour=6, delivery_window_end_hour=18
    )
    with django_assert_max_num_queries(10):
        known = forecast_reminder(reminder, NOW - timedelta(days=1))
    assert known.sentence == "30 groups at 60/min: done about Mon 09:00; fits."
    assert known.starts_at == NOW


@pytest.mark.django_db
def test_a_reminder_that_fires_when_the_window_is_closed() -> None:
    reminder = ReminderFactory.create(targets=3, next_fire_at=at("2026-01-05T20:00"), delivery_window_end_hour=18)
    known = forecast_reminder(reminder, NOW)
    assert (known.fits, known.sentence) == (False, "The window is closed at 20:00: nothing would be sent.")


@pytest.mark.django_db
def test_a_run_behind_another_and_offloaded() -> None:
    slow, quick = (AccountFactory.create(max_send_per_minute=rate, send_burst=1) for rate in (1, 60))
    first = RunFactory.create(account=slow, scheduled_for=NOW - timedelta(hours=1), targets={"pending": 60})
    run = RunFactory.create(account=slow, scheduled_for=NOW, targets={"pending": 30, "sent": 5, "failed": 1})
    assert first.pending == 60
    known, moved = forecast_run(run, NOW), forecast_offload([run], quick, NOW)
    assert known.starts_at == NOW + timedelta(minutes=60)
    assert known.fits_count == 30
    assert moved.ends_at is not None
    assert moved.ends_at - NOW < timedelta(minutes=1)


@pytest.mark.django_db
def test_a_run_goes_on_from_the_lanes_stored_pace_and_cap() -> None:
    account = AccountFactory.create(max_send_per_minute=60, send_burst=1)
    DailyLimitFactory.create(account=account, limit=10)
    LaneStateFactory.create(account=account, next_send_at=NOW + timedelta(minutes=5))
    known = forecast_run(RunFactory.create(account=account, scheduled_for=NOW, targets={"pending": 12}), NOW)
    assert known.starts_at == NOW + timedelta(minutes=5)
    assert (known.fits_count, known.bound_by) == (10, "daily cap")


@pytest.mark.django_db
def test_a_widened_run_is_forecast_for_its_day() -> None:
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1)
    run = RunFactory.create(
        account=account,
        scheduled_for=NOW,
        window_start_hour=6,
        window_end_hour=9,
        window_closes_at=NOW + timedelta(hours=1),
        targets={"pending": 90},
    )
    known = forecast_run(run, NOW)
    assert known.fits_count == 60
    assert "60 fit before the window closes at 10:00; done about Tue 06:29 if" in known.sentence


@pytest.mark.django_db
@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_a_further_sender_is_measured_too(seconds: float) -> None:
    """By its own answers, in a run whose first sender is another account."""
    first, further = AccountFactory.create(), AccountFactory.create()
    run = RunFactory.create(account=first, lanes=[first.pk, further.pk])
    for account, latency in ((first, 9.0), (further, seconds)):
        target = RunTargetFactory.create(run=run, account=account, status="sent", latency_ms=int(latency * 1000))
        ActivityFactory.create(account=account, run_target=target, at=NOW)
    RunFactory.create(account=further, scheduled_for=NOW + timedelta(hours=1), targets={"sent": 1})
    plans = account_snapshots([first, further, AccountFactory.create()], NOW)
    assert [plan.latency for plan in plans.values()] == [9.0, seconds, USUAL_LATENCY]


def seconds_until(moment: datetime | None) -> float:
    assert moment is not None
    return (moment - NOW).total_seconds()


@pytest.mark.django_db
def test_lists_name_the_ends_of_all_runs_in_a_few_queries(
    django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One projection for each account, and beyond its length the same speed."""
    accounts = [AccountFactory.create(max_send_per_minute=60, send_burst=1) for _ in range(3)]
    runs = [
        RunFactory.create(
            reminder__account=account, scheduled_for=NOW + n * timedelta(seconds=1), targets={"pending": 20}
        )
        for n in range(2)
        for account in accounts
    ]
    with django_assert_max_num_queries(7):
        projected = forecast_runs(runs, NOW)
    monkeypatch.setattr("fanout.plans.outlook.MOST_PROJECTED", 10)
    extrapolated = forecast_runs(runs, NOW)
    for run in runs:
        queued = 20 if run in runs[:3] else 40
        assert seconds_until(projected[run.pk].ends_at) == pytest.approx(queued, abs=2)
        assert seconds_until(extrapolated[run.pk].ends_at) == pytest.approx(queued, rel=0.15)


@pytest.mark.django_db
def test_four_accounts_take_a_quarter_of_the_time() -> None:
    accounts = [AccountFactory.create(max_send_per_minute=10, send_burst=1) for _ in range(4)]
    reminder = ReminderFactory.create(account=accounts[0], targets=80)
    alone = forecast_reminder(reminder, NOW)
    reminder.set_further_senders(accounts)
    shared = forecast_reminder(reminder, NOW)
    assert alone.ends_at is not None
    assert shared.ends_at is not None
    assert (alone.ends_at - NOW).total_seconds() == pytest.approx(79 * 6, abs=2)
    assert (shared.ends_at - NOW).total_seconds() == pytest.approx(19 * 6, abs=2)
    assert shared.sentence == "80 groups through 4 accounts: done about 09:01; fits."


@pytest.mark.django_db
def test_an_offload_goes_before_runs_that_are_due_at_the_same_moment_and_were_made_later() -> None:
    helper = AccountFactory.create(max_send_per_minute=1, send_burst=1)
    run = RunFactory.create(scheduled_for=NOW, status="running", targets={"pending": 1})
    later = RunFactory.create(account=helper, scheduled_for=NOW, status="running", targets={"pending": 1})
    assert later.pk == run.pk + 1
    known = forecast_offload([run], helper, NOW)
    assert (known.starts_at, [pk for pk, _ in known.delays]) == (NOW, [later.pk])


HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ALWAYS = BusinessHours("UTC")
PACE = PaceSettings(60, 1)


def account(**fields: Any) -> AccountSnapshot:
    stated: dict[str, Any] = {"account_id": 1, "pace_settings": PACE, "hours": ALWAYS}
    return AccountSnapshot(**stated | fields)


def lane(targets: int, *, kind: str = "group", window: Window = DAY, starts: datetime = NOW, **fields: Any) -> LaneWork:
    return LaneWork(account(**fields), (Queued(Work.of(targets), window, starts),), frozenset({kind}))


def ask_lanes(*lanes: LaneWork, window: Window = DAY, now: datetime = NOW, zone: str = "") -> Forecast:
    return forecast_lanes(lanes, window, now, Reader(now, zone))


def day(n: int, targets: int, messages: int, hour: int) -> DayPlan:
    at = datetime(2026, 1, n, hour, tzinfo=UTC)
    return DayPlan(date(2026, 1, n), targets, messages, at, at)


def outlook(first: float | None, last: float | None, *days: DayPlan) -> RunOutlook:
    return RunOutlook(list(days), sum(d.targets for d in days), sum(d.messages for d in days), first, last)


def test_work_ends_with_the_slowest_lane_and_starts_with_the_first() -> None:
    soon, late = lane(3, starts=NOW + MINUTE), lane(61, starts=NOW + HOUR)
    both = ask_lanes(late, soon)
    assert (both.starts_at, both.left, both.fits_count, both.fits) == (NOW + MINUTE, 64, 64, True)
    assert both.ends_at == NOW + HOUR + MINUTE + timedelta(seconds=0.2)


def test_a_lane_without_work_says_nothing() -> None:
    idle = LaneWork(account(pace_settings=PaceSettings(1, 1)), (), frozenset({"mailbox"}))
    assert (idle.targets, idle.parts, idle.counted, idle.positions) == (0, 1, "", range(0))
    assert ask_lanes(idle, lane(3)).sentence == "3 groups at 60/min: done about 09:00; fits."
    assert ask_lanes(idle).sentence == "Nothing to send."
    assert (ask_lanes(idle).bound_by, ask_lanes(idle).ends_at, ask_lanes(idle).starts_at) == ("nothing", None, None)


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
    assert ask_lanes(lane(10, **fields)).bound_by == bound_by


def test_the_cap_of_the_day_on_which_it_starts_binds_too() -> None:
    tomorrow = NOW + timedelta(days=1)
    known = ask_lanes(lane(10, starts=tomorrow, cap=9, used=9), now=NOW)
    assert (known.bound_by, [d.targets for d in known.days]) == ("daily cap", [9, 1])


def test_the_caps_of_other_actions_do_not() -> None:
    others = {"connection_request": DailyCap(1, 1)}
    assert ask_lanes(lane(10, cap=10, channel="unipile", others=others)).bound_by == "pace"


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
    assert ask_lanes(lane(targets, hours=BusinessHours("UTC", *hours))).bound_by == bound_by


def strangers(targets: int, new: int, chats: NewChats, **fields: Any) -> LaneWork:
    return LaneWork(account(new_chats=chats, **fields), Queued(Work.of(targets), DAY, NOW).split(new))


@pytest.mark.parametrize(
    ("targets", "new", "chats", "bound_by"),
    [
        case(5, 5, NewChats(budget=5), "pace", id="just-enough"),
        case(6, 6, NewChats(budget=5), "budget of new chats", id="one-too-many"),
        case(5, 5, NewChats(budget=5, begun=1), "budget of new chats", id="used-already"),
        case(5, 5, NewChats(budget=0), "budget of new chats", id="none-at-all"),
        case(9, 0, NewChats(budget=5, begun=5), "pace", id="none-new"),
        case(5, 5, NewChats(NewChatHold(NOW + HOUR, "refused")), "hold of new chats", id="held"),
        case(5, 5, NewChats(NewChatHold(NOW, "refused")), "pace", id="not-any-more"),
        case(60, 1, NewChats(NewChatHold(NOW + MINUTE / 2, "refused")), "pace", id="the-others-take-longer"),
    ],
)
def test_when_new_chats_bind(targets: int, new: int, chats: NewChats, bound_by: str) -> None:
    assert ask_lanes(strangers(targets, new, chats)).bound_by == bound_by


GOES_ON = "if it goes on at each opening."


@pytest.mark.parametrize(
    ("lanes", "fields", "sentence"),
    [
        case(
            [lane(1, kind="group"), lane(1, kind="mailbox")],
            {},
            "2 recipients through 2 accounts: done about 09:00; fits.",
            id="of-two-kinds",
        ),
        case(
            [lane(1, kind="mailbox"), lane(1, kind="mailbox")],
            {},
            "2 mailboxes through 2 accounts: done about 09:00; fits.",
            id="of-one-kind",
        ),
        case(
            [lane(1, hours=BusinessHours("UTC", 20, 22)), lane(1)],
            {},
            "2 groups through 2 accounts will never finish because of one account's business hours.",
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
    assert str(ask_lanes(*lanes, **fields)) == sentence


@pytest.mark.parametrize(
    ("zone", "closes"),
    [
        case("", "18:00", id="the-runs-own"),
        case("UTC", "18:00", id="the-same"),
        case("Asia/Kuala_Lumpur", "02:00 (18:00 UTC)", id="their-own"),
    ],
)
def test_the_closing_time_by_the_readers_clock(zone: str, closes: str) -> None:
    assert f"before the window closes at {closes};" in ask_lanes(lane(9, cap=5), zone=zone).sentence


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
        case([], 0, 0.0, id="no-lanes"),
        case([9], 0, 0.0, id="of-accounts-that-are-gone"),
        case([1], 11, 2 * 86_400.0, id="new-chats-take-days"),
        case([1], 5, 60.0, id="new-chats-of-one-day"),
    ],
)
def test_seconds_to_send(lanes: list[int], new: int, seconds: float) -> None:
    run = Run(pk=7, lanes=lanes, pending=20, sending=10, parts=[{}] * 2)
    chats = NewChats(budget=5)
    plans = {n: account(account_id=n, pace_settings=PaceSettings(60 * n, 1), new_chats=chats) for n in (1, 2)}
    assert seconds_to_send(run, plans, {(7, 1): new}) == pytest.approx(seconds)
