"""The forecast within ten per cent of what the engine does: behind a queue, through several senders and channels,
within daily caps, after an offload and after a resume, with random settings."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from accounts.models import Account, DailyLimit
from fanout.models import Run
from fanout.plans.forecast import Forecast, forecast_offload, forecast_reminder, forecast_run, forecast_runs
from fanout.plans.projection import Even
from fanout.runs import controls, corrections
from reminders.models import Recipient, ReminderTarget
from tests.engine.stage import Stage, fresh

# Every example plays whole runs, so there are few of them; the same ones every time.
ON_THE_ENGINE = settings(
    max_examples=int(os.environ.get("FORECAST_EXAMPLES", "4")),
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PACES = st.fixed_dictionaries(
    {
        "max_send_per_minute": st.integers(10, 120),
        "send_burst": st.integers(1, 5),
        "group_concurrency": st.integers(1, 4),
        "batch_size": st.sampled_from([0, 20]),
        "batch_pause_seconds": st.sampled_from([10, 30]),
        "max_gap_seconds": st.sampled_from([0, 0, 3]),
    }
)
TEXTS = st.sampled_from([("text",), ("text", "text")])
GROUPS = st.integers(20, 60)


@pytest.fixture(autouse=True)
def even_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast names the mean. Forty gaps of 0 to 3 s take 60 s, and by chance 50 or 70: the lanes draw evenly, so
    that what differs is the forecast's own error."""
    monkeypatch.setattr("fanout.engine.driver.random", SimpleNamespace(Random=lambda seed: Even()))


def lane(stage: Stage, pace: dict[str, Any]) -> Account:
    return stage.account(**pace)


def fire(stage: Stage, account: Account, groups: int, parts: tuple[str, ...] = ("text",)) -> Run:
    return stage.fire(reminder(stage, account, groups, parts))


def reminder(stage: Stage, account: Account, groups: int, parts: tuple[str, ...] = ("text",)) -> Any:
    """With recipients of its own: a run does not overtake an earlier one at the same recipient."""
    stage.first = getattr(stage, "first", 0) + 1_000  # type: ignore[attr-defined]
    return stage.reminder(account, groups=groups, parts=parts, first=stage.first)  # type: ignore[attr-defined]


def next_morning(stage: Stage) -> None:
    """Each example on a day of its own."""
    stage.now = (stage.now + timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)


def judge(stage: Stage, run: Run, known: Forecast) -> None:
    """The end of the run was foreseen."""
    began = stage.now
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    mine = set(run.targets.values_list("pk", flat=True))
    last = max(d.t for d in stage.book.deliveries() if int(d.message_id.split("-")[1]) in mine)
    took = (datetime.fromtimestamp(last, UTC) - began).total_seconds()
    assert known.ends_at is not None
    assert (known.ends_at - began).total_seconds() == pytest.approx(took, rel=0.1, abs=3)


@given(PACES, GROUPS, GROUPS, TEXTS)
@ON_THE_ENGINE
def test_behind_a_queue(stage: Stage, pace: dict[str, Any], before: int, groups: int, parts: tuple[str, ...]) -> None:
    next_morning(stage)
    account = lane(stage, pace)
    fire(stage, account, before)
    later = reminder(stage, account, groups, parts)
    known = forecast_reminder(later, stage.now)
    run = stage.fire(later)
    assert forecast_run(run, stage.now).ends_at == known.ends_at == forecast_runs([run], stage.now)[run.pk].ends_at
    judge(stage, run, known)


@given(st.lists(PACES, min_size=2, max_size=4), st.integers(60, 120), TEXTS)
@ON_THE_ENGINE
def test_through_several_senders(
    stage: Stage, paces: list[dict[str, Any]], groups: int, parts: tuple[str, ...]
) -> None:
    next_morning(stage)
    accounts = [lane(stage, pace) for pace in paces]
    fire(stage, accounts[-1], 20)
    shared = reminder(stage, accounts[0], groups, parts)
    shared.set_further_senders(accounts)
    known = forecast_reminder(shared, stage.now)
    judge(stage, stage.fire(shared), known)


