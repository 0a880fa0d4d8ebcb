"""A reminder that is due becomes one run, with any number of clusters and after a downtime."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from fanout.models import Activity, Event, LaneState, Notification, Run
from fanout.ops import audit
from fanout.plans.forecast import forecast_reminder
from fanout.runs import firing, freezing
from reminders.models import Recipient, Reminder, ReminderTarget
from tests.engine.stage import MONDAY, Stage, fresh
from tests.factories import (
    AccountFactory,
    DailyLimitFactory,
    RecipientFactory,
    ReminderFactory,
    RunFactory,
)

pytestmark = pytest.mark.django_db(transaction=True)


def scheduled(stage: Stage, cron: str = "") -> Reminder:
    reminder = stage.reminder(stage.account(), groups=3)
    if cron:
        reminder.schedule, reminder.cron = "cron", cron
    else:
        reminder.fire_at = MONDAY + timedelta(minutes=5)
    reminder.next_fire_at = reminder.firing_after(MONDAY)
    reminder.save()
    return reminder


def test_a_run_is_made_a_minute_ahead_and_starts_on_its_second(stage: Stage) -> None:
    scheduled(stage)
    assert firing.fire_due(MONDAY) == []
    (run,) = firing.fire_due(MONDAY + timedelta(minutes=4, seconds=10))
    assert run.status == Run.Status.QUEUED
    assert run.pending == 3
    stage.now = MONDAY + timedelta(minutes=4, seconds=10)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    first = min(stage.times())
    assert timedelta(0) <= first - run.scheduled_for < timedelta(seconds=1.5)


def test_many_clusters_make_one_run(stage: Stage) -> None:
    scheduled(stage)
    now = MONDAY + timedelta(minutes=5)

    def fire() -> None:
        firing.fire_due(now)
        connection.close()

    threads = [threading.Thread(target=fire) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Run.objects.count() == 1
    assert Run.objects.get().total == 3


def test_a_missed_firing_is_made_up_for_within_its_window(stage: Stage) -> None:
    scheduled(stage)
    (run,) = firing.fire_due(MONDAY + timedelta(hours=3))
    stage.now = MONDAY + timedelta(hours=3)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 3


def test_a_missed_firing_is_recorded_as_failed_after_its_window(stage: Stage) -> None:
    scheduled(stage)
    (run,) = firing.fire_due(MONDAY + timedelta(hours=12))
    assert run.status == Run.Status.FAILED
    assert fresh(run).skipped == 3
    assert list(run.events.values_list("verb", flat=True)) == ["fired", "failed"]
    stage.now = MONDAY + timedelta(hours=12)
    stage.play(5)
    assert not stage.book.deliveries()


def test_of_many_missed_firings_only_the_last_is_made_up_for(stage: Stage) -> None:
    reminder = scheduled(stage, cron="*/10 * * * *")
    runs = firing.fire_due(MONDAY + timedelta(hours=1, minutes=5))
    assert [run.status for run in runs] == ["skipped"] * 5 + ["queued"]
    reminder.refresh_from_db()
    assert reminder.next_fire_at == MONDAY + timedelta(hours=1, minutes=10)


def test_an_account_that_is_not_active_skips_the_firing(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(status="suspended", status_reason="banned."), groups=3)
    run = stage.fire(reminder)
    assert run.status == Run.Status.SKIPPED
    assert "suspended: banned" in run.error_summary
    assert run.total == 0
    assert not LaneState.objects.exists()


def test_two_firings_within_the_next_minute_are_both_made(stage: Stage) -> None:
    scheduled(stage, cron="* * * * *")
    runs = firing.fire_due(MONDAY + timedelta(seconds=60))
    assert [run.status for run in runs] == ["queued", "queued"]


# --- behind the account's queue, through its senders -----------------------------------------------------


def planned_days(run: Run) -> Counter[int]:
    return Counter(at.day for at in run.targets.values_list("planned_at", flat=True) if at)


def test_two_runs_share_the_cap_of_a_day(stage: Stage) -> None:
    account = stage.account()
    DailyLimitFactory(account=account, limit=20)
    first, second = (stage.fire(stage.reminder(account, groups=20, first=n * 100)) for n in (0, 1))
    assert planned_days(first) == {MONDAY.day: 20}
    assert planned_days(second) == {MONDAY.day + 1: 20}
    assert audit.over_plan(MONDAY - timedelta(days=30), MONDAY) == []


def test_a_reminder_behind_a_thousand_is_not_done_at_once(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=10, send_burst=1)
    stage.fire(stage.reminder(account, groups=1_000))
    known = forecast_reminder(stage.reminder(account, groups=10, first=5_000), MONDAY)
    assert known.starts_at == MONDAY + timedelta(minutes=100)


def test_mailboxes_by_mail_and_groups_by_messenger_in_one_run(stage: Stage) -> None:
    """One ledger: each lane counts what its own provider counts, regardless of the run's action."""
    office = stage.account(channel="smtp", address="office@example.com")
    line = stage.account(channel="waha", address="line")
    reminder = stage.reminder(office, groups=4, subject="Rent")
    for n in range(6):
        mailbox = RecipientFactory.create(owner=stage.user, kind="mailbox", address=f"ann{n}@example.com")
        ReminderTarget.objects.create(reminder=reminder, recipient=mailbox, position=100 + n)
    reminder.set_further_senders([line])
    DailyLimitFactory(account=office, action="email", limit=5)
    run = stage.fire(reminder)
    assert run.action == "email"
    stage.play(120)
    assert fresh(run).status == Run.Status.PAUSED
    assert (run.sent, run.pending) == (9, 1)
    assert Counter(Activity.objects.values_list("account", "action")) == {
        (office.pk, "email"): 5,
        (line.pk, "message"): 4,
    }
    assert {d.to for d in stage.book.deliveries("line")} == set(
        run.targets.filter(recipient__kind="group").values_list("address", flat=True)
    )


