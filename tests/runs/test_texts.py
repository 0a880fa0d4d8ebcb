"""Sentences that operators read about a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fanout.runs import texts

case = pytest.param


def facts(**fields: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("failed", "skipped", "unconfirmed"), 0)
    window = {"window_closes_at": datetime(2026, 1, 5, 18, tzinfo=UTC), "timezone": "UTC"}
    return (
        {
            "kinds": [],
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
    ("kinds", "total", "counted"),
    [
        case(["mailbox"], 3, "3 mailboxes", id="mail"),
        case(["mailbox"], 1, "1 mailbox", id="one-mail"),
        case(["group"], 3, "3 groups", id="groups"),
        case(["person"], 3, "3 people", id="people"),
        case(["group", "person"], 1, "1 recipient", id="mixed"),
        case([], 3, "3 recipients", id="not-known"),
    ],
)
def test_recipients_are_called_what_they_are(kinds: list[str], total: int, counted: str) -> None:
    run = facts(kinds=kinds, total=total)

    assert texts.sent(run) == f"Sent to 1 of {counted}, 2 still pending"
    assert texts.finished(run, {}) == f"Sent to 1 of {counted}."
    skipped = f"Its {counted} was skipped" if total == 1 else f"All {counted} were skipped"
    assert skipped in texts.closed_before_start(run)
    assert texts.notification(run) == ("Reminder partly sent", f"Market: Sent to 1 of {counted}.")


def test_reasons_of_those_left_out() -> None:
    reasons = {"cooldown_active_12h": 1, "cooldown_active_3h": 2, "opted_out": 1, "a riddle": 5}
    assert texts.left_out_counts(reasons) == "5 a riddle, 3 still in the cooldown, 1 opted out"


@pytest.mark.parametrize(
    ("causes", "summary"),
    [
        case({"failed": ["gone"]}, "Sent to 1 of 3 recipients, 2 failed (gone), 1 unconfirmed.", id="one-cause"),
        case(
            {"failed": ["gone", "busy"]},
            "Sent to 1 of 3 recipients, 2 failed (mostly: gone), 1 unconfirmed.",
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