@given(PACES, PACES, GROUPS, GROUPS)
@ON_THE_ENGINE
def test_through_mail_and_messenger(
    stage: Stage, pace: dict[str, Any], mail_pace: dict[str, Any], groups: int, mailboxes: int
) -> None:
    """Whichever of the two is slower, and whichever gives the run its action."""
    next_morning(stage)
    line = stage.account(channel="waha", **pace)
    office = stage.account(channel="smtp", **mail_pace | {"min_gap_seconds": 0})
    caps(office, email=mailboxes + 5)
    senders = [line, office] if groups % 2 else [office, line]
    both = reminder(stage, senders[0], groups)
    add(stage, both, "mailbox", "ann{}@example.com", mailboxes)
    both.set_further_senders(senders)
    known = forecast_reminder(both, stage.now)
    judge(stage, stage.fire(both), known)


@given(PACES, GROUPS, st.integers(10, 20), st.sampled_from([15, 30, 60]))
@ON_THE_ENGINE
def test_two_actions_within_their_caps(
    stage: Stage, pace: dict[str, Any], before: int, requests: int, cap: int
) -> None:
    """Messages up to their cap, and connection requests behind them: these do not wait for the next day."""
    next_morning(stage)
    seat = stage.account(channel="unipile", min_gap_seconds=0, **pace)
    caps(seat, message=cap, connection_request=requests)
    messages, asking = (reminder(stage, seat, 0) for _ in range(2))
    add(stage, messages, "profile", PROFILE, before)
    add(stage, asking, "profile", PROFILE, requests, action="connection_request")
    first = stage.fire(messages)
    today = forecast_run(first, stage.now).fits_count
    known = forecast_reminder(asking, stage.now)
    judge(stage, stage.fire(asking), known)
    assert fresh(first).sent == today == min(before, cap)


PROFILE = "https://www.linkedin.com/in/ann-{}"


def caps(account: Account, **limits: int) -> None:
    for action, limit in limits.items():
        DailyLimit.objects.create(account=account, action=action, limit=limit)


def add(stage: Stage, reminder: Any, kind: str, address: str, count: int, **fields: Any) -> None:
    """Recipients of another kind than groups, new in each example."""
    first = Recipient.objects.count()
    for n in range(first, first + count):
        person = Recipient.objects.create(owner=stage.user, kind=kind, address=address.format(n))
        ReminderTarget.objects.create(reminder=reminder, recipient=person, position=n)
    for name, value in ({"subject": "Rent"} | fields).items():
        setattr(reminder, name, value)
    reminder.save()


@given(PACES, PACES, st.integers(40, 80), st.integers(1, 10))
@ON_THE_ENGINE
def test_after_an_offload(
    stage: Stage, pace: dict[str, Any], other_pace: dict[str, Any], groups: int, seconds: int
) -> None:
    next_morning(stage)
    account, other = lane(stage, pace), lane(stage, other_pace)
    fire(stage, other, 20)
    run = fire(stage, account, groups)
    stage.play(seconds)
    known = forecast_offload([run], other, stage.now)
    assert corrections.offload(run, other, stage.user, stage.now).ok
    moved = forecast_run(fresh(run), stage.now)
    assert moved.ends_at == known.ends_at
    judge(stage, run, moved)


@given(PACES, GROUPS, TEXTS, st.integers(1, 30))
@ON_THE_ENGINE
def test_after_a_resume(stage: Stage, pace: dict[str, Any], groups: int, parts: tuple[str, ...], seconds: int) -> None:
    next_morning(stage)
    run = fire(stage, lane(stage, pace), groups, parts)
    stage.play(seconds)
    assume(fresh(run).status == Run.Status.RUNNING)  # a generous pace may have finished it by then
    controls.pause(run, stage.user, stage.now)
    stage.play(60)
    assert controls.resume(run, stage.user, stage.now).ok
    judge(stage, run, forecast_run(fresh(run), stage.now))
