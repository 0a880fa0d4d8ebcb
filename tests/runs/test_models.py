"""Constraints and triggers of the database: balanced books, one run per moment, one target per run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from accounts.models import Account
from fanout.models import Run, RunTarget
from tests.factories import (
    AccountFactory,
    ClusterBeatFactory,
    DailyLimitFactory,
    MediaUploadFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db

COUNTERS = ("pending", "sending", "sent", "failed", "skipped", "unconfirmed")


def refused(constraint: str, write: Callable[[], Any]) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        write()


def books(run: Run) -> dict[str, int]:
    run.refresh_from_db()
    assert run.total == sum(getattr(run, word) for word in COUNTERS)
    return {word: getattr(run, word) for word in COUNTERS if getattr(run, word)}


def test_the_trigger_counts_what_is_inserted_changed_and_deleted():
    run = RunFactory.create(targets={"pending": 3})
    assert books(run) == {"pending": 3}
    run.targets.update(status="sent")
    assert books(run) == {"sent": 3}
    run.targets.filter(position=run.targets.earliest("position").position).delete()
    assert books(run) == {"sent": 2}


def test_one_statement_may_change_several_runs():
    first, second = RunFactory.create(targets={"pending": 2}), RunFactory.create(targets={"pending": 1})
    RunTarget.objects.update(status="failed")
    assert (books(first), books(second)) == ({"failed": 2}, {"failed": 1})


def test_the_first_claim_is_the_first_attempt():
    run = RunFactory.create(targets={"pending": 2})
    first = timezone.now()
    for target, at in zip(run.targets.all(), (first, first + timedelta(seconds=5))):
        RunTarget.objects.filter(pk=target.pk).update(status="sending", claimed_at=at)
    run.refresh_from_db()
    assert run.first_attempt_at == first


def test_a_finished_run_with_something_to_send_again_is_running():
    run = RunFactory.create(targets={"failed": 1}, status="failed")
    run.targets.update(status="pending")
    run.refresh_from_db()
    assert run.status == Run.Status.RUNNING


def test_no_hand_can_make_the_books_wrong():
    run = RunFactory.create(targets={"pending": 2})
    refused("run_books_balance", lambda: Run.objects.filter(pk=run.pk).update(sent=1))


@pytest.mark.parametrize("status", ["success", "partial", "failed"])
@pytest.mark.parametrize("left", ["pending", "sending"])
def test_a_run_is_finished_only_when_nothing_is_left(status, left):
    run = RunFactory.create(targets={left: 1, "sent": 1})
    refused("run_finished_means_settled", lambda: Run.objects.filter(pk=run.pk).update(status=status))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"status": "paused"}, id="paused without reason"),
        pytest.param({"status": "running", "pause_reason": "operator"}, id="reason without pause"),
    ],
)
def test_paused_and_reason_go_together(fields):
    run = RunFactory.create()
    refused("run_paused_has_reason", lambda: Run.objects.filter(pk=run.pk).update(**fields))


@pytest.mark.parametrize(("start", "end"), [(22, 6), (6, 25), (9, 9)])
def test_a_frozen_window_lies_within_one_day(start, end):
    run = RunFactory.create()
    window = {"window_start_hour": start, "window_end_hour": end}
    refused("run_window_in_one_day", lambda: Run.objects.filter(pk=run.pk).update(**window))


def test_one_run_per_reminder_and_moment():
    run = RunFactory.create()
    refused("run_once_per_moment", lambda: RunFactory(reminder=run.reminder, scheduled_for=run.scheduled_for))


def test_one_target_per_run_and_recipient():
    target = RunTargetFactory.create()
    refused("target_once_per_run", lambda: RunTargetFactory(run=target.run, recipient=target.recipient))


def test_a_target_has_a_known_status():
    refused("target_status_known", lambda: RunTargetFactory(status="lost"))


def test_one_upload_per_account_and_file():
    upload = MediaUploadFactory.create()
    refused("upload_once_per_account", lambda: MediaUploadFactory(account=upload.account, sha256=upload.sha256))


def test_one_beat_per_cluster_and_host():
    ClusterBeatFactory()
    refused("cluster_beat_once", ClusterBeatFactory)


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        pytest.param({"status": "asleep"}, "account_status_known", id="status"),
        pytest.param({"hours_start": 18, "hours_end": 9}, "account_hours_in_order", id="hours turned round"),
        pytest.param({"hours_start": 9, "hours_end": 25}, "account_hours_in_order", id="25 hours"),
        pytest.param({"min_gap_seconds": 9, "max_gap_seconds": 1}, "account_gap_in_order", id="gap turned round"),
    ],
)
def test_an_account_is_in_order(fields, constraint):
    account = AccountFactory.create()
    refused(constraint, lambda: Account.objects.filter(pk=account.pk).update(**fields))


def test_labels_and_limits_are_once_per_account():
    account = AccountFactory.create()
    refused("account_label_once_per_owner", lambda: AccountFactory(owner=account.owner, label=account.label))
    limit = DailyLimitFactory.create()
    refused("daily_limit_once_per_action", lambda: DailyLimitFactory(account=limit.account))


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
EARLIER = NOW - timedelta(hours=1)
JUDGED = {"success", "partial", "failed"}
case = pytest.param


def make_beside(status: str = "running", **fields: Any) -> Run:
    """Make a run, and another one beside it that no statement may change."""
    RunFactory.create(scheduled_for=NOW, status="waiting", waiting_why="beside", lanes=[1, 2])
    reason = "operator" if status == "paused" else ""
    run: Run = RunFactory.create(**{"scheduled_for": NOW, "status": status, "pause_reason": reason} | fields)
    return run


def reread(run: Run) -> Run:
    beside = Run.objects.exclude(pk=run.pk).get()
    assert (beside.status, beside.waiting_why, beside.lanes, beside.total) == ("waiting", "beside", [1, 2], 0)
    return Run.objects.get(pk=run.pk)


BOOKS = ("pending", "sending", "sent", "failed", "skipped", "unconfirmed")


def counters_of(run: Run) -> dict[str, int]:
    run = reread(run)
    counted = {status: getattr(run, status) for status in BOOKS}
    assert run.total == sum(counted.values())
    return {status: n for status, n in counted.items() if n}


@pytest.mark.parametrize("status", BOOKS)
def test_every_status_has_its_counter(status: str) -> None:
    run = make_beside(targets={status: 2})
    assert counters_of(run) == {status: 2}
    run.targets.all()[0].delete()
    assert counters_of(run) == {status: 1}


@pytest.mark.parametrize("after", BOOKS[1:])
def test_a_change_of_status_moves_one_from_counter_to_counter(after: str) -> None:
    run = make_beside(targets={"pending": 3})
    RunTarget.objects.filter(pk=run.targets.all()[0].pk).update(status=after)
    assert counters_of(run) == {"pending": 2, after: 1}


def version(run: Run) -> str:
    """Where the row lies: another place with every update."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text FROM fanout_run WHERE id = %s", [run.pk])
        return str(cursor.fetchone()[0])


