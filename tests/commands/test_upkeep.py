"""limits, doctor, retention, rotate_keys, forecast, why, demo_data."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from axes.models import AccessAttempt
from cryptography.fernet import Fernet
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import Account
from fanout.database import conninfo
from fanout.inbound import hearing
from fanout.models import Activity, InboundEvent, LaneState, Run, RunTarget
from fanout.ops import audit, diagnosis, tasks
from fanout.runs import settling
from tests.channels.mail_server import wait_until
from tests.commands.calling import bad_input, data, not_done, text
from tests.engine.test_lock_order import waits
from tests.engine.test_storing import RESULTS, Fault
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    ClusterBeatFactory,
    DailyLimitFactory,
    DriverFactory,
    EventFactory,
    InboundEventFactory,
    LaneStateFactory,
    NotificationFactory,
    ReminderFactory,
    RunFactory,
    RunTargetFactory,
)
from tests.lanes.test_deleting import scans

pytestmark = pytest.mark.django_db


def sent_target(run: Run, activity: bool = True) -> RunTarget:
    now = timezone.now()
    target = RunTargetFactory.create(run=run, status="sent", parts_sent=1, claimed_at=now, settled_at=now)
    if activity:
        ActivityFactory(account=run.account, run_target=target)
    return target


def broken(statement: str, *parameters: int) -> None:
    """Behind the trigger's back."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


# --- limits -------------------------------------------------------------------------------------------------


def checks_of() -> list[str]:
    """The names of what is wrong."""
    now = timezone.now()
    return sorted({violation.check for violation in audit.examine(now - timedelta(days=30), now)})


def test_good_books_agree():
    run = RunFactory.create(status="running")
    sent_target(run)
    LaneStateFactory(account=run.account, due_at=timezone.now())
    assert data("limits", "--check") == {"violations": [], "repaired": []}


def test_wrong_counters_are_counted_again():
    run = RunFactory.create(targets={"pending": 2}, status="paused", pause_reason="operator")
    broken("UPDATE fanout_run SET pending = 0, sent = 2 WHERE id = %s", run.pk)
    assert checks_of() == ["counters"]
    assert "Inconsistencies: 1" in not_done("limits")
    (mended,) = data("limits", "--repair")["repaired"]
    assert mended["text"] == f"{run.title}: says 2 sent, has 2 pending."
    run.refresh_from_db()
    assert (run.pending, run.sent) == (2, 0)


def test_a_delivery_that_no_cap_counts_is_added():
    target = sent_target(RunFactory.create(), activity=False)
    assert checks_of() == ["activity"]
    text("limits", "--repair")
    activity = Activity.objects.get()
    assert (activity.run_target, activity.kind, activity.at) == (target, "repaired", target.settled_at)


def test_a_part_that_would_go_out_twice_is_remembered():
    run = RunFactory.create(parts=[{"kind": "text", "text": "a"}] * 2, status="paused", pause_reason="operator")
    target = RunTargetFactory.create(run=run, claimed_at=timezone.now())
    ActivityFactory(account=run.account, run_target=target, part=0)
    assert checks_of() == ["parts"]
    text("limits", "--repair")
    target.refresh_from_db()
    assert target.parts_sent == 1


def test_what_was_sent_twice_is_said_and_kept():
    target = sent_target(RunFactory.create())
    ActivityFactory(account=target.account, run_target=target)
    assert "Inconsistencies: 1." in not_done("limits", "--repair")
    assert Activity.objects.count() == 2


def test_a_broken_cap_is_said():
    limit = DailyLimitFactory.create(limit=1)
    for _ in range(2):
        ActivityFactory(account=limit.account)
    assert checks_of() == ["cap"]


def test_a_day_over_its_cap_is_said_for_every_day_looked_at():
    limit = DailyLimitFactory.create(limit=1)
    for _ in range(2):
        ActivityFactory(account=limit.account, at=timezone.now() - timedelta(days=5))
    assert checks_of() == ["cap"]
    assert data("limits", "--check", "--days", "2")["violations"] == []
    # Whoever lowered the cap since has broken nothing.
    EventFactory(run=None, account=limit.account, verb="tuned", detail="daily_limit_message: 9 → 1")
    assert checks_of() == []


def test_a_plan_beyond_the_cap_is_said_and_planned_anew():
    run = RunFactory.create(status="queued", scheduled_for=timezone.now())
    LaneStateFactory(account=run.account, due_at=timezone.now())
    DailyLimitFactory(account=run.account, limit=2)
    for position in range(5):
        RunTargetFactory(run=run, position=position, planned_at=timezone.now() + timedelta(days=3))
    assert checks_of() == ["plan"]
    text("limits", "--repair")
    assert checks_of() == []
    days = [target.planned_at.date() for target in run.targets.order_by("position") if target.planned_at]
    assert len(days) == 5
    assert days == sorted(days)
    assert max(Counter(days).values()) == 2