def test_the_action_follows_from_the_channel(stage: Stage) -> None:
    """A reminder that was stored with another action counts as mail all the same."""
    office = stage.account(channel="smtp", address="office@example.com")
    assert stage.fire(stage.reminder(office, action="message")).action == "email"


@pytest.mark.parametrize(
    ("fields", "hours", "sentence"),
    [
        pytest.param(None, 0, "", id="never"),
        pytest.param({"status": "running"}, 0, "It is running already, 2 of 3 sent", id="running"),
        pytest.param({"status": "success"}, 3, "It went out 3 h ago (2 of 3 sent)", id="lately"),
        pytest.param({"status": "success"}, 30, "", id="long ago"),
        pytest.param({"status": "success", "is_test": True}, 1, "", id="test"),
    ],
)
def test_what_is_asked_before_it_is_fired_by_hand(fields: dict[str, object] | None, hours: int, sentence: str) -> None:
    reminder = ReminderFactory.create(title="Rent", timezone="UTC")
    if fields is not None:
        run = RunFactory.create(reminder=reminder, targets={"sent": 2, "failed": 1})
        Run.objects.filter(pk=run.pk).update(**fields, finished_at=MONDAY - timedelta(hours=hours))
    last = firing.last_runs([reminder.pk]).get(reminder.pk)

    asked = firing.question(reminder, "3 recipients", last, MONDAY)

    assert asked.startswith("Send “Rent” to 3 recipients now?")
    assert sentence in asked
    assert bool(sentence) is ("they would get it again" in asked)


def test_after_the_window_the_question_is_about_its_next_opening(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=3)
    late, early = stage.now.replace(hour=19), stage.now.replace(hour=5)
    assert "to 3 recipients when its window opens, " in firing.question(reminder, "3 recipients", None, late)
    assert firing.when_closed(reminder, late) == early.replace(hour=6) + timedelta(days=1)
    assert firing.when_closed(reminder, early) is None
    assert "It starts when its window opens at 06:00." in firing.question(reminder, "3 recipients", None, early)


# --- many at once -------------------------------------------------------------------------------------------


def test_reminders_that_are_due_together_are_read_together(stage: Stage) -> None:
    """Another reminder adds only its own writes and the queries about its own targets."""
    statements = {}
    for many in (2, 12):
        for _ in range(many):
            scheduled(stage)
        with CaptureQueriesContext(connection) as queries:
            assert len(firing.fire_due(MONDAY + timedelta(minutes=4, seconds=10))) == many
        statements[many] = len(queries)
        Reminder.objects.update(enabled=False)
    assert (statements[12] - statements[2]) / 10 <= 9


