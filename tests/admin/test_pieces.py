"""Charts, words and counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.admin.list_actions import reasons
from fanout.admin.model_admin import CappedPaginator, capped_counts
from fanout.admin.run_status import buttons_for
from fanout.admin.widgets import capped_number, line_chart, nice, step_for, timeline_chart
from fanout.models import Run, RunTarget
from fanout.templatetags.crier import relative
from reminders.moments import duration
from tests.factories import RunFactory

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("most", "top"), [(0, 1), (3, 3), (7, 8), (40, 40), (41, 50), (999, 1000), (1001, 1500)])
def test_the_scale_ends_at_a_round_number(most, top):
    assert nice(most) == top


def test_bars_stand_where_their_minute_is():
    chart = timeline_chart("sends", {NOON: 20, NOON + 5 * MINUTE: 40}, [(NOON, NOON + 10 * MINUTE)], MINUTE, "UTC")
    assert [(bar.x, bar.height) for bar in chart.bars] == [(0, 50), (50, 100)]
    assert [(tick.x, tick.label) for tick in chart.ticks] == [(0, "12:00"), (50, "12:05"), (100, "12:10")]


def test_a_pause_takes_a_narrow_gap_however_long_it_was():
    tomorrow = NOON + timedelta(days=1)
    periods = [(NOON, NOON + 10 * MINUTE), (tomorrow, tomorrow + 10 * MINUTE)]
    chart = timeline_chart("sends", {NOON: 20, tomorrow: 40}, periods, MINUTE, "UTC")
    assert [bar.x for bar in chart.bars] == [0, 52]
    assert [(band.x, band.width, band.label) for band in chart.bands] == [(48, 4, "paused")]
    assert [tick.label for tick in chart.ticks] == ["Mon 12:00", "Tue 12:00", "Tue 12:10"]


def test_every_account_has_its_curve_on_one_scale():
    counts = {"Office": {NOON: 10, NOON + MINUTE: 40}, "Events": {NOON: 20}}
    chart = line_chart("sends", counts, NOON, NOON + 2 * MINUTE, MINUTE, "UTC")
    assert [(line.label, line.points, line.last) for line in chart.lines] == [
        ("Office", "0,75.0 50,0.0", "40"),
        ("Events", "0,50.0 50,100.0", "0"),
    ]


@pytest.mark.parametrize(("hours", "minutes"), [(1, 1), (3, 2), (12, 10), (24 * 7, 120)])
def test_a_long_run_has_wider_bars(hours, minutes):
    assert step_for(timedelta(hours=hours)) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7500, "2 h 5 min"), (90000, "1 d 1 h")]
)
def test_durations_have_two_units_at_most(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.5, "now"), (-4, "now"), (2, "in 2 s"), (90, "in 1 min"), (-7200, "2 h ago"), (-200000, "2 d ago")],
)
def test_relative_times(seconds, words):
    assert relative(NOON + timedelta(seconds=seconds), NOON) == words


def test_many_reasons_are_cut_short():
    assert reasons(["a", "b", "a"]) == "2 × a 1 × b"
    assert reasons("abcdef").endswith("And 2 other reasons.")


def test_counts_stop_at_the_cap(db, django_assert_num_queries):
    RunFactory.create(targets={"pending": 5, "sent": 2})
    rows = RunTarget.objects.all()
    with django_assert_num_queries(1):
        counts = capped_counts({"all": rows, "sent": rows.filter(status="sent")}, 3)
    assert counts == {"all": 4, "sent": 2}
    assert [capped_number(n, 3) for n in counts.values()] == ["3+", "2"]
    assert capped_counts({}, 3) == {}


def test_the_paginator_takes_lists_too():
    assert CappedPaginator([1, 2, 3], 2).num_pages == 2


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