def test_a_paused_run_has_no_place_in_the_plan():
    """A run that waits for its operator and one that goes on may be planned for the same day."""
    run = RunFactory.create(status="paused", pause_reason="operator")
    DailyLimitFactory(account=run.account, limit=1)
    for _ in range(2):
        RunTargetFactory(run=run, planned_at=timezone.now() + timedelta(days=3))
    assert checks_of() == []


def test_a_lane_that_the_run_forgot_is_named():
    run = RunFactory.create(status="running")
    other = AccountFactory.create(owner=run.owner)
    RunTargetFactory(run=run, account=other)
    LaneStateFactory(account=run.account, due_at=timezone.now())
    assert checks_of() == ["lanes"]
    text("limits", "--repair")
    run.refresh_from_db()
    assert run.lanes == sorted([run.account_id, other.pk])
    assert LaneState.objects.get(account=other).due_at is not None


def test_work_that_nobody_would_come_for_wakes_its_lane():
    run = RunFactory.create(targets={"pending": 1}, status="running")
    LaneStateFactory(account=run.account, due_at=None)
    assert checks_of() == ["asleep"]
    text("limits", "--repair")
    assert LaneState.objects.get().due_at is not None


def test_a_wrong_verdict_is_judged_again():
    run = RunFactory.create()
    sent_target(run)
    RunTargetFactory(run=run, status="failed")
    Run.objects.filter(pk=run.pk).update(status="success")
    assert checks_of() == ["verdict"]
    text("limits", "--repair")
    run.refresh_from_db()
    assert run.status == "partial"


def test_limits_refuses_nonsense():
    assert "--days" in bad_input("limits", "--days", "0")
    assert "not allowed with" in bad_input("limits", "--check", "--repair")


# --- doctor -------------------------------------------------------------------------------------------------


def test_a_healthy_crier():
    for cluster in ("main", "drivers"):
        ClusterBeatFactory(cluster=cluster)
    DriverFactory()
    tasks.ensure_schedules()
    with hearing.alone():
        checks = data("doctor")["checks"]
    assert {check["state"] for check in checks} == {"ok"}
    assert len(checks) == len(diagnosis.LOOKS)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"state": "new", "came_at": timezone.now() - timedelta(minutes=5)}, "waiting", id="behind"),
        pytest.param({"state": "failed"}, "1 reports of the last day could not be worked on", id="failed"),
    ],
)
def test_reports_that_are_not_worked_on_are_found(fields, says):
    InboundEventFactory(**fields)
    with hearing.alone():
        verdict = diagnosis.hearing()
    assert (verdict.state, says in verdict.text) == (diagnosis.WARNING, True)


def test_a_sick_crier_says_what_to_do():
    AccountFactory(config={"url": "http://127.0.0.1:1"}, label="Line")
    assert not_done("doctor") == "Failing checks: clusters, drivers, hearing, schedules, accounts."
    verdicts = {verdict.name: verdict for verdict in diagnosis.examine()}
    assert "make up" in verdicts["clusters"].hint
    assert verdicts["accounts"].text.startswith("Line: ")


def test_credentials_that_no_key_opens_are_found(settings):
    AccountFactory(credentials={"key": "x"}, label="Line")
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert "No key in CREDENTIAL_KEYS" in diagnosis.accounts().text


def test_locks_need_room(settings):
    settings.BOT_FIRE_CONCURRENCY = 10_000_000
    assert diagnosis.locks().state == diagnosis.FAILED


def test_all_processes_can_be_connected_at_once(settings):
    settings.WEB_THREADS, settings.DRIVER_SLOTS = 10, 2
    assert diagnosis.connections_needed({"main": 1, "drivers": 3}, has_bridge=True) == {
        "web": 17,
        "main": 8,
        "drivers": 33,
        "up": 1,
        "bridge": 3,
    }
    verdict = diagnosis.connections()
    assert (verdict.state, verdict.hint) == (diagnosis.OK, "")
    assert verdict.text.startswith("37 of ")
    # Machines that are known by their beats; one that is silent does not count.
    for host in ("one", "two"):
        ClusterBeatFactory(cluster="main", host=host)
    ClusterBeatFactory(cluster="drivers", host="two")
    ClusterBeatFactory(cluster="drivers", host="three", beat_at=timezone.now() - timedelta(minutes=5))
    assert diagnosis.connections().text.startswith("63 of ")