def test_one_that_breaks_leaves_the_others_of_its_chunk_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first, broken, third = (scheduled(stage) for _ in range(3))
    really = firing._make_run

    def make_run(reminder: Reminder, *args: Any, **options: Any) -> Run | None:
        if reminder == broken:
            raise RuntimeError("broken")
        return really(reminder, *args, **options)

    monkeypatch.setattr(firing, "_make_run", make_run)
    runs = firing.fire_due(MONDAY + timedelta(minutes=4, seconds=10))
    assert [run.reminder for run in runs] == [first, third]
    broken.refresh_from_db()
    assert broken.next_fire_at == MONDAY + timedelta(minutes=5)


def test_only_a_second_run_of_the_moment_is_no_error(stage: Stage) -> None:
    reminder = stage.reminder(stage.account())
    assert firing.make_run(reminder, MONDAY, MONDAY) is not None
    assert firing.make_run(reminder, MONDAY, MONDAY) is None
    reminder.delivery_window_end_hour = reminder.delivery_window_start_hour  # refused by run_window_in_one_day
    with pytest.raises(IntegrityError, match="run_window_in_one_day"):
        firing.make_run(reminder, MONDAY + timedelta(hours=1), MONDAY)


def test_lanes_are_woken_together_when_all_else_is_written(stage: Stage) -> None:
    """Drivers wait for the row of a lane that was woken until the firing commits."""
    for _ in range(3):
        scheduled(stage)
    with CaptureQueriesContext(connection) as queries:
        runs = firing.fire_due(MONDAY + timedelta(minutes=4, seconds=10))
    *_, last, _commit = [query["sql"] for query in queries]
    assert "INSERT INTO fanout_lanestate" in last
    assert sum("fanout_lanestate (" in query["sql"] for query in queries) == 1
    due = dict(LaneState.objects.values_list("account_id", "due_at"))
    assert due == {run.account_id: run.scheduled_for for run in runs}


def test_an_account_with_two_firings_is_due_for_the_first(stage: Stage) -> None:
    account, later = stage.account(), MONDAY + timedelta(seconds=40)
    for first, at in ((0, MONDAY), (10, later)):
        reminder = stage.reminder(account, groups=2, first=first)
        Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=at)
    assert len(firing.fire_due(MONDAY)) == 2
    assert LaneState.objects.get(account=account).due_at == MONDAY


def test_queues_of_follow_ups_are_locked_before_the_first_run_is_made(stage: Stage) -> None:
    """In the order of the accounts, not of the firings: two chunks never wait for each other."""
    accounts = [stage.account() for _ in range(2)]
    for n, account in enumerate(reversed(accounts)):
        reminder = stage.reminder(account, groups=1, first=n * 10, follow_up=True)
        Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=MONDAY + timedelta(seconds=n))
    with CaptureQueriesContext(connection) as queries:
        assert len(firing.fire_due(MONDAY)) == 2
    statements = [query["sql"] for query in queries]
    locks = [n for n, sql in enumerate(statements) if "pg_advisory_xact_lock" in sql]
    assert [statements[n].endswith(f" {account.pk})") for n, account in zip(locks, accounts)] == [True, True]
    assert locks[1] < min(n for n, sql in enumerate(statements) if 'INSERT INTO "fanout_run"' in sql)


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        pytest.param([10] * 30, [25, 5], id="many-small"),
        pytest.param([800, 800, 800, 300], [2, 2], id="by-targets"),
        pytest.param([5, 20_000, 5], [1, 1, 1], id="one-above-the-limit"),
        pytest.param([5, 1_000_000, 5], [3], id="a-large-one-only-begins"),
        pytest.param([], [], id="none"),
    ],
)
def test_how_many_are_fired_in_one_transaction(sizes: list[int], chunks: list[int]) -> None:
    fired = list(firing.chunked(enumerate(sizes)))
    assert [len(chunk) for chunk in fired] == chunks
    assert [pk for chunk in fired for pk in chunk] == list(range(len(sizes)))


def test_two_reminders_of_one_account_are_planned_one_behind_the_other(stage: Stage) -> None:
    account = stage.account()
    for first in (0, 10):
        reminder = stage.reminder(account, groups=5, first=first)
        Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=MONDAY)
    one, two = firing.fire_due(MONDAY)
    last, begins = one.targets.latest("planned_at").planned_at, two.targets.earliest("planned_at").planned_at
    assert last is not None
    assert begins is not None
    assert begins > last


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
case = pytest.param


