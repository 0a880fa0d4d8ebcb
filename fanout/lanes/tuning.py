"""An account's knobs and daily caps: their values and sources, setting them, and advice on its rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Count, Max, Q
from django.db.models.functions import TruncDate

from accounts import knobs
from accounts.actions import Action
from accounts.models import Account, DailyLimit
from fanout.lanes import account_limits
from fanout.models import Activity
from reminders.moments import moment

CAP = "daily_limit_"
NO_CAP = "none"
UNLIMITED = math.inf  # what NO_CAP sets: unlike an empty value, it overrides the environment
MOST_PER_DAY = 1_000_000
#: set by the environment for the whole site; no account can override them
SITE_KNOBS = {
    "fire_concurrency": ("BOT_FIRE_CONCURRENCY", "accounts sending at the same moment, per driver"),
    "follow_up_max_attempts": ("BOT_FOLLOW_UP_MAX_ATTEMPTS", "follow-ups that one person gets without a reply"),
    "follow_up_cooldown_hours": ("BOT_FOLLOW_UP_COOLDOWN_HOURS", "hours without follow-ups after the last of them"),
    "backpressure_threshold": (
        "BOT_BACKPRESSURE_THRESHOLD",
        "follow-ups queued per account above which only urgent ones are added, and all wait 20–40 % longer",
    ),
    "queue_max": ("BOT_QUEUE_MAX", "follow-ups queued per account at which none is added"),
}


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    value: float | None
    source: str
    meaning: str


def effective(account: Account | None, now: datetime) -> list[Value]:
    """Return every knob and cap that applies to the account (None: to an account without any of its own)."""
    resolved = account.settings() if account else knobs.resolve({}, settings.BOT, {})
    values = [Value(s.knob.name, s.shown, s.source, s.knob.meaning) for s in resolved.values()]
    return values + (_caps(account, now) if account else [])


def _caps(account: Account, now: datetime) -> list[Value]:
    values = []
    for action in Action.values:
        cap = account_limits.cap_today(account, action, now)
        values.append(Value(CAP + action, cap.limit, cap.source, f"{action.replace('_', ' ')}s per day"))
    return values


# --- what changed -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The account's own values, which decide what changed, and the effective ones, which are shown."""

    own: Mapping[str, float | None]
    effective: Mapping[str, float | None]


def snapshot(account: Account, now: datetime) -> Snapshot:
    own = account.overrides()
    for limit in DailyLimit.objects.filter(account=account):
        own[CAP + limit.action] = UNLIMITED if limit.limit is None else limit.limit
    return Snapshot(own, {value.name: value.value for value in effective(account, now)})


def changes_between(before: Snapshot, after: Snapshot) -> dict[str, list[float | None]]:
    """Return name -> [effective before, effective after] for every own value that was set, changed or removed."""
    return {
        name: [before.effective[name], value]
        for name, value in after.effective.items()
        if before.own.get(name) != after.own.get(name)
    }


def describe(changes: Mapping[str, list[float | None]]) -> str:
    return ", ".join(f"{name}: {_word(old)} → {_word(new)}" for name, (old, new) in changes.items())


def _word(value: float | None) -> str:
    return NO_CAP if value is None else f"{value:g}"


# --- setting ----------------------------------------------------------------------------------------------


def parse(pairs: list[str]) -> dict[str, float | None]:
    """Parse KEY=VALUE as typed; an empty value resets the knob to the environment's. Raises ValidationError."""
    values: dict[str, float | None] = {}
    for pair in pairs:
        name, equals, raw = pair.partition("=")
        if not equals:
            raise ValidationError(f"{pair!r} is not KEY=VALUE, for example max_send_per_minute=30.")
        values[name] = _value(name, raw.strip())
    return values


def _value(name: str, raw: str) -> float | None:
    if name.startswith(CAP) and name.removeprefix(CAP) in Action.values:
        return _cap(name, raw) if raw else None
    if name in SITE_KNOBS:
        raise ValidationError(f"{name} holds for the whole site: set {SITE_KNOBS[name][0]} in the environment.")
    knob = knobs.KNOBS.get(name)
    if knob is None:
        names = [*knobs.KNOBS, *(CAP + action for action in Action.values)]
        raise ValidationError(f"There is no knob {name!r}. The knobs are {', '.join(names)}.")
    try:
        return knob.parse(raw) if raw else None
    except ValueError as problem:
        raise ValidationError(str(problem)) from None