def test_too_few_connections_are_said_with_what_to_do(settings):
    settings.WEB_THREADS = 200
    verdict = diagnosis.connections()
    assert verdict.state == diagnosis.WARNING
    assert "web 207, main 8, drivers 11, up 1, bridge 0" in verdict.text
    assert "raise max_connections" in verdict.hint
    assert "WEB_THREADS" in verdict.hint


@pytest.mark.parametrize(
    ("fields", "state", "says"),
    [
        pytest.param({}, "ok", "1 switched on", id="fine"),
        pytest.param({"next_fire_at": timezone.now() - timedelta(minutes=5)}, "failed", "1 overdue", id="overdue"),
        pytest.param({"enabled": False, "firing_problem": "?"}, "warning", "1 set aside: “Rent”", id="set-aside"),
        pytest.param({"enabled": False, "archived": True, "firing_problem": "?"}, "ok", "0 switched on", id="archived"),
        pytest.param({"enabled": False, "next_fire_at": timezone.now() - timedelta(days=5)}, "ok", "0", id="off"),
    ],
)
def test_reminders_that_are_not_fired_are_said(fields, state, says):
    ReminderFactory.create(title="Rent", **fields)
    verdict = diagnosis.reminders()
    assert (verdict.state, says in verdict.text) == (state, True)


def test_why_a_reminder_does_not_fire():
    reminder = ReminderFactory.create(title="Rent", enabled=False, firing_problem="It stopped the worker.")
    ReminderFactory.create(title="Water")
    others = ReminderFactory.create(title="Light", firing_problem="It could not be fired.")
    others.set_further_senders([reminder.account])
    lines = {line["what"]: line["why"] for line in data("why")["why"] if line["what"].startswith("reminder")}
    assert lines == {
        f"reminder {reminder.pk}": "It stopped the worker.",
        f"reminder {others.pk}": "It could not be fired.",
    }
    assert f"reminder {reminder.pk}" in text("why", "--account", reminder.account.label)
    assert f"reminder {reminder.pk}" not in text("why", "--account", others.account.label)
    assert {row["title"]: row["problem"] for row in data("reminder", "list")["reminders"]}["Water"] == ""
    assert "It stopped the worker." in text("reminder", "list")


def test_locks_need_room_for_the_lanes_of_other_machines_too():
    assert diagnosis.locks().state == diagnosis.OK
    DriverFactory.create(host="another", lanes=10_000_000, beat_at=timezone.now())
    assert diagnosis.locks().state == diagnosis.FAILED


@pytest.mark.parametrize(
    ("seconds", "fault", "says"),
    [
        pytest.param(29, None, "what providers answered is stored", id="under way"),
        pytest.param(
            31, None, "result of 1 message, and nothing more is sent until it does: it would take it now", id="late"
        ),
        pytest.param(31, Fault(RESULTS), "until it does: No space left on device", id="full disk"),
    ],
)
def test_doctor_says_why_results_are_not_stored(seconds: int, fault: Fault | None, says: str):
    claimed_at = timezone.now() - timedelta(seconds=seconds)
    target = RunTargetFactory.create(status="sending", claim_epoch=1, claimed_at=claimed_at)
    if fault:
        fault.begin()
    verdict = diagnosis.results()
    assert says in verdict.text
    assert (verdict.state, bool(verdict.hint)) == ((diagnosis.FAILED, True) if seconds > 30 else (diagnosis.OK, False))
    target.refresh_from_db()
    assert (target.status, Activity.objects.count()) == ("sending", 0)


# --- retention ----------------------------------------------------------------------------------------------


@pytest.fixture
def old_and_new():
    long_ago = timezone.now() - timedelta(days=400)
    old = RunFactory.create(targets={"sent": 2}, scheduled_for=long_ago)
    Run.objects.filter(pk=old.pk).update(status="success", finished_at=long_ago)
    ActivityFactory(account=old.account, run_target=old.targets.first(), at=long_ago)
    NotificationFactory(created_at=long_ago)
    paused = RunFactory.create(status="paused", pause_reason="operator", finished_at=long_ago)
    recent = RunFactory.create(status="success", finished_at=timezone.now())
    return {paused.pk, recent.pk}


def test_retention_deletes_what_is_old_and_finished(old_and_new):
    counted = data("retention", "--dry-run")
    assert (counted["runs"], counted["targets"], counted["activity"], counted["notifications"]) == (1, 2, 1, 1)
    done = data("retention")
    assert {word: done[word] for word in ("runs", "targets", "activity", "notifications")} == {
        word: counted[word] for word in ("runs", "targets", "activity", "notifications")
    }
    assert set(Run.objects.values_list("pk", flat=True)) == old_and_new
    assert data("retention")["runs"] == 0