def due(at: datetime | None = NOW, **fields: Any) -> Reminder:
    made: Reminder = ReminderFactory.create(**{"targets": 1, "next_fire_at": at, "timezone": "UTC"} | fields)
    return made


@pytest.mark.parametrize(
    ("at", "fields", "fires"),
    [
        case(NOW, {}, True, id="now"),
        case(NOW + firing.AHEAD, {}, True, id="within-the-minute"),
        case(NOW + firing.AHEAD + SECOND, {}, False, id="later"),
        case(None, {}, False, id="never"),
        case(NOW, {"enabled": False}, False, id="disabled"),
    ],
)
@pytest.mark.parametrize("asked", ["listed", "locked"])
def test_which_reminders_fire(at: datetime | None, fields: dict[str, Any], fires: bool, asked: str) -> None:
    reminder, beside = due(at, **fields), due(NOW + HOUR)
    runs = firing.fire_due(NOW) if asked == "listed" else firing.fire_if_due([reminder.pk], NOW)
    assert [(run.reminder_id, run.scheduled_for) for run in runs] == ([(reminder.pk, at)] if fires else [])
    reminder.refresh_from_db()
    beside.refresh_from_db()
    assert (reminder.next_fire_at, beside.next_fire_at) == (None if fires else at, NOW + HOUR)
    assert LaneState.objects.filter(account=reminder.account_id, due_at=at).exists() is fires


@pytest.mark.parametrize(
    ("ago", "skipped"),
    [case(MINUTE, 0, id="on-time"), case(MINUTE + SECOND, 0, id="one-missed"), case(3 * MINUTE, 1, id="two-missed")],
)
def test_of_missed_firings_the_last_is_made_up_for(ago: timedelta, skipped: int) -> None:
    due(NOW - ago, schedule="cron", cron="* * * * *")
    runs = firing.fire_due(NOW)
    assert [run.status for run in runs[:skipped]] == ["skipped"] * skipped
    assert {run.status for run in runs[skipped:]} == {"queued"}
    for run in runs[:skipped]:
        assert (run.finished_at, run.pending) == (NOW, 0)
        assert "a later firing" in Event.objects.get(run=run, verb="fired").detail


def test_lanes_are_due_for_the_first_of_their_moments() -> None:
    together = firing.Together()
    together.note_due([1, 2], NOW)
    together.note_due([2, 3], NOW - HOUR)
    together.note_due([1], NOW + HOUR)
    assert together.due == {1: NOW, 2: NOW - HOUR, 3: NOW - HOUR}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        case({}, "", id="fine"),
        case({"targets": 0}, "The reminder has no targets.", id="no-targets"),
        case({"parts": ()}, "The reminder has no message.", id="nothing"),
        case({"status": "paused"}, "The account Ann is paused.", id="down"),
        case({"status": "paused", "status_reason": "why"}, "The account Ann is paused: why.", id="down-with-a-reason"),
        case(
            {"status": "paused", "status_reason": "paused by an operator"},
            "The account Ann is paused by an operator.",
            id="by-an-operator",
        ),
    ],
)
def test_why_a_firing_is_skipped(fields: dict[str, Any], why: str) -> None:
    state = {name: fields.pop(name) for name in ("status", "status_reason") if name in fields}
    reminder = due(account=AccountFactory.create(label="Ann", **state), **fields)
    assert firing.reason_to_skip(reminder, firing.count_audience(reminder, NOW)) == why
    run = firing.make_run(reminder, NOW, NOW)
    assert run is not None
    assert (run.status, run.error_summary) == (("skipped", why) if why else ("queued", ""))
    assert firing.make_run(reminder, NOW, NOW) is None


def test_one_active_sender_is_enough() -> None:
    reminder = due(account=AccountFactory.create(status="paused"))
    reminder.set_further_senders([AccountFactory.create(owner=reminder.owner)])
    assert firing.reason_to_skip(reminder, firing.count_audience(reminder, NOW)) == ""


