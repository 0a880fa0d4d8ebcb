"""Plan what is pending anew: after it moved to another account, was resumed, or exceeds a cap.

A plan grants nothing: the gates decide again when a target is sent.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from django.db import connection, transaction
from django.db.models import Exists, Q

from accounts.addresses import NEW_CHAT_KINDS
from accounts.models import Account
from fanout.database import LOCK_RUNS, execute
from fanout.lanes.chats import chats_with
from fanout.models import Run, RunTarget
from fanout.plans.projection import Queued, as_datetime, project_sends
from fanout.plans.queue import account_snapshot
from fanout.runs.transitions import UNFINISHED

PLAN_CHUNK = 2_000

# Skip what a claim has locked at this moment: waiting for each other's targets would be a deadlock.
PLAN = """
UPDATE fanout_runtarget t SET planned_at = p.at
  FROM unnest(%s::bigint[], %s::timestamptz[]) AS p(id, at)
 WHERE t.id = p.id
   AND t.id IN (SELECT id FROM fanout_runtarget WHERE id = ANY(%s) AND status = 'pending'
                 ORDER BY id FOR UPDATE SKIP LOCKED)
"""

# Delays of the old plan say nothing about the new one.
FORGET_DELAYS = f"""
UPDATE fanout_run SET delays = delays - %s::text
 WHERE status IN {UNFINISHED} AND delays ? %s::text AND (%s::bigint IS NULL OR id = %s)
"""


def plan_anew(account: Account, now: datetime, only: Run | None = None, until: float = float("inf")) -> None:
    """Plan what the account has pending anew, in all its runs or in one; in chunks, each in its own transaction where
    none is open. `until`: by the monotonic clock; what is not planned by then keeps the plan that it has."""
    planned = _planned(account, now, only)
    while time.monotonic() < until and (chunk := list(islice(planned, PLAN_CHUNK))):
        ids = [pk for pk, _ in chunk]
        with transaction.atomic(), connection.cursor() as cursor:
            # Before their targets: where they are several, the statement's trigger locks them too.
            runs = RunTarget.objects.filter(pk__in=ids).order_by().values_list("run_id", flat=True).distinct()
            execute(LOCK_RUNS, {"runs": list(runs)})
            cursor.execute(PLAN, [ids, [at for _, at in chunk], ids])
    run = only.pk if only else None
    with connection.cursor() as cursor:
        cursor.execute(FORGET_DELAYS, [account.pk, account.pk, run, run])


def _planned(account: Account, now: datetime, only: Run | None) -> Iterator[tuple[int, datetime]]:
    snapshot = account_snapshot(account, now)
    queue = snapshot.queued_before
    limited = {queued.run_id for queued in queue if queued.new_chats}
    retrying = {queued.run_id for queued in queue if queued.retries}
    targets = {
        n: _targets(queued, account, queued.run_id in limited, queued.run_id in retrying)
        for n, queued in enumerate(queue)
        if queued.due and (only is None or queued.run_id == only.pk)
    }
    for number, _, at, first, _ in project_sends(snapshot, queue, now, random.Random(account.pk)):
        if first and number in targets and (pk := next(targets[number], None)) is not None:
            yield pk, as_datetime(at)


def _targets(queued: Queued, account: Account, limited: bool, retrying: bool) -> Iterator[int]:
    """Return the targets in the lane's order: those that have had a part come first. Where new chats have limits, or
    some wait for another try, only those of its kind."""
    left = RunTarget.objects.filter(run=queued.run_id, account=account, status__in=("pending", "sending"))
    if retrying:
        left = left.filter(next_attempt_at__isnull=not queued.retries)
    if limited and not queued.retries:
        new = Q(status="pending", recipient__kind__in=NEW_CHAT_KINDS) & ~Exists(chats_with(account.pk))
        left = left.filter(new) if queued.new_chats else left.exclude(new)
    return left.order_by("-parts_sent", "position", "id").values_list("pk", flat=True).iterator(PLAN_CHUNK)


def plan_resumed(run: Run, now: datetime) -> None:
    """Plan a run that goes on in another window than it was planned for. Its old plan, moved as a whole, would keep the
    nights of the old window. A large run keeps it: writing a time to each of its targets takes longer than a person
    waits."""
    if run.pending <= PLAN_CHUNK:
        for account in Account.objects.filter(pk__in=run.lanes).order_by("pk"):
            plan_anew(account, now, run)
