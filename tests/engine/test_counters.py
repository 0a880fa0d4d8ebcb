"""Counters of runs that are written many times a second: appended, and folded into the run's row once a second."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from fanout.database import LOCK_RUNS, conninfo, execute
from fanout.engine.commit import Result
from fanout.engine.counters import AGAIN_WITHIN, COUNT_EVERY, FOLD, FOLD_ALL, HotRuns
from fanout.engine.ledger import Ledger
from fanout.models import Run, RunTarget
from fanout.ops import audit, tasks
from tests.engine.ledgers import EPOCH, NOW, TestsOwnLink, lane_write, ledger_in_test, with_ledger
from tests.engine.stage import fresh
from tests.factories import RunFactory, RunTargetFactory

__all__ = ["ledger_in_test"]

WORDS = ("pending", "sending", "sent", "failed", "skipped", "unconfirmed")


# --- which runs are hot -----------------------------------------------------------------------------------


def test_a_run_is_hot_at_its_third_change_within_a_moment() -> None:
    runs = HotRuns()
    assert runs.among([1, 2], 10.0) == []
    runs.written([1, 2], [], 10.0)
    assert runs.among([1, 2], 10.0) == []
    runs.written([1], [], 10.0 + AGAIN_WITHIN / 2)
    assert runs.among([1, 2, 3], 10.0 + AGAIN_WITHIN / 2) == [1]
    assert runs.among([1, 2], 10.0 + AGAIN_WITHIN) == []


def test_a_run_at_a_pace_is_never_hot() -> None:
    """Its claim and its answer are changes of their own, which nothing has to fold."""
    runs = HotRuns()
    for claimed_at in (10.0, 11.5, 13.0):
        for now in (claimed_at, claimed_at + 0.15):
            assert runs.among([1], now) == []
            runs.written([1], [], now)
            assert runs.due(now) == []


def test_a_hot_run_is_counted_once_a_second() -> None:
    runs, now, counted = HotRuns(), 10.0, []
    for step in range(300):  # three seconds, a hundred commits each
        now = 10.0 + step / 100
        hot = runs.among([1], now)
        if not hot:
            counted.append(now)
        runs.written([1], hot, now)
    assert len(counted) == 4  # the first two changes, then once a second
    assert runs.due(now) == []
    assert runs.due(counted[-1] + COUNT_EVERY) == [1]
    runs.counted([1], now + COUNT_EVERY)
    assert runs.due(now + 2 * COUNT_EVERY) == []


def test_runs_at_rest_are_forgotten() -> None:
    runs = HotRuns()
    runs.written(range(1000), [], 10.0)
    runs.due(10.0 + COUNT_EVERY)
    assert (runs._changed, runs._counted) == ({}, {})


# --- the database's side ----------------------------------------------------------------------------------


@pytest.fixture
def run(db: None) -> Run:
    run: Run = RunFactory.create(status="running")
    RunTargetFactory.create_batch(10, run=run)
    return fresh(run)


def hot(run: Run, status: str, targets: int = 1, before: str = "pending") -> None:
    """Change targets as a driver does that writes this run many times a second."""
    execute("SELECT set_config('crier.hot_runs', %(runs)s, true)", {"runs": f"{{{run.pk}}}"})
    ids = list(run.targets.filter(status=before).values_list("pk", flat=True)[:targets])
    changed = RunTarget.objects.filter(pk__in=ids).update(status=status, claimed_at=NOW)
    assert changed == targets
    execute("SELECT set_config('crier.hot_runs', '', true)", {})


def stored(run: Run) -> dict[str, int]:
    row = Run.objects.values(*WORDS).get(pk=run.pk)
    return {word: n for word, n in row.items() if n}


def test_changes_of_a_hot_run_are_appended_and_folded_later(run: Run) -> None:
    hot(run, "sending", 3)
    hot(run, "sent", 2, before="sending")
    assert stored(run) == {"pending": 10}
    execute(FOLD, {"runs": [run.pk]})
    assert stored(run) == {"pending": 7, "sending": 1, "sent": 2}
    assert fresh(run).first_attempt_at == NOW
    execute(FOLD, {"runs": [run.pk]})
    assert stored(run) == {"pending": 7, "sending": 1, "sent": 2}


def count_elsewhere(run: Run) -> None:
    RunTarget.objects.filter(pk=run.targets.filter(status="pending").values_list("pk", flat=True)[0]).update(
        status="skipped"
    )


def add_one(run: Run) -> None:
    RunTargetFactory.create(run=run)


def delete_one(run: Run) -> None:
    run.targets.filter(pk=run.targets.filter(status="pending").values_list("pk", flat=True)[0]).delete()


def lock(run: Run) -> None:
    execute(LOCK_RUNS, {"runs": [run.pk]})


def pause(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(status="paused", pause_reason="operator")


def minute(run: Run) -> None:
    tasks.count_appended(NOW)


@pytest.mark.parametrize(
    ("what", "counts"),
    [
        (count_elsewhere, {"pending": 6, "sending": 3, "skipped": 1}),
        (add_one, {"pending": 8, "sending": 3}),
        (delete_one, {"pending": 6, "sending": 3}),
        (lock, {"pending": 7, "sending": 3}),
        (pause, {"pending": 7, "sending": 3}),
        (minute, {"pending": 7, "sending": 3}),
    ],
)
def test_every_other_session_counts_what_was_appended(run: Run, what: Any, counts: dict[str, int]) -> None:
    hot(run, "sending", 3)
    what(run)
    assert stored(run) == counts
    assert execute("SELECT 1 FROM fanout_runchange WHERE run_id = %(run)s", {"run": run.pk}) == []


@pytest.mark.parametrize("status", ["paused", "canceled", "queued"])
def test_a_run_that_is_not_running_is_counted_at_once(run: Run, status: str) -> None:
    Run.objects.filter(pk=run.pk).update(status=status, pause_reason="operator" if status == "paused" else "")
    hot(run, "sending", 1)
    assert stored(run) == {"pending": 9, "sending": 1}


def test_a_late_result_of_a_finished_run_is_counted_at_once(run: Run) -> None:
    run.targets.update(status="unconfirmed")
    Run.objects.filter(pk=run.pk).update(status="failed")
    hot(run, "pending", 1, before="unconfirmed")
    assert (stored(run), fresh(run).status) == ({"pending": 1, "unconfirmed": 9}, "running")


def test_the_audit_knows_what_was_appended(run: Run) -> None:
    hot(run, "sending", 3)
    assert audit.wrong_counters(run.scheduled_for, NOW) == []
    execute("DELETE FROM fanout_runchange", {})
    assert audit.wrong_counters(run.scheduled_for + timedelta(seconds=1), NOW) == []  # asked about later runs only
    (violation,) = audit.wrong_counters(run.scheduled_for, NOW)
    hot(run, "sent", 1, before="sending")
    audit.set_counters([violation], NOW)
    assert stored(run) == {"pending": 7, "sending": 2, "sent": 1}
    assert audit.wrong_counters(run.scheduled_for, NOW) == []


@pytest.mark.usefixtures("ledger_in_test")
def test_a_ledger_appends_and_counts_at_its_end(run: Run) -> None:
    """The first commit is counted at once, the last when the ledger stops."""
    run.targets.update(status="sending", claim_epoch=EPOCH, claimed_at=NOW)
    targets, link, seen = list(run.targets.all()), TestsOwnLink(), []

    async def work(ledger: Ledger) -> None:
        for target in targets:
            one = Result(target.pk, run.pk, target.account_id, EPOCH, NOW, "sent", 1, 1, NOW, action="message")
            await ledger.record(one, lane_write(target.account_id))
            (row,) = await link.query("SELECT sent FROM fanout_run WHERE id = %s", (run.pk,))
            seen.append(row["sent"])

    with_ledger(work, link)
    assert seen[0] == 1
    assert len(set(seen)) < len(seen)  # more than one where a second has passed
    assert stored(run) == {"sent": 10}


@pytest.mark.django_db(transaction=True)
def test_a_run_that_another_session_has_locked_is_counted_later() -> None:
    free, locked = (RunFactory.create(status="running") for _ in range(2))
    with psycopg.connect(conninfo(connection.settings_dict)) as session:
        session.execute("SELECT 1 FROM fanout_run WHERE id = %s FOR NO KEY UPDATE", [locked.pk])
        (row,) = execute(FOLD, {"runs": [free.pk, locked.pk]})
        assert row["ids"] == [free.pk]
        assert execute(FOLD, {"runs": [locked.pk]}) == []


@pytest.mark.django_db(transaction=True)
def test_the_books_balance_at_every_commit() -> None:
    """Two sessions that append, two that count at once, one that locks and one that changes the status, together; a
    seventh looks at every moment."""
    runs = [RunFactory.create(status="running") for _ in range(3)]
    for run in runs:
        RunTargetFactory.create_batch(12, run=run)
    ids, ends, errors = [run.pk for run in runs], time.monotonic() + 1.5, []
    looks = 0

    def session(seed: int, hot: bool) -> None:
        rng = random.Random(seed)
        try:
            with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as link:
                while time.monotonic() < ends:
                    chosen = sorted(rng.sample(ids, rng.choice([1, 2])))
                    with link.transaction():
                        link.execute(
                            "SELECT 1 FROM fanout_run WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [chosen]
                        )
                        if hot:
                            link.execute("SELECT set_config('crier.hot_runs', %s, true)", [f"{{{chosen[0]}}}"])
                        for _ in range(2):
                            link.execute(
                                "UPDATE fanout_runtarget SET status = %s WHERE id = ANY(ARRAY(SELECT id"
                                " FROM fanout_runtarget WHERE run_id = ANY(%s) ORDER BY random() LIMIT 3))",
                                [rng.choice(WORDS), chosen],
                            )
        except Exception as error:
            errors.append(error)

    def other(statement: str) -> None:
        rng = random.Random(statement)
        try:
            with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as link:
                while time.monotonic() < ends:
                    link.execute(statement, {"runs": [rng.choice(ids)], "run": rng.choice(ids)})
        except Exception as error:
            errors.append(error)

    changing = (
        "UPDATE fanout_run SET status = CASE status WHEN 'running' THEN 'waiting' ELSE 'running' END WHERE id = %(run)s"
    )
    threads = [threading.Thread(target=session, args=(seed, seed < 2)) for seed in range(4)]
    threads += [threading.Thread(target=other, args=(statement,)) for statement in (LOCK_RUNS, FOLD_ALL, changing)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert audit._rows(audit.REAL_COUNTS, [runs[0].scheduled_for]) == []
        looks += 1
    assert errors == []
    assert looks > 10
    execute(FOLD_ALL, {})
    for run in runs:
        assert {word: run.targets.filter(status=word).count() for word in WORDS if stored(run).get(word)} == stored(run)