@pytest.mark.parametrize(("ends", "status"), [(9, "failed"), (10, "queued")], ids=["just closed", "still open"])
def test_a_window_that_is_over_fails_at_once(ends: int, status: str) -> None:
    reminder = due(delivery_window_start_hour=6, delivery_window_end_hour=ends)
    run = firing.make_run(reminder, NOW.replace(hour=8), NOW)
    assert run is not None
    assert (run.status, run.skipped) == (status, int(status == "failed"))
    assert LaneState.objects.exists() is (status == "queued")


@pytest.mark.parametrize("large", [1_000, 0], ids=["at-once", "in-chunks"])
def test_a_firing_that_may_reach_no_one_is_skipped_and_alarms_no_one(large: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(firing, "LARGE", large)
    reminder = due(follow_up=True, targets=2)
    Recipient.objects.update(cooldown_until=NOW + timedelta(hours=12))
    run = firing.make_run(reminder, NOW, NOW)
    assert run is not None
    freezing.prepare(run.pk, NOW)
    run.refresh_from_db()
    assert (run.status, run.skipped, run.pending) == ("skipped", 2, 0)
    assert run.error_summary == "No one was written to: 2 still in the cooldown."
    assert not Notification.objects.exists()
    assert list(run.events.values_list("verb", flat=True)) == ["fired", "skipped at once", "skipped"]


def test_a_large_run_is_only_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "LARGE", 1)
    for targets, status in ((1, "queued"), (2, "preparing")):
        run = firing.make_run(due(targets=targets), NOW, NOW)
        assert run is not None
        assert (run.status, run.total) == (status, 1 if status == "queued" else 0)


@pytest.mark.parametrize(
    ("status", "sent", "ago", "says"),
    [
        case("success", 1, timedelta(hours=24) - SECOND, True, id="within-a-day"),
        case("success", 1, timedelta(hours=24), False, id="a-day-ago"),
        case("failed", 0, HOUR, False, id="nothing-went-out"),
        case("paused", 0, HOUR, True, id="not-over"),
    ],
)
def test_what_went_out_lately(status: str, sent: int, ago: timedelta, says: bool) -> None:
    run = Run(status=status, sent=sent, total=1, finished_at=NOW - ago)
    assert bool(firing._lately(run, NOW)) is says
    assert firing._lately(None, NOW) == ""


def test_the_newest_run_is_the_last_of_its_own() -> None:
    reminder = due()
    first = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    RunFactory.create(reminder=reminder, scheduled_for=NOW - HOUR)
    RunFactory.create(reminder=reminder, scheduled_for=NOW + HOUR, answers=first)
    RunFactory.create(reminder=reminder, scheduled_for=NOW + 2 * HOUR, is_test=True)
    other = RunFactory.create()
    assert firing.last_runs([reminder.pk]) == {reminder.pk: first}
    assert firing.last_runs([reminder.pk, other.reminder_id, due().pk]) == {
        reminder.pk: first,
        other.reminder_id: other,
    }


@pytest.mark.parametrize(
    ("hour", "says"),
    [(5, "It starts when"), (6, ""), (17, ""), (18, "when its window opens, ")],
    ids=["early", "open", "still open", "closed"],
)
def test_what_the_window_says_today(hour: int, says: str) -> None:
    reminder = due(delivery_window_start_hour=6, delivery_window_end_hour=18)
    said = firing.question(reminder, "3 people", None, NOW.replace(hour=hour))
    assert (says in said, "window" in said) == (True, bool(says))


@pytest.mark.parametrize(("hours", "moments"), [(0, 1), (50, 51), (500, firing.MISSED_AT_MOST + 2)])
def test_a_long_downtime_records_the_first_that_were_missed_and_the_last_two_hours(hours: int, moments: int) -> None:
    now = datetime(2026, 1, 10, 12, 30, tzinfo=UTC)
    first = now.replace(minute=0) - timedelta(hours=hours)
    reminder = Reminder(schedule="cron", cron="0 * * * *", timezone="UTC", next_fire_at=first)
    due = firing._due_moments(reminder, now)
    in_a_row = min(moments, firing.MISSED_AT_MOST)
    assert due[:in_a_row] == [first + timedelta(hours=n) for n in range(in_a_row)]
    assert len(due) == moments
    assert due[-1] == now.replace(minute=0)
    assert reminder.next_fire_at == now.replace(hour=13, minute=0)
