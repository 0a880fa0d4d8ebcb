"""Waking lanes: what a lane and its drivers see of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.database import execute
from fanout.lanes.lane_rows import (
    LATEST_PROGRESS,
    lock_lanes,
    probe_statement,
    wake_after_clock_change,
    wake_after_outage,
    wake_lanes,
    wake_lanes_at,
)
from fanout.models import LaneState
from tests.factories import AccountFactory, LaneStateFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
case = pytest.param


def test_the_first_waking_makes_the_lane() -> None:
    account = AccountFactory.create()
    wake_lanes([account.pk], NOW)
    lane = LaneState.objects.get()
    assert (lane.account_id, lane.epoch, lane.holder, lane.wake_count, lane.due_at) == (account.pk, 0, "", 1, NOW)
    assert (lane.batch_sent, lane.slow_factor, lane.sample, lane.probing, lane.crashes) == (0, 1.0, "", False, 0)
    assert (lane.why, lane.progress_at) == ("", NOW)


@pytest.mark.parametrize(
    ("stored", "due"),
    [
        case(None, NOW, id="nothing-due"),
        case(NOW + HOUR, NOW, id="sooner"),
        case(NOW - HOUR, NOW - HOUR, id="due-already"),
    ],
)
def test_a_lane_is_due_at_the_earlier_moment(stored: datetime | None, due: datetime) -> None:
    lane = LaneStateFactory.create(due_at=stored, wake_count=4, crashes=2, sample="ee")
    beside = LaneStateFactory.create()
    wake_lanes([lane.account_id], NOW)
    lane.refresh_from_db()
    assert (lane.wake_count, lane.due_at, lane.progress_at) == (5, due, NOW)
    assert (lane.probing, lane.crashes, lane.sample) == (False, 2, "ee"), "waking forgets nothing"
    beside.refresh_from_db()
    assert (beside.wake_count, beside.due_at) == (0, None)


def test_each_account_for_its_own_moment(django_assert_num_queries: Any) -> None:
    soon, late = AccountFactory.create(), AccountFactory.create()
    wake_lanes_at({late.pk: NOW + HOUR, soon.pk: NOW}, NOW)
    lanes = LaneState.objects.values_list("account_id", "due_at", "probing")
    assert set(lanes) == {(soon.pk, NOW, False), (late.pk, NOW + HOUR, False)}
    with django_assert_num_queries(0):
        wake_lanes_at({}, NOW)


def test_a_probe_is_a_waking_that_forgets() -> None:
    lane = LaneStateFactory.create(wake_count=4, crashes=2, sample="ee", sample_run=7)
    execute(*probe_statement([lane.account_id], NOW))
    lane.refresh_from_db()
    assert (lane.probing, lane.crashes, lane.sample, lane.sample_run) == (True, 0, "", None)
    assert (lane.wake_count, lane.due_at) == (5, NOW)


def test_lanes_are_locked_and_not_changed() -> None:
    lane = LaneStateFactory.create(wake_count=4)
    lock_lanes([lane.account_id])
    lane.refresh_from_db()
    assert (lane.wake_count, lane.due_at) == (4, None)


@pytest.mark.parametrize(
    ("due_at", "progress_at", "woken"),
    [
        case(NOW + SECOND, NOW + HOUR, True, id="parked-by-a-later-clock"),
        case(NOW + SECOND, NOW + LATEST_PROGRESS + SECOND, True, id="just-too-late"),
        case(NOW + SECOND, NOW + LATEST_PROGRESS, False, id="clocks-differ"),
        case(NOW, NOW + HOUR, False, id="due-now"),
        case(NOW - SECOND, NOW + HOUR, False, id="due-already"),
        case(None, NOW + HOUR, False, id="nothing-due"),
    ],
)
def test_which_lanes_look_again_after_a_clock_was_set_back(
    due_at: datetime | None, progress_at: datetime, woken: bool
) -> None:
    lane = LaneStateFactory.create(due_at=due_at, progress_at=progress_at)
    beside = LaneStateFactory.create(due_at=NOW + HOUR, progress_at=NOW)
    assert wake_after_clock_change(NOW) == woken
    lane.refresh_from_db()
    assert (lane.wake_count, lane.due_at, lane.progress_at) == ((1, NOW, NOW) if woken else (0, due_at, progress_at))
    beside.refresh_from_db()
    assert (beside.wake_count, beside.due_at) == (0, NOW + HOUR)


def test_the_clocks_of_machines_differ_by_a_minute_at_most() -> None:
    assert timedelta(minutes=1) < LATEST_PROGRESS <= timedelta(seconds=65)


# --- after an outage --------------------------------------------------------------------------------------

OFFLINE = {"why": "unavailable: no bridge", "probing": True, "next_send_at": NOW + 20 * SECOND, "batch_sent": 3}


@pytest.mark.parametrize(
    ("facts", "woken", "next_send_at"),
    [
        case({}, True, None, id="held"),
        case({"batch_sent": 0}, True, None, id="without-batches"),
        case({"batch_sent": 0, "account__batch_size": 5}, True, NOW + 20 * SECOND, id="after-a-batch"),
        case({"why": "the provider did not answer in time", "timeouts": 2}, True, None, id="no-answers"),
        case({"why": "rate limited: slow down"}, False, NOW + 20 * SECOND, id="rate-limited"),
        case({"holder": "driver"}, False, NOW + 20 * SECOND, id="not-parked-yet"),
        case({"next_send_at": NOW}, False, NOW, id="over"),
        case({"probing": False}, False, NOW + 20 * SECOND, id="its-pace"),
    ],
)
def test_a_lane_goes_on_when_its_provider_is_back(facts: dict[str, Any], woken: bool, next_send_at: Any) -> None:
    lane = LaneStateFactory.create(
        **OFFLINE | {"due_at": NOW + 20 * SECOND, "theoretical_arrival": NOW + SECOND} | facts
    )
    beside = LaneStateFactory.create(**OFFLINE)
    run = RunFactory.create(account=lane.account, owner=lane.account.owner, status="waiting", lanes=[lane.account_id])
    tried, limited = (
        RunTargetFactory.create(run=run, account=lane.account, error_kind=kind, next_attempt_at=NOW + 20 * SECOND)
        for kind in ("unavailable", "rate_limited")
    )

    assert wake_after_outage([lane.account_id], NOW) == ([lane.account_id] if woken else [])

    lane.refresh_from_db()
    assert (lane.next_send_at, lane.theoretical_arrival, lane.probing) == (
        next_send_at,
        NOW + SECOND,
        facts.get("probing", True),
    )
    assert (lane.due_at == NOW, lane.wake_count, lane.timeouts) == ((True, 1, 0) if woken else (False, 0, 0))
    tried.refresh_from_db()
    limited.refresh_from_db()
    assert tried.next_attempt_at == (None if woken else NOW + 20 * SECOND)
    assert limited.next_attempt_at == NOW + 20 * SECOND
    beside.refresh_from_db()
    assert beside.wake_count == 0
