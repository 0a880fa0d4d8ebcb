"""Planning anew what an account owes: after an offload, and where more was planned for a day than its cap allows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from django.db import connection, transaction
from django.db.models import Exists, Q

from accounts.addresses import PERSON
from accounts.models import Account
from fanout.lanes.new_chats import chats_with
from fanout.models import Run, RunTarget
from fanout.plans.projection import Queued, moment, walk
from fanout.plans.queue import account_plan
from fanout.runs.transitions import UNFINISHED

CHUNK = 2_000

# Not what a claim has in its hands at this moment: whoever waited for the other's targets would wait for ever.
PLAN = """
UPDATE fanout_runtarget t SET planned_at = p.at
  FROM unnest(%s::bigint[], %s::timestamptz[]) AS p(id, at)
 WHERE t.id = p.id
   AND t.id IN (SELECT id FROM fanout_runtarget WHERE id = ANY(%s) AND status = 'pending'
                 ORDER BY id FOR UPDATE SKIP LOCKED)
"""

# What moved the old plan says nothing about the new one.
FORGET_SLIPS = f"""
UPDATE fanout_run SET slips = slips - %s::text
 WHERE status IN {UNFINISHED} AND slips ? %s::text AND (%s::bigint IS NULL OR id = %s)
"""


def plan_anew(account: Account, now: datetime, only: Run | None = None) -> None:
    """New times for what the account has pending, in all its runs or in one; in chunks, each in its own transaction
    where none is open."""
    planned = _planned(account, now, only)
    while chunk := list(islice(planned, CHUNK)):
        ids = [pk for pk, _ in chunk]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(PLAN, [ids, [at for _, at in chunk], ids])
    run = only.pk if only else None
    with connection.cursor() as cursor:
        cursor.execute(FORGET_SLIPS, [account.pk, account.pk, run, run])


def _planned(account: Account, now: datetime, only: Run | None) -> Iterator[tuple[int, datetime]]:
    plan = account_plan(account, now)
    queue = plan.queued_before
    limited = {queued.run_id for queued in queue if queued.new_chats}
    targets = {
        n: _targets(queued, account, queued.run_id in limited)
        for n, queued in enumerate(queue)
        if queued.due and (only is None or queued.run_id == only.pk)
    }
    for number, _, at, first, _ in walk(plan, queue, now, random.Random(account.pk)):
        if first and number in targets and (pk := next(targets[number], None)) is not None:
            yield pk, moment(at)


def _targets(queued: Queued, account: Account, limited: bool) -> Iterator[int]:
    """In the order in which the lane takes them: those that have had a part come first. Where new chats have limits,
    only those of its kind."""
    left = RunTarget.objects.filter(run=queued.run_id, account=account, status__in=("pending", "sending"))
    if limited:
        new = Q(status="pending", recipient__kind=PERSON) & ~Exists(chats_with(account.pk))
        left = left.filter(new) if queued.new_chats else left.exclude(new)
    return left.order_by("-parts_sent", "position", "id").values_list("pk", flat=True).iterator(CHUNK)
