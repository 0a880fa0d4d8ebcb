"""django-q2's scheduler, for Crier's own schedules only."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone
from django_q.models import Schedule
from django_q.scheduler import scheduler

from fanout.ops.payloads import ALLOWED

log = logging.getLogger("crier.schedules")

AHEAD_AT_MOST = timedelta(minutes=2)
_EMPTY = ("", "()", "{}")
#: a schedule of ours names a task of ours, and nothing to give to it or to call after it
OURS = (
    Q(func__in=ALLOWED)
    & (Q(hook=None) | Q(hook=""))
    & (Q(args=None) | Q(args__in=_EMPTY))
    & (Q(kwargs=None) | Q(kwargs__in=_EMPTY))
)


def run_ours(broker: Any = None) -> None:
    """In place of django-q2's own: a strange schedule is removed before it can be run."""
    try:
        remove_strange()
        follow_the_clock(timezone.now())
    except DatabaseError as error:
        log.warning("the schedules could not be checked: %s", error)
        return
    scheduler(broker=broker)


def follow_the_clock(now: datetime) -> int:
    """A schedule of every minute whose next time is further away: the clock was set back. It would stand still for as
    long, and with it all firings."""
    too_far = Schedule.objects.filter(schedule_type=Schedule.MINUTES, next_run__gt=now + AHEAD_AT_MOST)
    pulled_back: int = too_far.update(next_run=now)
    return pulled_back


def remove_strange() -> int:
    """Returns how many there were."""
    strange = Schedule.objects.exclude(pk__in=Schedule.objects.filter(OURS).values("pk"))
    for schedule in strange:
        log.error("schedule %s (%s) is not one of Crier's: removed, not run", schedule.pk, schedule.func[:100])
    removed: int = strange.delete()[0]
    return removed
