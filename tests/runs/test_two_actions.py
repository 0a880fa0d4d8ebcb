"""An account whose provider counts two actions, each with its own cap: a LinkedIn seat."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

import pytest

from accounts.models import Account
from fanout.models import Run
from fanout.ops import audit
from fanout.plans.forecast import forecast_reminder, forecast_run, forecast_runs
from fanout.plans.outlook import look_ahead
from fanout.plans.projection import AccountSnapshot, DailyCap, Queued, Work
from fanout.rules.pace import PaceSettings
from reminders.models import Recipient, Reminder, ReminderTarget
from reminders.window import BusinessHours, Window
from tests.engine.stage import MONDAY, Stage, fresh
from tests.factories import DailyLimitFactory

CONNECT = "connection_request"  # 20 a day unless the account says otherwise; of messages 50


@pytest.fixture
def seat(stage: Stage) -> Account:
    return stage.account(channel="unipile", max_send_per_minute=60, min_gap_seconds=0, max_gap_seconds=0)


def to_profiles(stage: Stage, account: Account, profiles: int, action: str) -> Reminder:
    reminder = stage.reminder(account, groups=0, action=action, delivery_window_end_hour=18)
    first = Recipient.objects.count()
    people = [
        Recipient.objects.create(owner=stage.user, kind="profile", address=f"https://www.linkedin.com/in/ann-{n}")
        for n in range(first, first + profiles)
    ]
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    return reminder


def planned_days(run: Run) -> Counter[int]:
    return Counter(at.day for at in run.targets.values_list("planned_at", flat=True) if at)


@pytest.mark.slow
def test_connection_requests_behind_messages_have_their_own_cap(stage: Stage, seat: Account) -> None:
    messages = stage.fire(to_profiles(stage, seat, 45, "message"))
    reminder = to_profiles(stage, seat, 15, CONNECT)
    known = forecast_reminder(reminder, stage.now)
    run = stage.fire(reminder)
    assert known.fits
    assert known.bound_by == "pace"
    assert known.in_front == (messages.pk,)
    assert forecast_run(run, stage.now).ends_at == known.ends_at
    assert planned_days(run) == {MONDAY.day: 15}
    stage.play(300)
    assert (fresh(messages).status, fresh(run).status) == (Run.Status.SUCCESS, Run.Status.SUCCESS)
    assert run.finished_at is not None
    assert known.ends_at is not None
    assert abs(run.finished_at - known.ends_at) < timedelta(seconds=10)


@pytest.mark.slow
def test_a_cap_that_is_used_up_holds_only_its_own_action(stage: Stage, seat: Account) -> None:
    """Also told of both in one answer, as the list of runs does."""
    messages = stage.fire(to_profiles(stage, seat, 60, "message"))
    run = stage.fire(to_profiles(stage, seat, 15, CONNECT))
    known = forecast_runs([messages, run], stage.now)
    assert (known[messages.pk].fits_count, known[messages.pk].bound_by) == (50, "daily cap")
    assert "at 50 a day" in known[messages.pk].sentence
    assert (known[run.pk].fits, known[run.pk].bound_by) == (True, "pace")
    assert (planned_days(messages), planned_days(run)) == (
        {MONDAY.day: 50, MONDAY.day + 1: 10},
        {MONDAY.day: 15},
    )
    stage.play(300)
    assert (fresh(messages).sent, fresh(run).sent) == (50, 15)
    assert len(stage.book.deliveries()) == 65


def test_what_was_planned_over_a_cap_is_planned_anew_within_it(stage: Stage, seat: Account) -> None:
    run = stage.fire(to_profiles(stage, seat, 12, CONNECT))
    messages = stage.fire(to_profiles(stage, seat, 30, "message"))
    DailyLimitFactory(account=seat, action=CONNECT, limit=5)
    since = stage.now - timedelta(days=30)
    assert [v.text for v in audit.over_plan(since, stage.now)] == [
        f"{seat.label}: 12 × {CONNECT} planned for 2026-01-05, and the cap is 5."
    ]
    audit.repair(since, stage.now)
    assert audit.over_plan(since, stage.now) == []
    assert planned_days(run) == {MONDAY.day: 5, MONDAY.day + 1: 5, MONDAY.day + 2: 2}
    assert planned_days(messages) == {MONDAY.day: 30}


def test_far_ahead_each_action_keeps_its_cap() -> None:
    """Behind more messages than are projected one by one."""
    account = AccountSnapshot(
        1, PaceSettings(60, 1), BusinessHours("UTC"), cap=2_500, channel="unipile", others={CONNECT: DailyCap(8, 3)}
    )
    day = Window("UTC", 6, 18)
    queue = [Queued(Work.of(n), day, MONDAY, action=action) for n, action in ((5_000, "message"), (9, CONNECT))]
    messages, requests = look_ahead(account, queue, MONDAY).runs
    days = [date(2026, 1, n) for n in (5, 6)]
    assert [(d.date, d.targets) for d in messages.days] == [(days[0], 2_500), (days[1], 2_500)]
    assert [(d.date, d.targets) for d in requests.days] == [(days[0], 5), (days[1], 4)]
