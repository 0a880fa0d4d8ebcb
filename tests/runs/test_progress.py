"""Rate, expected end and duration of a run are current, regardless of earlier pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.models import Run
from fanout.plans.forecast import behind, forecast_offload, forecast_run, forecast_runs, would_wait
from fanout.runs import controls, progress
from fanout.runs.progress import active_periods, active_seconds
from fanout.runs.why import why_run
from tests.engine.stage import Stage, fresh
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    DriverFactory,
    EventFactory,
    RunFactory,
    RunTargetFactory,
    UserFactory,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


# --- a story ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_paused_for_a_day_and_resumed_the_end_and_the_rate_are_those_of_now() -> None:
    stage = Stage()
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=60, send_burst=1), groups=600))
    stage.play(120)
    run = fresh(run)
    assert 110 <= run.sent <= 125
    assert progress.rates_of_runs([run], stage.now)[run.pk] == pytest.approx(60, rel=0.05)

    assert controls.pause(run, None, stage.now).ok
    first_period = active_seconds(active_periods(fresh(run), run.events.all(), stage.now))
    assert first_period == pytest.approx(120, abs=10)
    stage.now += timedelta(days=1)
    assert controls.resume(fresh(run), None, stage.now).ok
    stage.play(60)

    run = fresh(run)
    left = run.pending + run.sending
    expected = forecast_run(run, stage.now)
    assert expected.ends_at is not None
    assert (expected.ends_at - stage.now).total_seconds() == pytest.approx(left, rel=0.05)
    assert expected == forecast_runs([run], stage.now)[run.pk]
    assert progress.rates_of_runs([run], stage.now)[run.pk] == pytest.approx(60, rel=0.1)
    assert active_seconds(active_periods(run, run.events.all(), stage.now)) == pytest.approx(first_period + 60, abs=10)


# --- the rate ---------------------------------------------------------------------------------------------


def sent(run: Run, moments: list[datetime]) -> None:
    targets = list(run.targets.filter(status="sent"))
    for target, at in zip(targets, moments, strict=True):
        ActivityFactory.create(account=run.account, run_target=target, at=at)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        pytest.param([n * 3 for n in range(60, 0, -1)], 20, id="steady"),
        pytest.param([3000 + n for n in range(20)], 0, id="silent-for-minutes"),
        pytest.param([1800, 1200, 600], 0.1, id="slow-by-the-hour"),
        pytest.param([3], None, id="just-begun"),
        pytest.param([], None, id="nothing-yet"),
    ],
)
def test_the_rate_is_that_of_the_last_minutes(ago: list[int], expected: float | None) -> None:
    run = RunFactory.create(status="running", targets={"pending": 1, "sent": len(ago)})
    sent(run, [NOW - timedelta(seconds=seconds) for seconds in ago])
    measured = progress.rates_of_runs([run], NOW)[run.pk]
    assert measured == (expected if expected is None else pytest.approx(expected, rel=0.02))


@pytest.mark.django_db
def test_what_lies_before_the_last_pause_does_not_count() -> None:
    run = RunFactory.create(status="running", targets={"pending": 1, "sent": 40})
    sent(
        run, [NOW - timedelta(seconds=250 + n) for n in range(20)] + [NOW - timedelta(seconds=n) for n in range(1, 21)]
    )
    EventFactory.create(run=run, verb="paused", at=NOW - timedelta(seconds=100))
    assert progress.rates_of_runs([run], NOW)[run.pk] == pytest.approx(60, rel=0.02)


@pytest.mark.django_db
def test_an_account_counts_messages_over_all_its_runs(django_assert_num_queries: Any) -> None:
    account, idle = AccountFactory.create_batch(2)
    for _ in range(2):
        run = RunFactory.create(account=account, status="running", targets={"sent": 30})
        sent(run, [NOW - timedelta(seconds=2 * n) for n in range(1, 31)])
    with django_assert_num_queries(1):
        rates = progress.rates_of_accounts([account.pk, idle.pk], NOW)
    assert rates == {account.pk: pytest.approx(60)}


@pytest.mark.parametrize(
    ("value", "words"), [(None, "–"), (0.0, "0.0 / min"), (0.1, "6 / h"), (3.27, "3.3 / min"), (39.6, "40 / min")]
)
def test_a_rate_in_words(value: float | None, words: str) -> None:
    assert progress.rate_in_words(value) == words


# --- active time ------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "events", "minutes"),
    [
        pytest.param("running", [], 60, id="going-on"),
        pytest.param("running", [(10, "paused"), (50, "resumed")], 20, id="one-pause"),
        pytest.param("paused", [(10, "paused")], 10, id="paused"),
        pytest.param("success", [(10, "paused"), (20, "resumed"), (30, "success")], 20, id="finished"),
        pytest.param("running", [(10, "partial"), (55, "retry failed")], 15, id="retried"),
        pytest.param("running", [(10, "partial"), (30, "retry failed"), (50, "resumed")], 20, id="retried-later"),
        pytest.param("running", [(10, "window changed")], 60, id="something-else"),
        pytest.param("paused", [(10, "paused"), (30, "paused")], 10, id="paused-twice"),
        pytest.param("running", [(10, "paused"), (20, "resume refused"), (50, "resumed")], 20, id="refused-first"),
    ],
)
def test_active_time_is_without_the_pauses(status: str, events: list[tuple[int, str]], minutes: int) -> None:
    begun = NOW - 60 * MINUTE
    reason = {"pause_reason": "operator"} if status == "paused" else {}
    run = RunFactory.create(status=status, started_at=begun, finished_at=None, **reason)
    for after, verb in events:
        EventFactory.create(run=run, verb=verb, at=begun + after * MINUTE)
    assert active_seconds(active_periods(run, run.events.all(), NOW)) == minutes * 60


# --- who is in front --------------------------------------------------------------------------------------


@pytest.fixture
def queue(db: None) -> tuple[Run, Run]:
    """Two runs of one account that sends one message a second: the first has 87 left."""
    account = AccountFactory.create(max_send_per_minute=60, send_burst=1)
    DriverFactory.create(beat_at=NOW)
    first = RunFactory.create(
        account=account,
        title="Library opening hours",
        status="running",
        scheduled_for=NOW - 9 * MINUTE,
        targets={"pending": 87},
    )
    second = RunFactory.create(
        account=account, owner=first.owner, status="running", scheduled_for=NOW - MINUTE, targets={"pending": 30}
    )
    return first, second


def test_a_run_says_which_one_it_waits_behind(queue: tuple[Run, Run]) -> None:
    first, second = queue
    assert str(why_run(second, NOW)) == "queued behind Library opening hours (87 left, about 1 min)"
    assert str(why_run(first, NOW)).startswith("pace 60/min; next send")
    turn = why_run(second, NOW).next_send_at
    assert turn is not None
    assert (turn - NOW).total_seconds() == pytest.approx(87, abs=3)


def test_other_peoples_runs_are_not_named(queue: tuple[Run, Run]) -> None:
    _, second = queue
    forecasts = forecast_runs([second], NOW)
    stranger = UserFactory.create()
    assert "Library" in behind(forecasts, second.owner, NOW)[second.pk]
    assert behind(forecasts, stranger, NOW)[second.pk] == (
        "queued behind another run of this account (87 left, about 1 min)"
    )


def test_several_runs_in_front(queue: tuple[Run, Run]) -> None:
    _, second = queue
    third = RunFactory.create(account=second.account, status="queued", scheduled_for=NOW, targets={"pending": 5})
    assert behind(forecast_runs([third], NOW), None, NOW)[third.pk] == (
        "queued behind Library opening hours and 1 more run (117 left, about 2 min)"
    )


def test_a_run_that_may_not_send_yet_waits_for_its_hour_and_not_behind_others(queue: tuple[Run, Run]) -> None:
    first, _ = queue
    later = RunFactory.create(
        account=first.account, status="queued", scheduled_for=NOW + timedelta(hours=1), targets={"pending": 5}
    )
    assert forecast_runs([later], NOW)[later.pk].in_front == ()


def test_an_offload_names_the_runs_that_would_wait(queue: tuple[Run, Run]) -> None:
    first, second = queue
    moved = RunFactory.create(account=AccountFactory.create(), scheduled_for=NOW - 5 * MINUTE, targets={"pending": 60})
    forecast = forecast_offload([moved], first.account, NOW)
    assert dict(forecast.delays) == {second.pk: pytest.approx(60, abs=2)}
    assert would_wait(forecast, second.owner) == f"Will wait for it: {second.title} (about 1 min longer)."
    assert would_wait(forecast, UserFactory.create()) == (
        "Will wait for it: another run of this account (about 1 min longer)."
    )
    assert would_wait(forecast_offload([moved], AccountFactory.create(), NOW), None) == ""


# --- beyond what is projected ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.django_db
def test_a_large_run_ends_on_the_same_day_whether_it_is_walked_or_counted_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The window of twelve hours closes twice before 2,000 targets at one a minute are done."""
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1)
    run = RunFactory.create(
        account=account,
        scheduled_for=NOW,
        timezone="UTC",
        window_start_hour=6,
        window_end_hour=18,
        window_closes_at=NOW + timedelta(hours=9),
        targets={"pending": 2_000},
    )
    projected = forecast_run(run, NOW)
    monkeypatch.setattr("fanout.plans.outlook.MOST_PROJECTED", 200)
    counted = forecast_run(run, NOW)
    assert projected.ends_at is not None
    assert counted.ends_at is not None
    assert abs(projected.ends_at - counted.ends_at) < timedelta(minutes=15)
    assert [day.date for day in projected.days] == [day.date for day in counted.days]
    assert [day.targets for day in counted.days] == [pytest.approx(day.targets, abs=5) for day in projected.days]
    assert sum(day.targets for day in counted.days) == 2_000


@pytest.mark.django_db
@pytest.mark.parametrize("seconds", [11, 30, 60, 300])
def test_a_burst_is_not_a_rate(seconds: int) -> None:
    """Three at once, then one every second and a half: 40 a minute from the first reading on, never 43."""
    run = RunFactory.create(status="running", targets={"pending": 1})
    started = NOW - timedelta(seconds=seconds)
    later = [1.5 * n for n in range(1, int(seconds / 1.5))]
    for offset in [0, 0.1, 0.2, *later]:
        target = RunTargetFactory.create(run=run, status="sent")
        ActivityFactory.create(account=run.account, run_target=target, at=started + timedelta(seconds=offset))
    assert progress.rates_of_runs([run], NOW)[run.pk] == pytest.approx(40, rel=0.01)
    assert progress.rates_of_accounts([run.account_id], NOW)[run.account_id] == pytest.approx(40, rel=0.01)
