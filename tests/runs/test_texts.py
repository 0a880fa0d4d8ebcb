"""Sentences that operators read about a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fanout.runs import texts
from tests.factories import AccountFactory, RunFactory

case = pytest.param


def facts(**fields: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("failed", "skipped", "unconfirmed"), 0)
    window = {"window_closes_at": datetime(2026, 1, 5, 18, tzinfo=UTC), "timezone": "UTC"}
    return (
        {
            "channel": "smtp",
            "status": "partial",
            "title": "Market",
            "sent": 1,
            "total": 3,
            "pending": 2,
            "error_summary": "",
        }
        | counts
        | window
        | fields
    )


@pytest.mark.parametrize(
    ("channel", "total", "counted"),
    [
        case("smtp", 3, "3 recipients", id="mail"),
        case("gmail", 1, "1 recipient", id="one-mail"),
        case("sandbox", 3, "3 groups", id="messages"),
        case("sandbox", 1, "1 group", id="one-message"),
        case("pigeon", 3, "3 groups", id="a-channel-that-is-gone"),
    ],
)
def test_the_channel_has_the_noun(channel: str, total: int, counted: str) -> None:
    run = facts(channel=channel, total=total)

    assert texts.delivered(run) == f"1 of {counted} delivered, 2 still pending"
    assert texts.finished(run, {}) == f"1 of {counted} delivered."
    assert f"All {counted} were skipped" in texts.closed_before_start(run)
    assert texts.notification(run) == ("Reminder partly delivered", f"Market: 1 of {counted} delivered.")


@pytest.mark.django_db
def test_a_run_brings_its_channel() -> None:
    run = RunFactory.create(targets={"sent": 2}, account=AccountFactory.create(channel="smtp"))

    assert texts.recipients(run.facts()) == "2 recipients"


@pytest.mark.parametrize(
    ("causes", "summary"),
    [
        case({"failed": ["gone"]}, "1 of 3 recipients delivered, 2 failed (gone), 1 unconfirmed.", id="one-cause"),
        case(
            {"failed": ["gone", "busy"]},
            "1 of 3 recipients delivered, 2 failed (mostly: gone), 1 unconfirmed.",
            id="several",
        ),
    ],
)
def test_what_was_not_delivered_has_its_cause(causes: dict[str, list[str]], summary: str) -> None:
    assert texts.finished(facts(failed=2, unconfirmed=1), causes) == summary


@pytest.mark.parametrize(
    ("started", "sent", "total", "advice"),
    [
        case(
            datetime(2026, 1, 5, 17, 48, tzinfo=UTC),
            480,
            1_000,
            "It started 12 min before the window closed and needs about 25 min: "
            "start it earlier, or widen the delivery window.",
            id="fired-late",
        ),
        case(datetime(2026, 1, 5, 6, tzinfo=UTC), 480, 1_000, texts.ADVICE["pacing"], id="too-much-for-the-day"),
        case(datetime(2026, 1, 5, 17, 48, tzinfo=UTC), 1, 1_000, texts.ADVICE["pacing"], id="late-and-too-much"),
        case(datetime(2026, 1, 4, 12, tzinfo=UTC), 480, 1_000, texts.ADVICE["pacing"], id="resumed-the-next-day"),
    ],
)
def test_advice_fits_the_cause(started: datetime, sent: int, total: int, advice: str) -> None:
    run = facts(
        pause_reason="window_closed",
        started_at=started,
        sent=sent,
        total=total,
        pending=total - sent,
        window_start_hour=6,
        window_end_hour=18,
        seconds_pacing=700,
        seconds_provider=20,
        seconds_media=0,
        seconds_retries=0,
        seconds_waiting=0,
    )
    assert texts.advice(run) == advice
