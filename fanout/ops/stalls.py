"""Lanes that should send and do not: noticed, told and freed."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction

from fanout.database import Row, carry_out, execute
from fanout.lanes.telling import add_event, tell
from fanout.lanes.wake import wake_lanes
from fanout.models import Event
from fanout.models.run import lane_order
from fanout.runs import texts
from fanout.runs.transitions import LIVE

log = logging.getLogger("crier.stalls")

NO_PROGRESS_FOR = timedelta(minutes=5)
TELL_AGAIN_AFTER = timedelta(hours=1)
VERB = "stalled"

# When the window opens of which a run knows the end.
OPENS = """(date_trunc('day', (r.window_closes_at AT TIME ZONE r.timezone) - interval '1 second')
                   + make_interval(hours => r.window_start_hour)) AT TIME ZONE r.timezone"""

# A run that should be under way: begun, or due and not even taken up, or at the end of its wait.
SHOULD_SEND = f"""(r.status = 'running' AND r.started_at < %(before)s
                 OR r.status = 'queued' AND r.scheduled_for < %(before)s AND {OPENS} < %(before)s
                 OR r.status = 'waiting' AND r.waiting_until < %(before)s)"""

# A recipient whom an earlier run of the lane owes something first, such as a retry: nothing overtakes (sql.TARGETS).
OWED_FIRST = f"""EXISTS (
                 SELECT FROM fanout_run b JOIN fanout_runtarget e ON e.run_id = b.id AND e.recipient_id = t.recipient_id
                  WHERE e.status IN ('pending', 'sending') AND b.id <> r.id
                    AND (b.id = r.answers_id OR (b.status IN {LIVE} AND b.lanes @> ARRAY[l.account_id]
                                                 AND ({lane_order("b")}) < ({lane_order("r")}))))"""

# Not parked, nothing claimed or recorded for long, no wait of its own, and something that may be sent.
STALLED = f"""
SELECT a.id, a.label, a.owner_id, a.team_id,
       (SELECT count(*) FROM fanout_runtarget f
         WHERE f.account_id = a.id AND f.status = 'sending' AND f.claimed_at < %(before)s) AS unstored
  FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id
 WHERE a.status = 'active' AND l.due_at <= %(now)s AND l.progress_at < %(before)s
   AND (l.next_send_at IS NULL OR l.next_send_at < %(before)s)
   AND EXISTS (SELECT FROM fanout_run r
                WHERE r.lanes @> ARRAY[l.account_id] AND {SHOULD_SEND}
                  AND EXISTS (SELECT FROM fanout_runtarget t
                               WHERE t.run_id = r.id AND t.account_id = l.account_id AND t.status = 'pending'
                                 AND (t.next_attempt_at IS NULL OR t.next_attempt_at < %(before)s)
                                 AND NOT {OWED_FIRST}))
 ORDER BY l.account_id
"""

# Whoever holds it is fenced: it stops, and the next driver takes the lane.
FENCE = "UPDATE fanout_lanestate SET epoch = epoch + 1, holder = '' WHERE account_id = %(account)s"


def free_stalled(now: datetime) -> int:
    """Called every minute. How many lanes stood still."""
    rows = execute(STALLED, {"now": now, "before": now - NO_PROGRESS_FOR})
    for row in rows:
        log.error("a lane has made no progress", extra={"account": row["id"]})
        _free(row, now)
    return len(rows)


def _free(row: Row, now: datetime) -> None:
    account = row["id"]
    recent = Event.objects.filter(account=account, verb=VERB, at__gte=now - TELL_AGAIN_AFTER)
    with transaction.atomic():
        execute(FENCE, {"account": account})
        wake_lanes([account], now)
        if recent.exists():
            return
        cause = f": {texts.unstored(row['unstored'])}" if row["unstored"] else " although it could; it is tried anew"
        detail = f"Nothing was sent for {NO_PROGRESS_FOR.seconds // 60} minutes{cause}."
        execute(*add_event(now, VERB, detail, account=account))
        carry_out(tell(row, "Account stalled", detail, "warning", now))
