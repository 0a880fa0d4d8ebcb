"""Looser or tighter: the edges of what an account's recent activity says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.lanes.tuning import Advice, RecentActivity, advise, recent_activity
from reminders.moments import moment
from tests.factories import AccountFactory, ActivityFactory

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MONTH, SECOND = timedelta(days=28), timedelta(seconds=1)
RATE, BURST = "max_send_per_minute", "send_burst"
FLAGGED = f"The provider asked 2 times to slow down, last on {moment(NOW, 'UTC')}."
QUIET = "500 messages on 5 days, and no flag for over 2 weeks."
case = pytest.param


def flagged(at: datetime = NOW) -> RecentActivity:
    return RecentActivity(sent=500, days=5, rate_limited=2, limited_at=at)


@pytest.mark.parametrize(
    ("rate", "burst", "known", "knob", "proposed"),
    [
        case(40, 3, flagged(NOW - MONTH + SECOND), RATE, 30, id="a-flag-of-this-month"),
        case(40, 3, flagged(NOW - MONTH), RATE, 50, id="a-flag-of-last-month"),
        case(31, 3, flagged(), RATE, 21, id="a-step-slower"),
        case(21, 3, flagged(), RATE, 20, id="slower-but-not-below-20"),
        case(20, 3, flagged(), BURST, 1, id="slow-enough-but-bursting"),
        case(20, 2, flagged(), BURST, 1, id="the-smallest-burst"),
        case(20, 1, flagged(), BURST, None, id="as-slow-as-it-gets"),
        case(0, 1, flagged(), RATE, 20, id="no-limit-and-a-flag"),
        case(40, 3, RecentActivity(sent=500, days=5), RATE, 50, id="just-enough"),
        case(40, 3, RecentActivity(sent=499, days=5), RATE, None, id="too-few-messages"),
        case(40, 3, RecentActivity(sent=500, days=4), RATE, None, id="too-few-days"),
        case(40, 3, RecentActivity(sent=950, failed=50, days=5), RATE, 50, id="errors-at-the-threshold"),
        case(40, 3, RecentActivity(sent=949, failed=51, days=5), RATE, None, id="errors-above-it"),
        case(59, 3, RecentActivity(sent=500, days=5), RATE, 60, id="never-beyond-60"),
        case(60, 3, RecentActivity(sent=500, days=5), RATE, None, id="60-is-enough"),
        case(0, 3, RecentActivity(sent=500, days=5), RATE, None, id="no-limit-already"),
    ],
)
def test_the_edges(rate: float, burst: float, known: RecentActivity, knob: str, proposed: float | None) -> None:
    (advice,) = advise(rate, burst, 0.05, known, NOW)
    assert (advice.knob, advice.now, advice.proposed) == (knob, burst if knob == BURST else rate, proposed)


@pytest.mark.parametrize(
    ("rate", "known", "advice"),
    [
        case(20, flagged(), Advice(BURST, 3, 1, f"{FLAGGED} The rate is low already."), id="flagged-and-slow"),
        case(40, RecentActivity(sent=500, days=5), Advice(RATE, 40, 50, QUIET), id="quiet"),
        case(
            60,
            RecentActivity(sent=500, days=5),
            Advice(RATE, 60, None, f"{QUIET} The rate is already the highest known to be safe."),
            id="quiet-and-fast",
        ),
    ],
)
def test_it_says_why(rate: float, known: RecentActivity, advice: Advice) -> None:
    assert advise(rate, 3, 0.05, known, NOW) == [advice]


def test_an_idle_account_has_no_error_share() -> None:
    assert RecentActivity() == RecentActivity(sent=0, failed=0, rate_limited=0, days=0, limited_at=None)
    assert RecentActivity().error_share == 0.0
    assert RecentActivity(sent=1, failed=3).error_share == 0.75


@pytest.mark.django_db
def test_recent_activity_is_counted() -> None:
    account = AccountFactory.create()
    for at, outcome in (
        (NOW - MONTH, "sent"),
        (NOW - MONTH - SECOND, "sent"),
        (NOW, "sent"),
        (NOW - SECOND, "sent"),
        (NOW, "failed"),
        (NOW - SECOND, "rate_limited"),
        (NOW - 2 * SECOND, "rate_limited"),
    ):
        ActivityFactory.create(account=account, outcome=outcome, at=at)
    ActivityFactory.create(at=NOW)
    assert recent_activity(account, NOW) == RecentActivity(
        sent=3, failed=1, rate_limited=2, days=2, limited_at=NOW - SECOND
    )