def _cap(name: str, raw: str) -> float:
    if raw == NO_CAP:
        return UNLIMITED
    # The length first: Python refuses to read a number of thousands of digits.
    if not raw.isdecimal() or len(raw) > 9 or int(raw) > MOST_PER_DAY:
        raise ValidationError(f"{name} takes a whole number up to {MOST_PER_DAY} or {NO_CAP!r}, not {raw[:40]!r}.")
    return int(raw)


def assign(account: Account, values: Mapping[str, float | None]) -> None:
    """Set knobs on the object, which the caller saves, and store caps in their rows."""
    for name, value in values.items():
        if name in knobs.KNOBS:
            setattr(account, name, value)
        else:
            _store_cap(account, name.removeprefix(CAP), value)


def _store_cap(account: Account, action: str, limit: float | None) -> None:
    """Store a cap. Without a row the environment's cap holds; a row without a limit means no cap."""
    if limit is None:
        DailyLimit.objects.filter(account=account, action=action).delete()
        return
    stored = None if limit == UNLIMITED else limit
    DailyLimit.objects.update_or_create(account=account, action=action, defaults={"limit": stored})


# --- advice -----------------------------------------------------------------------------------------------


LOOK_BACK = timedelta(days=28)
QUIET = timedelta(days=14)  # weeks without a flag before a looser rate is worth trying
ENOUGH_SENDS, ENOUGH_DAYS = 500, 5  # below it a quiet account says nothing
LOOSEST, TIGHTEST = 60, 20  # messages per minute
RATE_STEP = 10


@dataclass(frozen=True, slots=True)
class RecentActivity:
    """An account's activity since `LOOK_BACK`."""

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


def advise(rate: float, burst: float, slowdown_at: float, recent: RecentActivity, now: datetime) -> list[Advice]:
    if recent.limited_at is not None and now - recent.limited_at < LOOK_BACK:
        return _tighter(rate, burst, recent)
    if recent.error_share > slowdown_at:
        reason = f"{recent.error_share:.0%} of the messages failed: look at the errors before going faster."
        return [Advice("max_send_per_minute", rate, None, reason)]
    if recent.sent < ENOUGH_SENDS or recent.days < ENOUGH_DAYS:
        reason = f"Only {recent.sent} messages on {recent.days} days: too little to judge by."
        return [Advice("max_send_per_minute", rate, None, reason)]
    return _looser(rate, recent)


def _tighter(rate: float, burst: float, recent: RecentActivity) -> list[Advice]:
    assert recent.limited_at is not None
    last = moment(recent.limited_at, "UTC")
    reason = f"The provider asked {recent.rate_limited} times to slow down, last on {last}."
    proposed = max(TIGHTEST, rate - RATE_STEP) if rate else TIGHTEST
    if rate and rate <= TIGHTEST:
        return [Advice("send_burst", burst, 1 if burst > 1 else None, f"{reason} The rate is low already.")]
    return [Advice("max_send_per_minute", rate, proposed, reason)]


def _looser(rate: float, recent: RecentActivity) -> list[Advice]:
    weeks = QUIET.days // 7
    reason = f"{recent.sent} messages on {recent.days} days, and no flag for over {weeks} weeks."
    if not rate or rate >= LOOSEST:
        return [
            Advice("max_send_per_minute", rate, None, f"{reason} The rate is already the highest known to be safe.")
        ]
    return [Advice("max_send_per_minute", rate, min(LOOSEST, rate + RATE_STEP), reason)]


def recent_activity(account: Account, now: datetime) -> RecentActivity:
    rows = Activity.objects.filter(account=account, at__gte=now - LOOK_BACK)
    counts = rows.aggregate(
        sent=Count("pk", filter=Q(outcome="sent")),
        failed=Count("pk", filter=Q(outcome="failed")),
        rate_limited=Count("pk", filter=Q(outcome="rate_limited")),
        limited_at=Max("at", filter=Q(outcome="rate_limited")),
    )
    sent = rows.filter(outcome="sent")
    return RecentActivity(days=sent.annotate(day=TruncDate("at")).values("day").distinct().count(), **counts)
