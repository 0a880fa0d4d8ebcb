"""Scales, bars and curves of charts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.admin.widgets import line_chart, nice, step_for, timeline_chart

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


def test_an_axis_of_days_ends_with_the_last_day():
    days = {NOON + timedelta(days=n): n for n in range(5)}
    chart = line_chart("sends", {"Sent": days}, NOON, NOON + timedelta(days=5), timedelta(days=1), "UTC", "%d", True)
    assert [tick.label for tick in chart.ticks] == ["02", "04", "06"]
    (line,) = chart.lines
    assert line.points.endswith("100,0.0")
    assert line.last == "10"


@pytest.mark.parametrize(("hours", "minutes"), [(1, 1), (3, 2), (12, 10), (24 * 7, 120)])
def test_a_long_run_has_wider_bars(hours, minutes):
    assert step_for(timedelta(hours=hours)) == timedelta(minutes=minutes)
