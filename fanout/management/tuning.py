"""Reading and changing an account's knobs from the shell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts import access, knobs
from accounts.models import Account, Action, DailyLimit
from config import env
from fanout.lanes import caps
from fanout.lanes.poke import poke
from fanout.management.base import BadInput
from fanout.models import Event

CAP = "daily_limit_"
NO_CAP = "none"
UNLIMITED = math.inf  # what NO_CAP sets: unlike an empty value, it overrides the environment
MOST_PER_DAY = 1_000_000
#: what the environment sets for the whole site, and no account can override
SITE_KNOBS = {
    "fire_concurrency": ("BOT_FIRE_CONCURRENCY", "accounts sending at the same moment, per driver"),
    "follow_up_max_attempts": ("BOT_FOLLOW_UP_MAX_ATTEMPTS", "attempts per recipient without a reply"),
    "follow_up_cooldown_hours": ("BOT_FOLLOW_UP_COOLDOWN_HOURS", "hours between two of them"),
    "backpressure_threshold": ("BOT_BACKPRESSURE_THRESHOLD", "follow-ups queued above which none is added"),
    "queue_max": ("BOT_QUEUE_MAX", "follow-ups queued at most"),
}


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    value: float | None
    source: str
    meaning: str


def effective(account: Account | None, now: datetime) -> list[Value]:
    """Every knob that applies, with where its value comes from."""
    found = account.settings() if account else knobs.resolve({}, settings.BOT, {})
    values = [Value(s.knob.name, s.value, s.source, s.knob.meaning) for s in found.values()]
    return values + (_caps(account, now) if account else _site())


def _caps(account: Account, now: datetime) -> list[Value]:
    values = []
    for action in Action.values:
        cap = caps.cap_today(account, action, now)
        values.append(Value(CAP + action, cap.limit, cap.source, f"{action.replace('_', ' ')}s per day"))
    return values


def _site() -> list[Value]:
    return [
        Value(name, getattr(settings, variable), "environment" if env.is_set(variable) else "default", meaning)
        for name, (variable, meaning) in SITE_KNOBS.items()
    ]


# --- changing ---------------------------------------------------------------------------------------------


def parse(pairs: list[str]) -> dict[str, float | None]:
    """KEY=VALUE as typed; an empty value gives the knob back to the environment."""
    changes: dict[str, float | None] = {}
    for pair in pairs:
        name, equals, raw = pair.partition("=")
        if not equals:
            raise BadInput(f"{pair!r} is not KEY=VALUE, for example max_send_per_minute=30.")
        changes[name] = _value(name, raw.strip())
    return changes


def _value(name: str, raw: str) -> float | None:
    if name.startswith(CAP) and name.removeprefix(CAP) in Action.values:
        return _cap(name, raw) if raw else None
    if name in SITE_KNOBS:
        raise BadInput(f"{name} holds for the whole site: set {SITE_KNOBS[name][0]} in the environment.")
    knob = knobs.KNOBS.get(name)
    if knob is None:
        known = [*knobs.KNOBS, *(CAP + action for action in Action.values)]
        raise BadInput(f"There is no knob {name!r}. Known: {', '.join(known)}.")
    try:
        return knob.parse(raw) if raw else None
    except ValueError as problem:
        raise BadInput(str(problem)) from None


def _cap(name: str, raw: str) -> float:
    if raw == NO_CAP:
        return UNLIMITED
    # The length first: Python refuses to read a number of thousands of digits.
    if not raw.isdecimal() or len(raw) > 9 or int(raw) > MOST_PER_DAY:
        raise BadInput(f"{name} takes a whole number up to {MOST_PER_DAY} or {NO_CAP!r}, not {raw[:40]!r}.")
    return int(raw)


def apply(account: Account, changes: dict[str, float | None], user: Any, now: datetime) -> dict[str, Any]:
    """All or nothing; the lane hears of it at once. Returns what changed: name -> [before, after]."""
    access.require(user, account)
    with transaction.atomic():
        account = Account.objects.select_for_update().get(pk=account.pk)
        before = {value.name: value.value for value in effective(account, now)}
        own = {name: value for name, value in changes.items() if name in knobs.KNOBS}
        _set_knobs(account, own)
        for name in changes.keys() - own.keys():
            _set_cap(account, name.removeprefix(CAP), changes[name])
        after = {value.name: value.value for value in effective(account, now)}
        changed = {name: [before[name], after[name]] for name in changes}
        detail = ", ".join(f"{name}: {_word(old)} → {_word(new)}" for name, (old, new) in changed.items())
        Event.objects.create(account=account, actor=user, at=now, verb="tuned", detail=detail)
        poke([account.pk], now)
    return changed


def _set_knobs(account: Account, own: dict[str, float | None]) -> None:
    for name, value in own.items():
        setattr(account, name, value)
    account.full_clean()
    account.save(update_fields=[*own, "updated_at"])


def _set_cap(account: Account, action: str, limit: float | None) -> None:
    """Without a row the environment's cap holds; a row without a limit says that there is none."""
    if limit is None:
        DailyLimit.objects.filter(account=account, action=action).delete()
        return
    stored = None if limit == UNLIMITED else limit
    DailyLimit.objects.update_or_create(account=account, action=action, defaults={"limit": stored})


def _word(value: float | None) -> str:
    return NO_CAP if value is None else f"{value:g}"
