"""Forecasts that know how many new chats an account may begin: by the day, by the run, and against the engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from fanout.admin.dashboard import needs_you
from fanout.admin.run_status import eta
from fanout.models import KnownChat, Run
from fanout.plans import outlook
from fanout.plans.forecast import (
    Forecast,
    Reader,
    forecast_lanes,
    forecast_offload,
    forecast_reminder,
    forecast_run,
    forecast_runs,
)
from fanout.plans.outlook import LaneWork
from fanout.plans.plan import Copied, plan
from fanout.plans.projection import AccountSnapshot, Queued, Work
from fanout.plans.queue import account_snapshot, read_senders
from fanout.plans.upcoming import due_reminders, upcoming_firings
from fanout.rules.new_chat_limits import NewChatHold, NewChats
from fanout.rules.pace import PaceSettings
from fanout.runs import controls
from fanout.runs.planning import plan_anew
from fanout.runs.progress import progress_of
from reminders.models import Reminder
from reminders.window import BusinessHours, Window
from tests.engine.stage import Stage, fresh
from tests.engine.test_new_chats import know, reminder_to, stranger
from tests.factories import (
    AccountFactory,
    LaneStateFactory,
    RecipientFactory,
    ReminderFactory,
    ReminderTargetFactory,
    RunFactory,
    RunTargetFactory,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
HOUR = timedelta(hours=1)
DAY = Window("UTC", 6, 18)
HOURS = BusinessHours("UTC")
PACE = PaceSettings(60, 1)
case = pytest.param


def lane(targets: int, new: int, chats: NewChats, parts: int = 1, **account: Any) -> LaneWork:
    plan = AccountSnapshot(0, PACE, HOURS, new_chats=chats, **account)
    return LaneWork(plan, Queued(Work.of(targets, parts), DAY, NOW).split(new))


def ask(*lanes: LaneWork) -> Forecast:
    return forecast_lanes(lanes, DAY, NOW, Reader(NOW))


def by_day(forecast: Forecast) -> list[int]:
    return [day.targets for day in forecast.days]


# --- the sum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "new", "chats", "days"),
    [
        case(1_030, 1_000, NewChats(budget=500), [530, 500], id="known and groups go at once"),
        case(12, 12, NewChats(budget=5), [5, 5, 2], id="only strangers"),
        case(12, 12, NewChats(budget=5, begun=3), [2, 5, 5], id="some of today's is used"),
        case(12, 10, NewChats(budget=5, begun=9), [2, 5, 5], id="all of today's is used"),
        case(12, 0, NewChats(budget=5), [12], id="none is new"),
        case(12, 12, NewChats(), [12], id="no budget"),
        case(12, 4, NewChats(NewChatHold(NOW + 24 * HOUR, "refused")), [8, 4], id="held until tomorrow"),
        case(12, 4, NewChats(NewChatHold(NOW + HOUR, "refused")), [12], id="held for an hour"),
    ],
)
@pytest.mark.parametrize("projected", [2_000, 3])
def test_what_fits_on_each_day(
    monkeypatch: pytest.MonkeyPatch, targets: int, new: int, chats: NewChats, days: list[int], projected: int
) -> None:
    """Also where most messages are counted instead of projected."""
    monkeypatch.setattr(outlook, "MOST_PROJECTED", projected)
    assert by_day(ask(lane(targets, new, chats))) == days


@pytest.mark.parametrize("projected", [2_000, 3])
def test_the_parts_of_one_chat_cost_one(monkeypatch: pytest.MonkeyPatch, projected: int) -> None:
    monkeypatch.setattr(outlook, "MOST_PROJECTED", projected)
    assert by_day(ask(lane(12, 12, NewChats(budget=5), parts=3))) == [5, 5, 2]


def test_runs_share_the_budget_and_known_people_overtake() -> None:
    before = Queued(Work.of(8), DAY, NOW, (NOW, 1), run_id=1).split(8)
    mine = Queued(Work.of(20), DAY, NOW, (NOW, 2), run_id=2).split(4)
    plan = AccountSnapshot(0, PACE, HOURS, new_chats=NewChats(budget=5), queued_before=before)
    forecast = ask(LaneWork(plan, mine))
    assert by_day(forecast) == [16, 2, 2]
    assert forecast.in_front == (1,)


def test_a_hold_ends_at_its_minute() -> None:
    forecast = ask(lane(12, 4, NewChats(NewChatHold(NOW + HOUR, "refused"))))
    assert forecast.ends_at is not None
    assert NOW + HOUR < forecast.ends_at < NOW + HOUR + timedelta(seconds=5)


# --- in words ---------------------------------------------------------------------------------------------

GOES_ON = "if it goes on at each opening."


@pytest.mark.parametrize(
    ("lanes", "bound_by", "sentence"),
    [
        case(
            [lane(1_000, 970, NewChats(budget=30))],
            "budget of new chats",
            "1,000 recipients: 60 fit today. 30 new chats a day: 940 more wait for the following days; "
            f"done about Fri 06 Feb 06:00 {GOES_ON}",
            id="budget",
        ),
        case(
            [lane(40, 40, NewChats(budget=10)), lane(40, 40, NewChats(budget=20))],
            "budget of new chats",
            "80 recipients through 2 accounts: 30 fit today. 30 new chats a day: 50 more wait for the following days; "
            f"done about Thu 06:00 {GOES_ON}",
            id="two accounts",
        ),
        case(
            [lane(9, 4, NewChats(NewChatHold(NOW + HOUR, "refused")))],
            "hold of new chats",
            "9 recipients: no new chats before 10:00, done about 10:00; fits.",
            id="hold",
        ),
        case(
            [lane(9, 4, NewChats(NewChatHold(NOW + 24 * HOUR, "refused")))],
            "hold of new chats",
            "9 recipients: 5 fit today. No new chats before Tue 09:00: 4 more wait for the following days; "
            f"done about Tue 09:00 {GOES_ON}",
            id="held until tomorrow",
        ),
        case(
            [lane(5, 2, NewChats(budget=0))],
            "budget of new chats",
            "5 recipients will never finish because of the account's budget of new chats.",
            id="none wanted",
        ),
        case(
            [lane(60, 30, NewChats(budget=30))],
            "pace",
            "60 recipients at 60/min: done about 09:00; fits.",
            id="just enough",
        ),
        case(
            [lane(50, 45, NewChats(budget=30), cap=10)],
            "daily cap",
            f"50 recipients at 10 a day: 10 fit before the window closes at 18:00; done about Fri 06:00 {GOES_ON}",
            id="a lower cap",
        ),
    ],
)
def test_sentence(lanes: list[LaneWork], bound_by: str, sentence: str) -> None:
    forecast = ask(*lanes)
    assert (forecast.bound_by, forecast.sentence) == (bound_by, sentence)


# --- read from the database -------------------------------------------------------------------------------


def person(n: int, owner: Any) -> Any:
    return RecipientFactory.create(owner=owner, kind="person", address=stranger(n))


def run_to_strangers(account: Account, first: int, strangers: int, groups: int = 0, **fields: Any) -> Run:
    run = RunFactory.create(
        reminder__account=account, scheduled_for=NOW, **{"window_start_hour": 6, "window_end_hour": 18} | fields
    )
    for n in range(first, first + strangers):
        RunTargetFactory.create(run=run, recipient=person(n, account.owner))
    RunTargetFactory.create_batch(groups, run=run)
    run.refresh_from_db()
    return run


@pytest.fixture
def line(db: None) -> Account:
    return AccountFactory.create(max_send_per_minute=60, send_burst=1, timezone="UTC", new_chats_per_day=5)


def test_a_run_counts_who_is_new_and_what_was_begun_today(line: Account) -> None:
    run = run_to_strangers(line, 0, 12, groups=3)
    know(line, stranger(0), stranger(1))
    KnownChat.objects.create(account=line, address=stranger(99), begun_at=NOW - HOUR)
    assert by_day(forecast_run(run, NOW)) == [3 + 2 + 4, 5, 1]


def test_the_list_says_what_waits(line: Account) -> None:
    run = run_to_strangers(line, 0, 12, status="running")
    shown = eta(run, progress_of([run], NOW)[run.pk])
    assert "5 new chats a day: 7 more wait for the following days" in shown


@pytest.mark.django_db
def test_a_stored_hold_without_a_budget_counts() -> None:
    account = AccountFactory.create(max_send_per_minute=60, timezone="UTC")
    LaneStateFactory.create(account=account, new_chats_after=NOW + 24 * HOUR, new_chats_why="refused")
    run = run_to_strangers(account, 0, 4, groups=3)
    assert by_day(forecast_run(run, NOW)) == [3, 4]
    assert forecast_run(run, NOW + 48 * HOUR).bound_by == "pace"


def test_a_paused_run_as_if_it_were_resumed(line: Account) -> None:
    run = run_to_strangers(line, 0, 12, groups=3, status="paused", pause_reason="operator")
    assert by_day(forecast_run(run, NOW)) == [8, 5, 2]


def test_an_offload_asks_whom_the_other_account_knows(line: Account) -> None:
    other = AccountFactory.create(owner=line.owner, max_send_per_minute=60, timezone="UTC")
    run = run_to_strangers(other, 0, 12, groups=3)
    know(line, stranger(0))
    assert by_day(forecast_offload([run], line, NOW)) == [3 + 1 + 5, 5, 1]


@pytest.mark.parametrize("most", [20_000, 6])
def test_of_very_many_the_first_speak_for_all(line: Account, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("fanout.lanes.chats.MOST_LOOKED_AT", most)
    run = run_to_strangers(line, 0, 12)
    assert by_day(forecast_run(run, NOW)) == [5, 5, 2]


def test_many_runs_take_no_more_queries_than_one(line: Account, django_assert_max_num_queries: Any) -> None:
    runs = [run_to_strangers(line, 10 * n, 3) for n in range(4)]
    runs += [
        run_to_strangers(line, 10 * n, 3, status="paused", pause_reason="operator", resume_at=NOW + HOUR)
        for n in range(4, 6)
    ]
    read = {run.pk: run for run in Run.objects.select_related("account").in_bulk([run.pk for run in runs]).values()}
    with django_assert_max_num_queries(8):
        together = forecast_runs(list(read.values()), NOW)
    with django_assert_max_num_queries(8):
        alone = forecast_runs([read[runs[0].pk]], NOW)
    assert alone[runs[0].pk] == together[runs[0].pk]
    assert [together[run.pk].fits for run in runs] == [True, False, False, False, False, False]


def test_a_reminder_before_it_fires(line: Account) -> None:
    reminder = ReminderFactory.create(account=line, targets=3, next_fire_at=NOW, delivery_window_end_hour=18)
    for n in range(12):
        ReminderTargetFactory.create(reminder=reminder, recipient=person(n, line.owner))
    know(line, stranger(3))
    forecast = forecast_reminder(reminder, NOW)
    assert by_day(forecast) == [3 + 1 + 5, 5, 1]
    assert "5 new chats a day: 6 more wait for the following days" in forecast.sentence


def test_accounts_share_the_strangers_of_a_reminder(line: Account) -> None:
    free = AccountFactory.create(owner=line.owner, max_send_per_minute=60, timezone="UTC")
    reminder = ReminderFactory.create(account=line, next_fire_at=NOW, delivery_window_end_hour=18)
    reminder.set_further_senders([free])
    for n in range(24):
        ReminderTargetFactory.create(reminder=reminder, recipient=person(n, line.owner))
    assert by_day(forecast_reminder(reminder, NOW)) == [12 + 5, 5, 2]


def test_what_is_to_come_says_what_is_left(line: Account) -> None:
    at = NOW + HOUR
    reminder = ReminderFactory.create(
        account=line, targets=3, fire_at=at, next_fire_at=at, enabled=True, delivery_window_end_hour=18
    )
    for n in range(12):
        ReminderTargetFactory.create(reminder=reminder, recipient=person(n, line.owner))
    (firing,) = upcoming_firings(due_reminders(Reminder.objects.all(), NOW), read_senders(Q(pk=line.pk), NOW), NOW)
    assert firing.fits_count == 8
    assert firing.verdict("UTC", NOW) == "won't fit: 7 of 15 are left at 18:00"


@pytest.mark.parametrize(
    ("budget", "rest"), [(5, "about 2 d"), (50, "about 1 min"), (0, "for ever, because its budget of new chats is 0")]
)
def test_the_overview_says_how_long_a_paused_run_takes(line: Account, budget: int, rest: str) -> None:
    Account.objects.update(new_chats_per_day=budget)
    run = run_to_strangers(line, 0, 12, status="paused", pause_reason="operator")
    (item,) = needs_you([run], read_senders(Q(pk=line.pk), NOW), run.owner, NOW)
    assert item["rest"] == rest


@pytest.mark.django_db
def test_without_limits_nothing_is_counted() -> None:
    account = AccountFactory.create()
    run = run_to_strangers(account, 0, 3)
    assert [queued.new_chats for queued in account_snapshot(account, timezone.now()).queued_before] == [0]
    assert forecast_run(run, NOW).sentence.startswith("3 groups at")


# --- the plan ---------------------------------------------------------------------------------------------


def test_the_plan_of_each_target_knows_who_is_new() -> None:
    account = AccountSnapshot(7, PACE, HOURS, new_chats=NewChats(budget=2))
    new = {0, 1, 2, 4, 5}
    planned = list(plan([0] * 8, [account], DAY, NOW, new=new))
    days = [target.at.day - NOW.day for target in planned if target.at]
    assert [days[n] for n in sorted(new)] == [0, 0, 1, 1, 2]
    assert {days[n] for n in (3, 6, 7)} == {0}
    rest = list(plan([0] * 4, [account], DAY, NOW, new={0, 1}, copied={7: Copied(4, 3)}))
    assert [target.at.day - NOW.day for target in rest if target.at] == [1, 2, 0, 0]


def planned_days(run: Run, now: datetime) -> list[int]:
    """Return for each person how many days from now it is planned."""
    people = run.targets.filter(recipient__kind="person").order_by("position")
    return [(target.planned_at.date() - now.date()).days for target in people if target.planned_at]


def test_targets_are_planned_and_planned_anew_for_their_day(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=60, new_chats_per_day=5)
    know(account, stranger(0))
    run = stage.fire(reminder_to(stage, account, [stranger(n) for n in range(12)], groups=10))
    days = [0, *[0] * 5, *[1] * 5, 2]
    assert planned_days(run, stage.now) == days
    groups = run.targets.exclude(recipient__kind="person")
    assert {target.planned_at.date() for target in groups if target.planned_at} == {stage.now.date()}
    run.targets.update(planned_at=stage.now)
    plan_anew(account, stage.now)
    assert planned_days(run, stage.now) == days


# --- against the engine -----------------------------------------------------------------------------------


def test_the_engine_ends_on_the_day_that_was_foreseen(stage: Stage) -> None:
    stage.tick = 30
    account = stage.account(max_send_per_minute=60, new_chats_per_day=5)
    reminder = reminder_to(stage, account, [stranger(n) for n in range(12)], groups=10, resume_after_limit=True)
    before = forecast_reminder(reminder, stage.now)
    run = stage.fire(reminder)
    expected = forecast_run(run, stage.now)
    assert expected.ends_at is not None
    assert before.ends_at == expected.ends_at
    stage.play()
    for _ in range(2):
        opens = fresh(run).resume_at
        again = forecast_run(run, stage.now).ends_at
        assert opens is not None
        assert again is not None
        assert again.date() == expected.ends_at.date()
        stage.now = opens
        controls.resume_due(stage.now)
        stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    days = [at.date() for at in stage.times()]
    assert [(day.date, day.targets) for day in expected.days] == [(day, days.count(day)) for day in sorted(set(days))]
    assert by_day(expected) == [15, 5, 2]
    assert abs(expected.ends_at - max(stage.times())) < timedelta(minutes=1)