def test_retention_does_not_search_all_activity_for_every_run():
    long_ago = timezone.now() - timedelta(days=400)
    for _ in range(6):
        run = RunFactory.create(targets={"sent": 2}, scheduled_for=long_ago)
        Run.objects.filter(pk=run.pk).update(status="success", finished_at=long_ago)
        ActivityFactory(account=run.account, run_target=run.targets.first())
    before = scans("fanout_activity")
    assert data("retention")["runs"] == 6
    assert scans("fanout_activity") - before <= 2
    # What the account did lately goes on counting, and the books are still in order.
    assert Activity.objects.count() == 6
    assert data("limits") == {"violations": [], "repaired": []}


def test_retention_clears_sessions_that_ended_and_old_failed_logins(db):
    now, old = timezone.now(), timezone.now() - timedelta(days=400)
    for name, ends in (("over", now - timedelta(hours=1)), ("live", now + timedelta(hours=1))):
        Session.objects.create(session_key=name, session_data="x", expire_date=ends)
    for name, at in (("old", old), ("new", now)):
        attempt = AccessAttempt.objects.create(username=name, ip_address="203.0.113.1", failures_since_start=1)
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=at)
    assert (data("retention", "--dry-run")["sessions"], Session.objects.count()) == (1, 2)
    done = data("retention")
    assert (done["sessions"], done["lockouts"]) == (1, 1)
    assert (Session.objects.get().pk, AccessAttempt.objects.get().username) == ("live", "new")


def test_retention_of_what_providers_reported(settings):
    settings.INBOUND_KEEP_DAYS, settings.REPLY_TEXT_KEEP_DAYS = 100, 10
    ages = {"young": 5, "older": 50, "old": 200}
    for key, days in ages.items():
        for state in ("done", "new"):
            came = timezone.now() - timedelta(days=days)
            InboundEventFactory(key=f"{key} {state}", state=state, came_at=came, words={"text": key})
    counted = data("retention", "--dry-run")
    assert (counted["reports"], counted["texts"]) == (1, 2)
    done = data("retention")
    assert (done["reports"], done["texts"]) == (1, 1), "what is deleted needs no blanking"
    assert {event.key: event.text for event in InboundEvent.objects.all()} == {
        "young done": "young",
        "older done": "",
        "young new": "young",
        "older new": "older",
        "old new": "old",
    }


def retention_beside(change: Callable[[], object]) -> dict[str, Any]:
    """What `retention` answers that has listed everything before the change, and waits for its commit."""
    answers: list[dict[str, Any]] = []

    def retain() -> None:
        try:
            answers.append(data("retention"))
        finally:
            connection.close()

    thread = threading.Thread(target=retain)
    with transaction.atomic(), psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as watcher:
        change()
        thread.start()
        wait_until(lambda: waits(watcher) or not thread.is_alive())
        assert thread.is_alive(), "it did not meet the change"
    thread.join(30)
    return answers[0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("which", ["the run", "its Message 2"])
def test_retention_leaves_a_run_that_goes_on_at_this_moment(which):
    long_ago = timezone.now() - timedelta(days=400)
    run = RunFactory.create(targets={"sent": 1, "failed": 2}, scheduled_for=long_ago)
    child = RunFactory.create(answers=run, targets={"sent": 1, "failed": 2}, scheduled_for=long_ago)
    other = RunFactory.create(targets={"sent": 1}, scheduled_for=long_ago)
    Run.objects.update(status="partial", finished_at=long_ago)
    going_on = run if which == "the run" else child
    going_on.refresh_from_db()
    answer = retention_beside(lambda: settling.retry_failed(going_on, None, timezone.now()))
    # Without the one that goes on; a Message 1 stays with its Message 2.
    assert (answer["runs"], answer["targets"]) == ((2, 4) if which == "the run" else (1, 1))
    assert not Run.objects.filter(pk=other.pk).exists()
    going_on.refresh_from_db()
    assert (going_on.status, going_on.pending, going_on.total) == ("queued", 2, 3)
    assert Run.objects.filter(pk=run.pk).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("word", ["sessions", "lockouts", "reports", "texts"])
def test_retention_leaves_what_is_used_again_at_this_moment(settings, word):
    settings.INBOUND_KEEP_DAYS = 100 if word == "reports" else 1000
    now, old = timezone.now(), timezone.now() - timedelta(days=400)
    Session.objects.create(session_key="renewed", session_data="x", expire_date=old)
    AccessAttempt.objects.create(username="anna", ip_address="203.0.113.1", failures_since_start=1)
    AccessAttempt.objects.update(attempt_time=old)
    InboundEventFactory(state="failed", came_at=old, words={"text": "yes"})
    changes = {
        "sessions": lambda: Session.objects.update(expire_date=now + timedelta(hours=1)),
        "lockouts": lambda: AccessAttempt.objects.update(attempt_time=now),
        "reports": lambda: InboundEvent.objects.update(state="new"),
        "texts": lambda: InboundEvent.objects.update(state="new"),
    }
    answer = retention_beside(changes[word])
    assert answer[word] == 0
    kept = {"sessions": Session, "lockouts": AccessAttempt}.get(word, InboundEvent)
    assert kept._default_manager.count() == 1
    if word == "texts":
        assert InboundEvent.objects.get().text == "yes"


def test_replies_get_the_new_key_too(settings):
    event = InboundEventFactory.create(words={"text": "yes"})
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode(), *settings.CREDENTIAL_KEYS]
    assert data("rotate_keys")["rotated"] >= 1
    settings.CREDENTIAL_KEYS = settings.CREDENTIAL_KEYS[:1]
    event.refresh_from_db()
    assert event.text == "yes"


