"""A large run gets its targets in chunks, by a task of its own.

A reminder with a million targets takes a minute to copy. In one transaction that would pass the task's time limit, be
rolled back, and come first again every minute. So the run is made at once, with the status "being prepared"; each chunk
is durable, whoever comes next goes on after the last one, and then the run is queued like any other.
"""

from __future__ import annotations

import time
from datetime import datetime
from itertools import islice

from django.db import transaction

from fanout.lanes.poke import poke
from fanout.models import Run
from fanout.runs.admission import note_refused
from fanout.runs.firing import plan_targets
from fanout.runs.planning import Planned, freeze

CHUNK = 10_000
WORK_FOR = 35.0  # seconds: well within the task's time limit; the next task goes on


def unprepared() -> list[int]:
    return list(Run.objects.filter(status=Run.Status.PREPARING).order_by("scheduled_for").values_list("pk", flat=True))


def prepare(run_id: int, now: datetime) -> bool:
    """Copy chunks for a while. False: there is more to copy."""
    run = Run.objects.select_related("reminder", "account").filter(pk=run_id, status=Run.Status.PREPARING).first()
    if run is None:
        return True
    planned = plan_targets(run, run.reminder, now)
    list(islice(planned, run.total))  # what earlier chunks have used
    until = time.monotonic() + WORK_FOR
    while time.monotonic() < until:
        if not prepare_chunk(run, list(islice(planned, CHUNK)), now):
            return True
    return False


def prepare_chunk(run: Run, planned: list[Planned], now: datetime) -> bool:
    """One chunk, in its own transaction. False: that was the last, or the run was canceled, or somebody else is at it:
    our plan would then belong to other targets."""
    with transaction.atomic():
        locked = Run.objects.select_for_update().filter(pk=run.pk, status=Run.Status.PREPARING, total=run.total)
        if not locked.exists():
            return False
        if freeze(run, planned, now, first=run.total, limit=CHUNK):
            note_refused(run, planned, now)
            run.refresh_from_db(fields=["total", "lanes"])
            return True
        locked.update(status=Run.Status.QUEUED)
        # Also where the window is over by now: the lane then skips the targets, chunk by chunk.
        poke(run.lanes, run.scheduled_for)
    return False
