"""The runs that an account sends first: what a run is waiting behind, and what an offload would keep waiting."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Value

from accounts import access
from fanout.models import Run
from fanout.plans.forecast import Forecast
from reminders.moments import about

MOST_NAMED = 3
UNSEEN = "another run of this account"


def waiting_behind(forecast: Forecast, runs: Mapping[int, Run], now: datetime) -> str:
    """ "waiting behind Library opening hours (87 left, about 2 min)"; nothing where no run is in front."""
    if not forecast.in_front or forecast.starts_at is None:
        return ""
    first, *others = forecast.in_front
    name = _name(runs[first])
    more = f" and {len(others)} more run{'s' if others[1:] else ''}" if others else ""
    left = sum(runs[pk].pending + runs[pk].sending for pk in forecast.in_front)
    wait = about((forecast.starts_at - now).total_seconds())
    return f"waiting behind {name}{more} ({left:,} left, {wait})"


def behind(forecasts: Mapping[int, Forecast], user: Any, now: datetime) -> dict[int, str]:
    """The same for many runs, in one query. Other people's runs are not named; None is the shell, which sees all."""
    runs = _runs({pk for forecast in forecasts.values() for pk in forecast.in_front}, user)
    return {pk: waiting_behind(forecast, runs, now) for pk, forecast in forecasts.items()}


def would_wait(forecast: Forecast, user: Any) -> str:
    """Which runs of the account an offload would delay: a sentence, or nothing."""
    delays = dict(forecast.delays)
    if not delays:
        return ""
    delayed = _runs(delays, user)
    named = [f"{_name(delayed[pk])} ({about(delays[pk])} longer)" for pk in sorted(delays, key=lambda pk: -delays[pk])]
    rest = len(named) - MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"Will wait for it: {', '.join(named[:MOST_NAMED])}{more}."


def _runs(ids: Collection[int], user: Any) -> dict[int, Run]:
    """Each with `seen`: whether the person may see it."""
    if not ids:
        return {}
    mine = Run.objects.filter(pk=OuterRef("pk"))
    seen = Value(True) if user is None else Exists(access.visible(user, mine))
    return dict(Run.objects.only("title", "pending", "sending").annotate(seen=seen).in_bulk(ids))


def _name(run: Run) -> str:
    return run.title if run.__dict__["seen"] else UNSEEN