def test_retention_is_bounded(old_and_new):
    assert "at least 30" in bad_input("retention", "--days", "5")
    assert "--days takes a whole number from 30 to 36500" in bad_input("retention", "--days", "999999")
    assert "--most-runs" in bad_input("retention", "--most-runs", "0")


# --- keys ---------------------------------------------------------------------------------------------------


def test_credentials_move_to_the_first_key(settings):
    accounts = [AccountFactory.create(credentials={"key": f"s{n}"}) for n in range(3)]
    new = Fernet.generate_key().decode()
    settings.CREDENTIAL_KEYS = [new, *settings.CREDENTIAL_KEYS]
    assert data("rotate_keys", "--dry-run")["rotated"] == 3
    assert data("rotate_keys", "--batch", "2") == {
        "rotated": 3,
        "current": 0,
        "unreadable": 0,
        "changed": 0,
        "dry_run": False,
    }
    settings.CREDENTIAL_KEYS = [new]
    assert [dict(Account.objects.get(pk=a.pk).credentials) for a in accounts] == [{"key": f"s{n}"} for n in range(3)]
    assert data("rotate_keys")["current"] == 3


def test_credentials_under_a_lost_key_are_told(settings):
    AccountFactory(credentials={"key": "x"})
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert "fit none of the keys" in not_done("rotate_keys")


def test_a_new_key_is_usable():
    Fernet(data("rotate_keys", "--generate")["key"])
    assert "--batch" in bad_input("rotate_keys", "--batch", "0")


# --- forecast and why ---------------------------------------------------------------------------------------


def test_forecast_of_a_reminder_and_a_run():
    ReminderFactory(title="Market", targets=3)
    found = data("forecast", "Market")
    assert {"ends_at", "fits", "bound_by", "days", "sentence"} <= set(found)
    run = RunFactory.create(targets={"pending": 2}, status="running")
    assert "2 groups" in text("forecast", "--run", str(run.pk))
    assert "Name either" in bad_input("forecast")


def test_why_says_what_binds():
    run = RunFactory.create(targets={"pending": 1}, status="running")
    AccountFactory(label="Banned", status="suspended", status_reason="too fast")
    lines = {line["label"]: line["why"] for line in data("why")["why"]}
    assert lines["Banned"] == "account suspended: too fast"
    assert "no driver is alive" in lines[run.title]
    assert [line["what"] for line in data("why", "--run", str(run.pk))["why"]] == [f"run {run.pk}"]
    assert len(data("why", "--account", run.account.label)["why"]) == 2
    assert "Name either" in bad_input("why", "--run", "1", "--account", "x")
    assert "named by its number" in bad_input("why", "--run", "²")


def test_limits_look_back_a_century_at_most():
    assert "--days takes a whole number from 1 to 36500" in bad_input("limits", "--days", "999999999")


# --- demo data ----------------------------------------------------------------------------------------------


def test_demo_data_is_made_once_and_one_run_is_live():
    assert "9 past runs" in text("demo_data")
    counts = {model: model.objects.count() for model in (Account, Run, RunTarget, Activity)}
    assert "still going out" in text("demo_data")
    assert {model: model.objects.count() for model in counts} == counts
    statuses = set(Run.objects.values_list("status", flat=True))
    assert statuses == {"success", "partial", "paused", "failed", "skipped", "queued"}
    assert data("limits") == {"violations": [], "repaired": []}
