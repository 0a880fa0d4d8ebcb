"""A large run gets its targets in chunks, by a task of its own.

A reminder with a million targets takes a minute to copy. In one transaction that would pass the task's time limit, be
rolled back, and come first again every minute. So the run is made at once, with the status "being prepared"; each chunk
is durable, whoever comes next goes on with what the run has not got yet, and then the run is queued like any other.
"""

from __future__ import annotations

import time
from datetime import datetime
from itertools import islice

from django.db import transaction
from django.db.models import QuerySet

from fanout.lanes.wake import wake_lanes_at
from fanout.models import Run
from fanout.plans.planning import PlannedTarget
from fanout.plans.queue import uncopied
from fanout.runs.admission import note_refused
from fanout.runs.firing import plan_targets
from fanout.runs.freezing import freeze

CHUNK = 10_000
WORK_FOR = 35.0  # seconds: well within the task's time limit; the next task goes on


def unprepared() -> list[int]:
    return list(Run.objects.filter(status=Run.Status.PREPARING).order_by("scheduled_for").values_list("pk", flat=True))


def prepare(run_id: int, now: datetime) -> bool:
    """Copy chunks for a while. False: there is more to copy."""
    run = Run.objects.select_related("reminder", "account").filter(pk=run_id, status=Run.Status.PREPARING).first()
    if run is None:
        return True
    until = time.monotonic() + WORK_FOR
    planned = plan_targets(run, now)
    while chunk := list(islice(planned, CHUNK)):
        if not prepare_chunk(run, chunk, now):
            return True
        if time.monotonic() >= until:
            return False
    if uncopied(run).exists():  # added while we were at it
        return False
    _queue(run, now)
    return True


def prepare_chunk(run: Run, chunk: list[PlannedTarget], now: datetime) -> bool:
    """One chunk, in its own transaction. False: the run was canceled, or somebody else is at it: our plan would then
    belong to other moments."""
    with transaction.atomic():
        if not _as_we_left_it(run).select_for_update().exists():
            return False
        freeze(run, chunk, now)
        note_refused(run, chunk, now)
    return True


def _queue(run: Run, now: datetime) -> None:
    with transaction.atomic():
        if _as_we_left_it(run).update(status=Run.Status.QUEUED):
            # Also where the window is over by now: the lane then skips the targets, chunk by chunk.
            wake_lanes_at(dict.fromkeys(run.lanes, run.scheduled_for), now)


def _as_we_left_it(run: Run) -> QuerySet[Run]:
    return Run.objects.filter(pk=run.pk, status=Run.Status.PREPARING, total=run.total)
