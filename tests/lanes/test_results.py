"""Results per day: kept by triggers, right after retries and corrections, and equal to the provider's book."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from accounts import access
from accounts.channels.sandbox.script import Script
from fanout.database import execute
from fanout.lanes import results
from fanout.lanes.results import NAMES, Result, Span
from fanout.models import Run, RunTarget
from fanout.ops import audit
from tests.engine.stage import MONDAY, Stage
from tests.factories import AccountFactory, RunFactory, RunTargetFactory, UserFactory

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = NOON.date()
LONG = Span(date(2020, 1, 1), date(2030, 1, 1))
TIMES = {"received": "delivered_at", "read": "read_at", "replied": "replied_at", "opted_out": "opted_out_at"}


def truth() -> dict[tuple[int, int, date], Result]:
    """Counted in Python, target by target."""
    counts: Counter[tuple[tuple[int, int, date], str]] = Counter()
    for target in RunTarget.objects.select_related("run"):
        settled = target.settled_at or target.claimed_at
        happened = {target.status: settled} if target.status in ("sent", "failed") else {}
        if target.status == "sent":
            happened |= {name: getattr(target, column) for name, column in TIMES.items()}
        for name, at in happened.items():
            if at is not None:
                day = at.astimezone(ZoneInfo(target.run.timezone)).date()
                counts[(target.run_id, target.account_id, day), name] += 1
    keys = {key for key, _ in counts}
    return {key: Result(**{name: counts[key, name] for name in NAMES}) for key in keys}


def kept() -> dict[tuple[int, int, date], Result]:
    rows = execute(f"SELECT run_id, account_id, day, {results.SUMS} FROM fanout_day d GROUP BY 1, 2, 3", {})
    found = {(row["run_id"], row["account_id"], row["day"]): results._result(row) for row in rows}
    return {key: one for key, one in found.items() if one != Result()}


def any_time(dice: random.Random) -> datetime:
    return NOON + timedelta(hours=dice.randrange(-60, 60))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_changes_the_days_add_up(seed: int) -> None:
    dice = random.Random(seed)
    accounts = [AccountFactory.create() for _ in range(2)]
    runs = [
        RunFactory.create(reminder__account=accounts[n % 2], status="running", timezone=zone)
        for n, zone in enumerate(("UTC", "Asia/Kuala_Lumpur", "America/Los_Angeles"))
    ]
    for _ in range(12):
        RunTargetFactory.create(run=dice.choice(runs), status=dice.choice(["pending", "sent"]), settled_at=NOON)
    for _ in range(60):
        ids = list(RunTarget.objects.values_list("pk", flat=True))
        some = RunTarget.objects.filter(pk__in=dice.sample(ids, min(len(ids), dice.randrange(1, 5))))
        match dice.randrange(7):
            case 0:
                some.update(status=dice.choice(["sent", "failed"]), settled_at=any_time(dice))
            case 1:  # a retry
                some.update(status="pending", settled_at=None)
            case 2:
                some.update(**{dice.choice([*TIMES.values()]): any_time(dice)})
            case 3:  # an offload
                some.update(account=dice.choice(accounts))
            case 4:
                some.update(status="sending", claimed_at=any_time(dice))
            case 5 if len(ids) > 6:
                some.delete()
            case _:
                results.fold(NOON)
        assert kept() == truth()
    assert audit.wrong_days(NOON - timedelta(days=9999), NOON) == []


def test_a_day_is_one_of_the_runs_own_calendar() -> None:
    late = datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
    for zone in ("UTC", "Asia/Kuala_Lumpur"):
        RunTargetFactory.create(run=RunFactory.create(timezone=zone), status="sent", settled_at=late)
    days = {day: one.sent for day, one in results.by_day(Span(TODAY, TODAY + timedelta(days=1))).items()}
    assert days == {TODAY: 1, TODAY + timedelta(days=1): 1}


def test_deleted_runs_leave_nothing() -> None:
    run = RunFactory.create()
    RunTargetFactory.create(run=run, status="sent", settled_at=NOON)
    results.fold(NOON)
    run.targets.all().delete()
    run.delete()
    results.fold(NOON)
    assert execute("SELECT * FROM fanout_dayresult", {}) == execute("SELECT * FROM fanout_daychange", {}) == []


def test_wrong_days_are_found_and_counted_again() -> None:
    run = RunFactory.create(status="success", scheduled_for=NOON)
    RunTargetFactory.create(run=run, status="sent", settled_at=NOON, read_at=NOON)
    results.fold(NOON)
    execute("UPDATE fanout_dayresult SET sent = 7", {})
    (violation,) = audit.wrong_days(NOON - timedelta(days=1), NOON)
    assert "its days say 7 sent, 1 read, it has 1 sent, 1 read." in violation.text
    audit.count_days([violation], NOON)
    assert kept() == truth()


def test_by_account_reminder_and_run() -> None:
    one, other = AccountFactory.create(), AccountFactory.create()
    run = RunFactory.create(reminder__account=one)
    for account, fields in ((one, {"read_at": NOON}), (one, {}), (other, {"replied_at": NOON})):
        RunTargetFactory.create(run=run, account=account, status="sent", settled_at=NOON, **fields)
    assert {pk: result.sent for pk, result in results.by_account(LONG).items()} == {one.pk: 2, other.pk: 1}
    (reminder,) = results.by_reminder(LONG).values()
    assert reminder == Result(sent=3, read=1, replied=1)
    assert results.whole(results.of_runs([run.pk])[run.pk]) == reminder == results.total(LONG)
    assert results.total(Span(LONG.first, LONG.last, account=other.pk)) == Result(sent=1, replied=1)
    assert results.total(Span(LONG.first, LONG.last, reminder=run.reminder_id + 1)) == Result()
    assert reminder.per_thousand("replied") == pytest.approx(333.3, abs=0.1)


def test_tests_do_not_count_and_others_runs_are_theirs() -> None:
    mine, theirs = RunFactory.create(), RunFactory.create()
    for run in (mine, theirs, RunFactory.create(is_test=True)):
        RunTargetFactory.create(run=run, status="sent", settled_at=NOON)
    assert results.total(LONG).sent == 2
    seen: Any = access.visible(mine.owner, Run.objects.all())
    assert results.total(Span(LONG.first, LONG.last, seen)).sent == 1
    stranger: Any = access.visible(UserFactory.create(), Run.objects.all())
    assert results.total(Span(LONG.first, LONG.last, stranger)) == Result()


def test_they_agree_with_the_providers_book(stage: Stage) -> None:
    """With refusals, retries and two accounts."""
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"first": 4}, "effect": "content_rejected"}]}}))
    runs = [stage.fire(stage.reminder(stage.account(label=label), groups=30)) for label in ("one", "other")]
    stage.play()
    sent = len(stage.book.deliveries())
    assert sent
    assert results.total(Span(MONDAY.date(), MONDAY.date() + timedelta(days=2))).sent == sent
    assert kept() == truth()
    assert sum(results.whole(days).sent for days in results.of_runs(run.pk for run in runs).values()) == sent


def test_one_account_reads_its_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT * FROM fanout_day WHERE account_id = 1 AND day > '2026-01-01'")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "fanout_dayresult_account" in plan
