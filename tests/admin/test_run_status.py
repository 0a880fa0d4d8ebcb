"""Buttons of a run in every state."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fanout.admin.run_status import buttons_for
from fanout.models import Run

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        pytest.param({"status": "running"}, ["pause", "cancel"], id="running"),
        pytest.param({"status": "paused", "pending": 1}, ["resume", "cancel", "archive"], id="paused"),
        pytest.param(
            {"status": "paused", "failed": 1}, ["resume", "retry_failed", "cancel", "archive"], id="with-failures"
        ),
        pytest.param({"status": "partial", "failed": 2}, ["retry_failed", "archive"], id="partial"),
        pytest.param({"status": "success"}, ["archive"], id="success"),
        pytest.param({"status": "skipped"}, ["run_again", "archive"], id="skipped"),
        pytest.param({"status": "failed", "failed": 1}, ["retry_failed", "run_again", "archive"], id="failed"),
        pytest.param({"status": "failed", "unconfirmed": 1}, ["archive"], id="perhaps-delivered"),
        pytest.param({"status": "failed", "is_test": True}, ["archive"], id="test"),
        pytest.param({"status": "canceled", "archived": True}, ["unarchive"], id="archived"),
    ],
)
def test_only_what_fits_the_state_is_offered(facts, names):
    run = Run(timezone="UTC", window_start_hour=0, window_end_hour=24, **facts)
    assert [button.name for button in buttons_for(run, NOON)] == names


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        pytest.param({"window_end_hour": 24}, "resume", id="open"),
        pytest.param({"window_end_hour": 11}, "resume_when_open", id="closed"),
        pytest.param({"window_end_hour": 11, "resume_at": NOON}, "keep_paused", id="planned"),
    ],
)
def test_the_first_button_of_a_paused_run_is_the_one_that_works_now(facts, first):
    run = Run(status="paused", timezone="UTC", window_start_hour=6, **facts)
    assert buttons_for(run, NOON)[0].name == first
