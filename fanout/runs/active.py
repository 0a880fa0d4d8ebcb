"""When a run was going on: from its start to its end, without the times at which it was paused or finished. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fanout.models import Event, Run

STOPS = (Run.Status.PAUSED, Run.Status.SUCCESS, Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.CANCELED)
Period = tuple[datetime, datetime]


def active_periods(run: Run, events: Iterable[Event], now: datetime) -> list[Period]:
    """In order; `events` is the run's timeline in any order. The last period of a run that is going on ends now."""
    if run.started_at is None:
        return []
    since: datetime | None = run.started_at
    periods: list[Period] = []
    for event in sorted(events, key=lambda event: (event.at, event.pk)):
        if event.verb in STOPS and since is not None:
            periods.append((since, max(since, event.at)))
            since = None
        elif event.verb == "resumed" or (event.verb == "retry failed" and since is None):
            # A retry may leave the run paused: then it goes on when it is resumed.
            since = max(event.at, run.started_at)
    end = now if run.status in Run.LIVE else run.finished_at
    if since is not None and end is not None:
        periods.append((since, max(since, end)))
    return periods


def active_seconds(periods: Iterable[Period]) -> float:
    return sum((end - begin).total_seconds() for begin, end in periods)