def test_a_change_of_no_status_leaves_the_run_alone() -> None:
    """Every delivery would write its run once more."""
    run = make_beside(targets={"sending": 2})
    before = version(run)
    run.targets.update(latency_ms=80)
    assert version(run) == before
    run.targets.update(status="sent")
    assert version(run) != before


def test_targets_of_several_runs_change_in_one_statement() -> None:
    one = RunFactory.create(scheduled_for=NOW, targets={"pending": 2})
    two = RunFactory.create(scheduled_for=NOW, targets={"pending": 1, "sent": 1})
    RunTarget.objects.filter(status="pending").update(status="skipped")
    one.refresh_from_db()
    two.refresh_from_db()
    assert (one.skipped, one.pending, two.skipped, two.sent, two.pending) == (2, 0, 1, 1, 0)


def test_the_first_attempt_is_the_earliest_claim_and_stays() -> None:
    run = make_beside(targets={"pending": 3})
    first, second, third = run.targets.order_by("pk")
    RunTarget.objects.filter(pk=first.pk).update(status="skipped", claimed_at=EARLIER)
    assert reread(run).first_attempt_at is None
    RunTarget.objects.filter(pk=second.pk).update(status="sending", claimed_at=NOW)
    RunTarget.objects.filter(pk=third.pk).update(status="sending", claimed_at=EARLIER)
    assert reread(run).first_attempt_at == NOW


@pytest.mark.parametrize(
    ("status", "left", "after"),
    [
        *(case(status, "pending", "running", id=f"{status}-pending") for status in sorted(JUDGED)),
        case("success", "sending", "running", id="success-sending"),
        case("success", "unconfirmed", "success", id="success-unconfirmed"),
        case("paused", "pending", "paused", id="paused"),
        case("canceled", "pending", "canceled", id="canceled"),
    ],
)
def test_a_finished_run_with_something_to_send_is_not_finished(status: str, left: str, after: str) -> None:
    run = make_beside(status, targets={"sent": 2})
    RunTarget.objects.filter(pk=run.targets.all()[0].pk).update(status=left)
    assert reread(run).status == after
