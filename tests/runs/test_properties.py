"""The seven properties of the sending document that concern sending, each by its number; the fifth is about replies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from accounts.channels.base import Kind, NotSent
from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Run
from fanout.plans.forecast import Reader, draft_lanes, forecast_draft
from fanout.rules.outcomes import MAX_RETRIES, consequence
from fanout.rules.pace import PaceState, adapted, slowed
from fanout.runs import controls, firing
from reminders.window import Window
from tests.engine.stage import Stage, books_balance
from tests.factories import AccountFactory, UserFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# On the engine every example plays a whole run, so there are few of them; the same ones every time.
ON_THE_ENGINE = settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# What each gateway asks for besides its pace: settings, and credentials.
GATEWAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "wassenger": ({"device": "60f03a0c1d2e4b6a7890abcd"}, {"token": "secret"}),
    "waha": ({"url": "https://waha.example.com"}, {"api_key": "secret"}),
    "evolution": ({"url": "https://evolution.example.com", "instance": "line"}, {"api_key": "secret"}),
}
IN_THE_DATABASE = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def problems_of(account: Account) -> dict[str, list[str]]:
    """Return the errors of its form, by field."""
    try:
        account.full_clean()
    except ValidationError as refused:
        return refused.message_dict
    return {}


@pytest.mark.django_db
@given(st.floats(0, 60, allow_nan=False), st.sampled_from([*GATEWAYS]))
@IN_THE_DATABASE
def test_property_1_configuration_validation(stored: User, delay: float, channel: str) -> None:
    """A delay from 2 to 10 seconds is accepted, everything else is refused with a sentence."""
    delay, (config, credentials) = round(delay, 2), GATEWAYS[channel]
    account = Account(owner=stored, label="line", channel=channel, config=config, credentials=credentials)
    account.max_send_per_minute, account.min_gap_seconds, account.max_gap_seconds = 0, delay, delay
    problems = problems_of(account)
    assert (problems == {}) == (2 <= delay <= 10)
    assert problems == {} or problems["max_send_per_minute"][0].endswith(".")


@pytest.fixture
def stored(db: None) -> User:
    return UserFactory.create()


@given(st.floats(0, 1), st.floats(0.1, 10))
def test_property_2_adaptive_rate_limiting(error_rate: float, delay: float) -> None:
    """Above 5 % errors the delay is exactly half as much again, capped at ten seconds; else as it was."""
    factor = adapted(PaceState(), error_rate, 0.05).slow_factor
    expected = min(delay * 1.5, 10) if error_rate > 0.05 else delay
    assert slowed(delay, factor) == pytest.approx(expected)


@pytest.mark.django_db
@given(st.integers(12, 60), st.integers(5, 80), st.integers(2, 10), st.integers(0, 60))
@IN_THE_DATABASE
def test_property_3_completion_time_estimation(stored: User, batches: int, size: int, delay: int, pause: int) -> None:
    """Within ten per cent of (N·D) + (N/B)·P: what the form says about an account with such a pace."""
    n, midnight = batches * size, NOW.replace(hour=0)
    pace = {"max_send_per_minute": 0, "min_gap_seconds": delay, "max_gap_seconds": delay}
    account = AccountFactory.create(owner=stored, **pace, batch_size=size, batch_pause_seconds=pause)
    window = Window("UTC")
    lanes = draft_lanes([account], {"group": n}, 1, window, midnight, midnight, lambda account: 0)
    known = forecast_draft(lanes, window, midnight, Reader(midnight))
    assert known.ends_at is not None
    took = (known.ends_at - midnight).total_seconds()
    assert took == pytest.approx(n * delay + n / size * pause, rel=0.1)


@pytest.mark.slow
@given(st.integers(0, 14), st.integers(1, 3))
@ON_THE_ENGINE
def test_property_4_resume_after_interruption(stage: Stage, seconds: int, parts: int) -> None:
    """Only what is pending is sent after a resume, and nothing twice."""
    run = start(stage, groups=12, parts=("text",) * parts)
    stage.play(seconds)
    controls.pause(run, stage.user, stage.now)
    stage.play(3)
    settled = dict(run.targets.filter(status="sent").values_list("pk", "settled_at"))
    controls.resume(run, stage.user, stage.now)
    stage.play()
    run.refresh_from_db()
    assert (run.status, run.sent) == (Run.Status.SUCCESS, 12)
    assert dict(run.targets.filter(pk__in=settled).values_list("pk", "settled_at")) == settled
    assert deliveries(stage, run) == {(address, part): 1 for address in addresses(run) for part in range(parts)}


@pytest.mark.slow
@given(st.integers(1, 3), st.lists(st.integers(0, 8), max_size=6))
@ON_THE_ENGINE
def test_property_6_idempotency(stage: Stage, drivers: int, moments: list[int]) -> None:
    """However often a run is fired for its moment and its lane is woken, by however many drivers: once each."""
    run = start(stage, groups=8)
    for _ in range(3):
        assert firing.make_run(run.reminder, run.scheduled_for, stage.now) is None
    wakings: list[Any] = [(stage.now + n * SECOND, lambda now: wake_lanes(run.lanes, now)) for n in moments]
    stage.play(happenings=wakings, drivers=drivers)
    run.refresh_from_db()
    assert run.sent == 8
    assert deliveries(stage, run) == {(address, 0): 1 for address in addresses(run)}


@given(st.integers(1, MAX_RETRIES), st.floats(1, 3_600))
def test_property_7_exponential_backoff(attempts: int, base: float) -> None:
    """base · 2^(n-1), and failed after the last."""
    facts: dict[str, Any] = {"retries": (), "base": base, "sample": "....", "repeatable": False, "now": NOW}
    answer = consequence(NotSent(Kind.SOFT_BOUNCE), attempts=attempts, **facts)
    assert answer.retry_at is not None
    assert (answer.retry_at - NOW) / SECOND == pytest.approx(base * 2 ** (attempts - 1), abs=1e-5)
    assert consequence(NotSent(Kind.SOFT_BOUNCE), attempts=MAX_RETRIES + 1, **facts).status == "failed"


@pytest.mark.slow
@given(st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 1_000))
@ON_THE_ENGINE
def test_property_8_progress_tracking(stage: Stage, errors: float, seed: int) -> None:
    """At every moment the books of the run add up to its total, and to its targets."""
    fault = {"on": "messages", "match": {"probability": errors, "seed": seed}, "effect": "hard_bounce"}
    stage.provider.script = Script({"*": {"latency_ms": [80, 200], "faults": [fault] if errors else []}})
    run = start(stage, groups=25)
    checks = []

    def check(now: datetime) -> None:
        checks.append(books_balance(run))

    stage.play(happenings=[(stage.now + n * 2 * SECOND, check) for n in range(12)])
    assert checks == [True] * 12
    assert books_balance(run)
    assert run.pending + run.sent + run.failed + run.skipped + run.unconfirmed == run.total == 25


# --- on the engine --------------------------------------------------------------------------------------


def start(stage: Stage, groups: int, parts: tuple[str, ...] = ("text",)) -> Run:
    # Each example in a later hour of the same stage, with a lane of its own.
    stage.now += timedelta(minutes=5)
    account = stage.account(max_send_per_minute=60, send_burst=2)
    return stage.fire(stage.reminder(account, groups=groups, parts=parts))


def addresses(run: Run) -> list[str]:
    return list(run.targets.values_list("address", flat=True))


def deliveries(stage: Stage, run: Run) -> dict[tuple[str, int], int]:
    """Count how often each recipient got each part of this run, by the provider's book."""
    counted: dict[tuple[str, int], int] = {}
    mine = set(run.targets.values_list("pk", flat=True))
    for delivery in stage.book.deliveries():
        if int(delivery.message_id.split("-")[1]) in mine:
            key = (delivery.to, delivery.part)
            counted[key] = counted.get(key, 0) + 1
    return counted
