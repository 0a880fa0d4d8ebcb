"""When the follow-ups of a firing are due, and to how many they go at most: for firing, forecasts and the calendar."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import Count, Q, QuerySet

from accounts import access
from fanout.models import Run, RunTarget
from fanout.plans.audience import SILENT
from reminders.models import Reminder

TITLE_LENGTH = 200
MOST_RUNS = 200


def step_moments(steps: Sequence[Mapping[str, Any]], fired_at: datetime, timezone: str) -> list[datetime]:
    """Return when each follow-up is due: so many days later, at the same wall-clock time. A microsecond per step keeps
    the moments of a reminder apart: a daily one fires itself at that time, and each moment has one run."""
    local = fired_at.astimezone(ZoneInfo(timezone))
    return [
        (local + timedelta(days=step["days"])).astimezone(UTC) + timedelta(microseconds=number)
        for number, step in enumerate(steps, start=1)
    ]


def step_title(title: str, step: int) -> str:
    suffix = f" (follow-up {step})"
    return title[: TITLE_LENGTH - len(suffix)] + suffix


class PlannedStep(NamedTuple):
    """A follow-up to come: at most so many targets for each account, those who have not replied by now."""

    at: datetime
    reminder: Reminder
    step: int
    shares: Mapping[int, int]
    parts: int
    kinds: Collection[str]  # of its recipients' addresses


def lanes_of_steps(user: Any, until: datetime) -> set[int]:
    """Return the accounts through which follow-ups of the runs that a person sees go out until then."""
    runs = access.visible(user, _with_steps(until))
    return {account for lanes in runs.values_list("lanes", flat=True)[:MOST_RUNS] for account in lanes}


def _with_steps(until: datetime) -> QuerySet[Run]:
    """Return the runs that a follow-up of is due until then, the soonest first."""
    runs = Run.objects.filter(next_step_at__lte=until, reminder__archived=False)
    runs = runs.exclude(reminder__follow_up_days=[])  # they were removed: see `sequences.reason_to_stop`
    return runs.exclude(status=Run.Status.CANCELED).order_by("next_step_at")


def steps_of_runs(accounts: Collection[int], until: datetime) -> list[PlannedStep]:
    """Return the follow-ups that runs of these accounts will have until then."""
    runs = _with_steps(until).filter(lanes__overlap=list(accounts)).defer("parts", "reply_parts")
    rows = list(runs.select_related("reminder__account", "reminder__owner")[:MOST_RUNS])
    left = Q(status__in=(RunTarget.Status.PENDING, RunTarget.Status.SENDING))
    sent = Q(status=RunTarget.Status.SENT)
    counted = RunTarget.objects.filter(left | (sent & SILENT), run__in=rows).order_by()
    shares: dict[int, dict[int, int]] = {run.pk: {} for run in rows}
    for run_id, account, n in counted.values_list("run_id", "account_id").annotate(n=Count("pk")) if rows else ():
        shares[run_id][account] = n
    return [
        PlannedStep(at, run.reminder, number, shares[run.pk], len(step["parts"]), run.kinds)
        for run in rows
        for number, (at, step) in enumerate(
            zip(step_moments(run.steps, run.scheduled_for, run.timezone), run.steps), start=1
        )
        if run.next_step_at is not None and run.next_step_at <= at <= until
    ]


def steps_of_firing(
    reminder: Reminder, at: datetime, shares: Mapping[int, int], until: datetime, kinds: Collection[str] = ()
) -> list[PlannedStep]:
    """Return the follow-ups of a firing to come, until then; at most everyone gets them."""
    steps = [{"days": days} for days in reminder.follow_up_days]
    parts = [0] * len(steps)
    for part in reminder.follow_up_parts.all() if steps else ():
        if part.step <= len(parts):
            parts[part.step - 1] += 1
    moments = enumerate(step_moments(steps, at, reminder.timezone), start=1)
    return [PlannedStep(m, reminder, n, shares, parts[n - 1], kinds) for n, m in moments if m <= until and parts[n - 1]]
