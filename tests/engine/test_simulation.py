"""The simulation: the same lane, deterministic for a seed, at any scale."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection

from accounts.models import Account
from fanout.database import conninfo
from fanout.engine.simulation import Report, Scenario, simulate, summary
from fanout.models import Run, RunTarget

pytestmark = pytest.mark.django_db


def play(**fields: object) -> tuple[Report, dict[str, object]]:
    scenario = Scenario(**fields)  # type: ignore[arg-type]
    report = simulate(conninfo(connection.settings_dict), scenario)
    return report, summary(report, scenario)


def test_the_same_seed_gives_the_same_book() -> None:
    first, _ = play(groups=60, parts=("text", "image"), error_rate=0.1, seed=7)
    again, _ = play(groups=60, parts=("text", "image"), error_rate=0.1, seed=7)
    other, _ = play(groups=60, parts=("text", "image"), error_rate=0.1, seed=8)
    told = [[(d.t, d.to, d.part) for d in report.book.deliveries()] for report in (first, again, other)]
    assert told[0] == told[1] != told[2]


def test_it_leaves_nothing_behind() -> None:
    play(groups=20)
    assert not Account.objects.exists()
    assert not Run.objects.exists()
    assert not RunTarget.objects.exists()


def test_the_seed_documents_figure() -> None:
    _, told = play(groups=1000, parts=("image",))
    assert told["status"] == "success"
    assert 25 <= told["virtual_minutes"] <= 30  # type: ignore[operator]
    assert told["uploads"] == 1
    assert told["peak_60s"] <= 43  # type: ignore[operator]
    assert told["permitted_ratio"] >= 0.98  # type: ignore[operator]


def test_a_window_that_closes_first_pauses_the_run() -> None:
    _, told = play(groups=200, window=(6, 10), at=datetime(2026, 1, 5, 9, 58, tzinfo=UTC))
    assert told["status"] == "paused"
    assert told["sent"] + told["pending"] == 200  # type: ignore[operator]
    assert told["bound_by"] == "pacing"
    assert "Delivery window closed at 10:00 (UTC)" in str(told["error_summary"])


def test_three_thousand_lanes_on_one_driver_hold_their_pace() -> None:
    groups, rate, burst = 5, 40, 3
    report, _ = play(
        groups=groups, lanes=3000, latency_ms=(120, 120), knobs={"max_send_per_minute": rate, "send_burst": burst}
    )
    began = report.run["scheduled_for"].timestamp()
    by_account: dict[str, list[float]] = {}
    for delivery in report.book.deliveries():
        by_account.setdefault(delivery.account, []).append(delivery.t)
    assert len(by_account) == 3000
    for times in by_account.values():
        assert len(times) == groups
        for n, t in enumerate(sorted(times)):
            due = began + max(0, n - burst + 1) * 60 / rate
            assert due - 0.01 <= t <= due + 1.0
