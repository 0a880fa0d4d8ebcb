"""Looser or tighter? What an account's recent activity says about its rate. Pure but for `recent`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Q
from django.db.models.functions import TruncDate

from accounts.models import Account
from fanout.models import Activity
from reminders.moments import moment

LOOK_BACK = timedelta(days=28)
QUIET = timedelta(days=14)  # weeks without a flag before a looser rate is worth trying
ENOUGH_SENDS, ENOUGH_DAYS = 500, 5  # below it a quiet account says nothing
LOOSEST, TIGHTEST = 60, 20  # messages per minute
STEP = 10


@dataclass(frozen=True, slots=True)
class Recent:
    """What the account did since `LOOK_BACK`."""

    sent: int = 0
    failed: int = 0
    rate_limited: int = 0
    days: int = 0  # on which it sent
    limited_at: datetime | None = None

    @property
    def error_share(self) -> float:
        tried = self.sent + self.failed
        return self.failed / tried if tried else 0.0


@dataclass(frozen=True, slots=True)
class Advice:
    """`proposed` is None where nothing should change."""

    knob: str
    now: float
    proposed: float | None
    reason: str


def advise(rate: float, burst: float, slowdown_at: float, recent: Recent, now: datetime) -> list[Advice]:
    if recent.limited_at is not None and now - recent.limited_at < LOOK_BACK:
        return _tighter(rate, burst, recent)
    if recent.error_share > slowdown_at:
        reason = f"{recent.error_share:.0%} of the messages failed: look at the errors before going faster."
        return [Advice("max_send_per_minute", rate, None, reason)]
    if recent.sent < ENOUGH_SENDS or recent.days < ENOUGH_DAYS:
        reason = f"Only {recent.sent} messages on {recent.days} days: too little to judge by."
        return [Advice("max_send_per_minute", rate, None, reason)]
    return _looser(rate, recent)


def _tighter(rate: float, burst: float, recent: Recent) -> list[Advice]:
    assert recent.limited_at is not None
    last = moment(recent.limited_at, "UTC")
    reason = f"The provider asked {recent.rate_limited} times to slow down, last on {last}."
    proposed = max(TIGHTEST, rate - STEP) if rate else TIGHTEST
    if rate and rate <= TIGHTEST:
        return [Advice("send_burst", burst, 1 if burst > 1 else None, f"{reason} The rate is low already.")]
    return [Advice("max_send_per_minute", rate, proposed, reason)]


def _looser(rate: float, recent: Recent) -> list[Advice]:
    weeks = QUIET.days // 7
    reason = f"{recent.sent} messages on {recent.days} days, and no flag for over {weeks} weeks."
    if not rate or rate >= LOOSEST:
        return [
            Advice("max_send_per_minute", rate, None, f"{reason} The rate is already the highest known to be safe.")
        ]
    return [Advice("max_send_per_minute", rate, min(LOOSEST, rate + STEP), reason)]


def recent(account: Account, now: datetime) -> Recent:
    rows = Activity.objects.filter(account=account, at__gte=now - LOOK_BACK)
    counts = rows.aggregate(
        sent=Count("pk", filter=Q(outcome="sent")),
        failed=Count("pk", filter=Q(outcome="failed")),
        rate_limited=Count("pk", filter=Q(outcome="rate_limited")),
        limited_at=Max("at", filter=Q(outcome="rate_limited")),
    )
    sent = rows.filter(outcome="sent")
    return Recent(days=sent.annotate(day=TruncDate("at")).values("day").distinct().count(), **counts)
