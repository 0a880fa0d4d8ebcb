"""The calendar's days: firings, resumptions, past runs, and what is free."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from accounts.models import Account
from fanout.plans.agenda import Agenda, Entry, agenda, gap_in_words
from fanout.plans.forecast import forecast_reminder
from reminders.models import Reminder
from tests.factories import AccountFactory, DailyLimitFactory, ReminderFactory, RunFactory, UserFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 7, tzinfo=UTC)  # a Monday
WEEK = [date(2026, 1, 5) + timedelta(days=n) for n in range(7)]
MONDAY, TUESDAY, THURSDAY = WEEK[0], WEEK[1], WEEK[3]


def due(account: Account, at: datetime, targets: int = 3, **fields: Any) -> Reminder:
    plain = {"schedule": "once", "fire_at": at, "next_fire_at": at, "timezone": "UTC", "enabled": True}
    hours = {"delivery_window_start_hour": 6, "delivery_window_end_hour": 18}
    return ReminderFactory.create(account=account, targets=targets, **plain | hours | fields)


def look(account: Account, days: list[date] = WEEK, user: Any = None, zone: str = "UTC") -> Agenda:
    return agenda(user or account.owner, days, zone, NOW)


def entries(found: Agenda, account: Account, day: date) -> list[Entry]:
    return found.cells[account.pk, day].entries


def test_every_firing_of_the_week_is_there_with_the_forecasts_times() -> None:
    account = AccountFactory.create(max_send_per_minute=60)
    once = due(account, NOW + timedelta(hours=2), targets=30)
    due(account, NOW + timedelta(hours=3), schedule="cron", fire_at=None, cron="0 10 * * *", targets=1)
    found = look(account)
    assert [len(found.on(day)) for day in WEEK] == [2, 1, 1, 1, 1, 1, 1]
    first = entries(found, account, MONDAY)[0]
    expected = forecast_reminder(once, NOW)
    assert (first.reminder, first.targets, first.tone) == (once.pk, 30, "good")
    assert first.begins == expected.starts_at
    assert first.ends is not None
    assert expected.ends_at is not None
    assert abs(first.ends - expected.ends_at) < timedelta(seconds=2)
    assert "fits, done" in first.words


def test_days_are_those_of_the_reader() -> None:
    account = AccountFactory.create()
    due(account, NOW + timedelta(hours=10))  # 17:00 UTC
    assert entries(look(account), account, MONDAY)
    there = look(account, zone="Asia/Kuala_Lumpur")
    assert not entries(there, account, MONDAY)
    assert entries(there, account, TUESDAY)


@pytest.mark.parametrize(
    ("fields", "conflict", "words"),
    [
        ({"targets": 0}, False, "has no recipients"),
        ({"targets": 5000}, True, "won't fit"),
        ({"delivery_window_end_hour": 7, "delivery_window_start_hour": 6}, False, "nothing would be sent"),
    ],
)
def test_problems_have_words_and_only_those_of_time_are_conflicts(
    fields: dict[str, Any], conflict: bool, words: str
) -> None:
    account = AccountFactory.create(max_send_per_minute=2, send_burst=1)
    size = fields.pop("targets", 1)
    reminder = due(account, NOW + timedelta(hours=1), targets=min(size, 1), **fields)
    if size > 1:
        DailyLimitFactory.create(account=account, limit=0)
    (entry, *_) = entries(look(account), account, MONDAY)
    assert (entry.tone, words in entry.words, entry.reminder) == ("bad", True, reminder.pk)
    assert (entry.problem, entry.conflict) == (True, conflict)


def test_one_that_waits_for_another_is_late() -> None:
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1)
    due(account, NOW + timedelta(hours=1), targets=20)
    due(account, NOW + timedelta(hours=1, minutes=1), targets=2)
    _, late = entries(look(account), account, MONDAY)
    assert (late.tone, "late" in late.words, late.conflict) == ("warn", True, True)


def test_what_is_used_and_free() -> None:
    account = AccountFactory.create(max_send_per_minute=60, hours_start=8, hours_end=12, timezone="UTC")
    DailyLimitFactory.create(account=account, limit=100)
    due(account, NOW + timedelta(days=1, hours=2), targets=40)
    found = look(account)
    cell = found.cells[account.pk, TUESDAY]
    assert (cell.planned, cell.free, cell.full) == (40, 60, False)
    assert [(begin.hour, end.hour) for begin, end in cell.gaps] == [(8, 9), (9, 12)]
    assert cell.words("UTC").startswith("40 planned, 60 free")
    assert found.cells[account.pk, THURSDAY].free == 100
    Account.objects.update(status="paused")
    cell = look(account).cells[account.pk, THURSDAY]
    assert (cell.full, cell.free, cell.gaps, cell.words("UTC")) == (False, 0, [], "paused")


def test_without_a_cap_it_says_that_only_time_is_left() -> None:
    account = AccountFactory.create(max_send_per_minute=60, hours_start=8, hours_end=12, timezone="UTC")
    due(account, NOW + timedelta(days=1, hours=2), targets=40)
    found = look(account)
    tuesday, thursday = found.cells[account.pk, TUESDAY], found.cells[account.pk, THURSDAY]
    assert tuesday.words("UTC").startswith(f"40 planned, no cap, time for {tuesday.free:,}")
    assert (thursday.words("UTC"), thursday.free) == ("no cap, time for 14,400", 4 * 60 * 60)


def test_in_the_evening_a_day_is_over_and_not_full() -> None:
    account = AccountFactory.create(timezone="UTC")
    cell = agenda(account.owner, WEEK, "UTC", NOW.replace(hour=21)).cells[account.pk, MONDAY]
    assert (cell.full, cell.free, cell.words("UTC")) == (False, 0, "over for today")


def test_a_day_is_full_when_the_cap_is_used_up() -> None:
    account = AccountFactory.create(timezone="UTC")
    DailyLimitFactory.create(account=account, limit=10)
    due(account, NOW + timedelta(days=1, hours=2), targets=25, auto_resume=True)
    found = look(account)
    assert [found.cells[account.pk, day].planned for day in WEEK[1:5]] == [10, 10, 5, 0]
    cell = found.cells[account.pk, TUESDAY]
    assert (cell.full, cell.words("UTC")) == (True, "10 planned, full")
    assert "goes on with 10" in entries(found, account, WEEK[2])[0].words


def test_resumptions_and_runs_that_go_out_are_there() -> None:
    account = AccountFactory.create()
    run = RunFactory.create(
        reminder__account=account,
        scheduled_for=NOW - timedelta(days=1),
        status="paused",
        pause_reason="window_closed",
        resume_at=NOW + timedelta(days=1, hours=2),
        targets={"pending": 2},
    )
    (entry,) = entries(look(account), account, TUESDAY)
    assert (entry.run, entry.words, entry.begins) == (run.pk, "resumes by itself", run.resume_at)


def test_a_run_of_which_a_part_waits_for_another_try_is_there_once() -> None:
    account = AccountFactory.create(max_send_per_minute=60)
    run = RunFactory.create(
        reminder__account=account, status="running", targets={"pending": 5}, timezone="UTC", scheduled_for=NOW
    )
    later = list(run.targets.values_list("pk", flat=True)[:2])
    run.targets.filter(pk__in=later).update(next_attempt_at=NOW + timedelta(minutes=5), attempts=1)
    (entry,) = entries(look(account), account, MONDAY)
    assert (entry.run, entry.targets, entry.words) == (run.pk, 5, "going out")


def test_past_runs_of_the_week() -> None:
    account = AccountFactory.create()
    run = RunFactory.create(
        reminder__account=account, scheduled_for=NOW - timedelta(hours=1), status="success", targets={"sent": 2}
    )
    (entry,) = entries(look(account), account, MONDAY)
    assert (entry.run, entry.tone, entry.words) == (run.pk, "mute", "success: 2 of 2 sent")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "failed", "targets": {"failed": 2}}, "failed: 0 of 2 sent"),
        (
            {"status": "paused", "pause_reason": "window_closed", "targets": {"sent": 1, "pending": 1}},
            "paused: 1 of 2 sent",
        ),
    ],
)
def test_what_went_wrong_is_coloured_and_no_conflict(fields: dict[str, Any], words: str) -> None:
    account = AccountFactory.create()
    RunFactory.create(reminder__account=account, scheduled_for=NOW - timedelta(hours=1), **fields)
    (entry,) = entries(look(account), account, MONDAY)
    assert (entry.tone, entry.problem, entry.conflict, entry.words) == ("bad", True, False, words)


def test_reminders_of_others_count_and_are_not_named() -> None:
    account = AccountFactory.create()
    theirs = due(account, NOW + timedelta(hours=2), owner=UserFactory.create(), title="Secret")
    (entry,) = entries(look(account), account, MONDAY)
    assert (entry.title, entry.reminder, entry.targets) == ("another reminder of this account", None, 3)
    assert not look(account, user=theirs.owner).accounts, "the account is not theirs"


def test_only_the_chosen_account_has_days() -> None:
    account = AccountFactory.create(label="A")
    other = AccountFactory.create(owner=account.owner, label="B")
    due(account, NOW + timedelta(hours=2), targets=4).set_further_senders([account, other])
    found = agenda(account.owner, WEEK, "UTC", NOW, only=account.pk)
    assert {pk for pk, _ in found.cells} == {account.pk}
    assert [entry.targets for entry in found.on(MONDAY)] == [2]
    assert [entry.account for entry in look(account).on(MONDAY)] == [account.pk, other.pk]


def test_idle_days_of_a_month_are_left_out() -> None:
    account = AccountFactory.create()
    due(account, NOW + timedelta(hours=2), targets=4)
    found = agenda(account.owner, WEEK, "UTC", NOW, idle_days=False)
    assert list(found.cells) == [(account.pk, MONDAY)]
    assert found.cells[account.pk, MONDAY].planned == 4
    assert found.on(TUESDAY) == []


def test_a_far_month_is_not_planned() -> None:
    account = AccountFactory.create()
    due(account, NOW + timedelta(days=90))
    far = [date(2026, 4, 5)]
    assert not look(account, far).on(far[0])


def test_a_closed_day_is_not_full() -> None:
    account = AccountFactory.create(timezone="UTC", send_days=[1, 2, 3, 4, 5])
    saturday = look(account).cells[account.pk, WEEK[5]]
    assert (saturday.full, saturday.words("UTC"), saturday.gaps) == (False, "closed", [])
    assert look(account).cells[account.pk, WEEK[4]].gaps


def test_a_window_of_another_timezone_is_busy_on_both_days_of_the_reader() -> None:
    account = AccountFactory.create(timezone="Asia/Kuala_Lumpur", max_send_per_minute=2, send_burst=1)
    opens = datetime(2026, 1, 6, 6, tzinfo=ZoneInfo("Asia/Kuala_Lumpur"))  # Monday 14:00 in Los Angeles
    due(account, opens, targets=1300, timezone="Asia/Kuala_Lumpur")
    zone = "America/Los_Angeles"
    found = look(account, zone=zone)
    monday, tuesday = (found.cells[account.pk, day] for day in (MONDAY, TUESDAY))
    assert monday.planned + tuesday.planned == 1300
    assert 1100 < monday.planned < 1300, "until midnight ten of eleven hours"
    assert [gap_in_words(*gap, zone) for gap in monday.gaps] == ["06:00–14:00"]
    assert monday.busy[0][1] == tuesday.busy[0][0] == datetime(2026, 1, 6, tzinfo=ZoneInfo(zone))


def test_caps_are_those_of_the_accounts_days() -> None:
    account = AccountFactory.create(timezone="Asia/Kuala_Lumpur", max_send_per_minute=60)
    DailyLimitFactory.create(account=account, limit=100)
    opens = datetime(2026, 1, 7, 6, tzinfo=ZoneInfo("Asia/Kuala_Lumpur"))  # Tuesday 14:00 in Los Angeles
    due(account, opens, targets=100, timezone="Asia/Kuala_Lumpur")
    tuesday = look(account, zone="America/Los_Angeles").cells[account.pk, TUESDAY]
    assert (tuesday.planned, tuesday.free) == (100, 100), "until 08:00 it is Tuesday in Kuala Lumpur, with its own cap"


def test_the_last_hour_of_the_day_on_which_clocks_go_back() -> None:
    zone, day = "Europe/Berlin", date(2026, 10, 25)
    now, last = datetime(2026, 10, 24, 9, tzinfo=UTC), datetime(2026, 10, 25, 23, 30, tzinfo=ZoneInfo(zone))
    account = AccountFactory.create()
    hours = {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24}
    due(account, last.astimezone(UTC), timezone=zone, **hours)
    assert len(agenda(account.owner, [day], zone, now).on(day)) == 1


@pytest.mark.parametrize(
    ("by_itself", "words"), [(True, "goes on with 10"), (False, "goes on with 10 if it is resumed")]
)
def test_a_further_day_begins_with_its_first_message(by_itself: bool, words: str) -> None:
    account = AccountFactory.create(timezone="UTC", max_send_per_minute=1, send_burst=1)
    DailyLimitFactory.create(account=account, limit=10)
    due(account, NOW + timedelta(hours=2), targets=15 + 5, auto_resume=by_itself)
    found = look(account)
    (entry,) = entries(found, account, TUESDAY)
    assert (entry.begins, entry.words) == (datetime(2026, 1, 6, 6, tzinfo=UTC), words)
    assert entry.ends is not None
    assert entry.ends - entry.begins >= timedelta(minutes=8)


def test_a_past_run_stands_with_every_account_that_sent_for_it() -> None:
    account = AccountFactory.create()
    other, third = (AccountFactory.create(owner=account.owner) for _ in range(2))
    run = RunFactory.create(
        reminder__account=account,
        lanes=[account.pk, other.pk],
        scheduled_for=NOW - timedelta(hours=1),
        status="success",
        targets={"sent": 2},
    )
    found = look(account)
    assert [entry.run for one in (account, other) for entry in entries(found, one, MONDAY)] == [run.pk, run.pk]
    assert not entries(found, third, MONDAY)
