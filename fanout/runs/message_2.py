"""Message 2: a second message for persons who reply to Message 1 within a day.

It goes out in a run of its own, which answers the run of Message 1: made with the first reply, one target per person
ever, ahead of the account's other work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.addresses import GROUP_KINDS
from fanout.database import Row, carry_out, execute
from fanout.lanes.account_state import CALENDAR_COLUMNS, calendar_of
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Event, PauseReason, Run, RunTarget
from fanout.models.run import window_of
from fanout.rules.gates import CLOSED_FOR_A_DAY, TOO_LATE, late_words
from fanout.runs import texts, transitions
from reminders.moments import wall_clock
from reminders.placeholders import lacking, required_in

Status = RunTarget.Status

WITHIN = timedelta(hours=24)  # a reply to Message 1; and Message 2 after the reply
TITLE = " (Message 2)"
TITLE_LENGTH = 200


# --- a reply ------------------------------------------------------------------------------------------------

# Message 1, its run, the hours of its account and the Message 2 that its run has: everything that decides, at once. Who
# got Message 2 is found by the recipients with that address, which have an index; the address has none.
MESSAGE_1 = f"""
SELECT t.id, t.status, t.claimed_at, t.settled_at, t.in_doubt, t.account_id, coalesce(t.values, '{{}}') AS values,
       r.id AS run, r.status AS run_status, r.pause_reason, r.reply_parts,
       r.timezone, r.window_start_hour, r.window_end_hour, r.window_closes_at,
       {", ".join(f"a.{column} AS account_{column}" for column in CALENDAR_COLUMNS)},
       m.id AS message_2, m.status AS message_2_status, m.window_closes_at AS message_2_closes_at,
       lost.part AS lost_part, lost.claimed_at AS lost_at,
       EXISTS (SELECT FROM fanout_runtarget o
                WHERE o.recipient_id = ANY(%(people)s::bigint[]) AND o.run_id = m.id) AS had_message_2
  FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id JOIN accounts_account a ON a.id = t.account_id
  LEFT JOIN fanout_run m ON m.answers_id = r.id
  -- A Message 2 that a machine had claimed, and that the database has lost with its target: what else this reminder
  -- sent to this person after Message 1.
  LEFT JOIN LATERAL (
    SELECT l.part, l.claimed_at FROM fanout_lostclaim l
     WHERE l.address = t.address AND l.reminder_id = r.reminder_id AND l.account_id = t.account_id
       AND l.run_id <> r.id AND NOT l.target_found AND l.claimed_at >= coalesce(t.claimed_at, '-infinity')
     ORDER BY l.part DESC, l.claimed_at DESC LIMIT 1) AS lost ON true
 WHERE t.id = %(target)s
"""


def queue_for_reply(target_id: int, people: Sequence[int], replied_at: datetime, now: datetime) -> str:
    """Queue Message 2 for the person who replied to this target, through any of these recipients; returns in words what
    was done. The caller has locked the runs of both messages."""
    (message_1,) = execute(MESSAGE_1, {"target": target_id, "people": list(people)})
    if message_1["run_status"] == Run.Status.CANCELED:
        return "no Message 2: its run was canceled"
    if not in_time(message_1, replied_at):
        return "no Message 2: the reply came more than 24 hours after Message 1"
    if message_1["message_2_status"] == Run.Status.CANCELED:
        return "no Message 2: it was canceled"
    if message_1["had_message_2"]:
        return "no second Message 2"
    expires_at, opens = replied_at + WITHIN, _opens(message_1, now)
    if opens is None or opens >= expires_at:
        return _only_count(message_1, TOO_LATE if now >= expires_at else CLOSED_FOR_A_DAY, expires_at, now)
    if lacks := set(required_in(json.loads(message_1["reply_parts"]))) - set(json.loads(message_1["values"])):
        return _only_count(message_1, lacking(lacks), expires_at, now)
    if not _send(message_1, expires_at, opens, now):
        return f"Message 2: {texts.MAY_HAVE_GONE_OUT}"
    return "Message 2 queued" if opens <= now else f"Message 2 waits for {wall_clock(opens, message_1['timezone'])}"


def in_time(message_1: Row, replied_at: datetime) -> bool:
    """Return whether the reply came within a day of Message 1's last part, or before that part."""
    if message_1["status"] in (Status.PENDING, Status.SENDING):
        return True
    # One that went out in part, or perhaps, ended with its last try; a bounce that came later settles it anew, and so
    # does the word of an operator or of a late receipt.
    answered = message_1["status"] == Status.SENT and not message_1["in_doubt"]
    ended_at = message_1["settled_at"] if answered else message_1["claimed_at"]
    return ended_at is None or replied_at <= ended_at + WITHIN


def _opens(message_1: Row, now: datetime) -> datetime | None:
    """Return when the run's window and the account's hours are both open."""
    hours = calendar_of({column: message_1[f"account_{column}"] for column in CALENDAR_COLUMNS})
    return window_of(message_1).meets(hours, now)


def _only_count(message_1: Row, why: str, expires_at: datetime, now: datetime) -> str:
    """Add it as skipped: it cannot go out any more, and is only counted."""
    run = message_1["message_2"] or _make(message_1, now, now).pk
    settled = {"status": Status.SKIPPED, "why": why, "settled_at": now}
    execute(ADD, _added(run, message_1, expires_at, now) | settled)
    carry_out(transitions.rejudge(run, now))
    return f"no Message 2: {why}"


def _make(message_1: Row, opens: datetime, now: datetime) -> Run:
    parent = Run.objects.get(pk=message_1["run"])
    run = Run.objects.create(
        answers=parent,
        reminder_id=parent.reminder_id,
        account_id=message_1["account_id"],
        lanes=[message_1["account_id"]],
        kinds=[kind for kind in parent.kinds if kind not in GROUP_KINDS],  # people reply
        owner_id=parent.owner_id,
        team_id=parent.team_id,
        title=parent.title[: TITLE_LENGTH - len(TITLE)] + TITLE,
        action=parent.action,
        archived=parent.archived,
        scheduled_for=now,
        parts=parent.reply_parts,
        timezone=parent.timezone,
        window_start_hour=parent.window_start_hour,
        window_end_hour=parent.window_end_hour,
        window_closes_at=parent.window.closes_on(opens),
        auto_resume=True,
        resume_after_limit=True,
        # Nothing to send yet: the first target reopens it.
        status=Run.Status.SUCCESS,
        finished_at=now,
    )
    Event.objects.create(run=run, at=now, verb="fired", detail="the first reply came")
    return run


def _send(message_1: Row, expires_at: datetime, opens: datetime, now: datetime) -> bool:
    """Add the target to Message 2 and wake its lane. Returns False where it may have gone out before the database lost
    it: then it is unconfirmed."""
    paused = message_1["run_status"] == Run.Status.PAUSED and message_1["pause_reason"] == PauseReason.OPERATOR
    run = message_1["message_2"] or _make(message_1, opens, now).pk
    # Widened as far as the Message 2 was; a new one has the window of its Message 1.
    window = window_of(
        message_1 | {"window_closes_at": message_1["message_2_closes_at"] or message_1["window_closes_at"]}
    )
    lanes = carry_out(
        transitions.reopen_for_account(run, message_1["account_id"], window.closes_on(opens), paused, now)
    )
    waits: dict[str, Any] = {"status": Status.PENDING, "why": "", "settled_at": None}
    if lost := message_1["lost_at"] is not None:
        waits |= {"status": Status.UNCONFIRMED, "why": texts.MAY_HAVE_GONE_OUT, "kind": "unknown", "tries": 1}
        waits |= {"part": message_1["lost_part"], "claimed_at": message_1["lost_at"]}
    execute(ADD, _added(run, message_1, expires_at, max(opens, now)) | waits)
    wake_lanes(lanes, now)
    return not lost


ADD = """
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, "values", planned_at, expires_at,
                              status, error, settled_at, parts_sent, attempts, claimed_at, claim_epoch, provider_id,
                              error_kind, in_doubt)
SELECT r.id, t.account_id, t.recipient_id, r.total + 1, t.address, t.values, %(planned_at)s, %(expires_at)s,
       %(status)s, %(why)s, %(settled_at)s, %(part)s, %(tries)s, %(claimed_at)s, 0, '', %(kind)s, %(kind)s = 'unknown'
  FROM fanout_run r, fanout_runtarget t WHERE r.id = %(run)s AND t.id = %(message_1)s
"""


def _added(run: int, message_1: Row, expires_at: datetime, planned_at: datetime) -> dict[str, Any]:
    never_tried = {"part": 0, "tries": 0, "claimed_at": None, "kind": ""}
    return {
        "run": run,
        "message_1": message_1["id"],
        "expires_at": expires_at,
        "planned_at": planned_at,
        **never_tried,
    }


def skip_expired(now: datetime) -> int:
    """Skip targets that waited too long for their window, cap or operator. Called every minute."""
    expiring = Q(answers__isnull=False) | ~Q(collects="")
    waiting = Run.objects.filter(expiring, status__in=[*Run.LIVE, Run.Status.PAUSED], pending__gt=0)
    return sum(_skip_expired(run_id, now) for run_id in waiting.values_list("pk", flat=True))


def _skip_expired(run_id: int, now: datetime) -> int:
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
        expired = run.targets.filter(status=Status.PENDING, expires_at__lte=now)
        return carry_out(
            transitions.take_out(list(expired.values_list("pk", flat=True)), late_words(run.collects), now)
        )


# --- what the operator reads ----------------------------------------------------------------------------------


def listed(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return the runs of a list: Message 2 is shown with Message 1, unless it waits for an operator."""
    return runs.filter(Q(answers__isnull=True) | Q(status=Run.Status.PAUSED, resume_at__isnull=True))


def summary(run: Run, now: datetime) -> str:
    """Return “212 sent, 14 waiting for 06:00, 3 too late” for a Message 2."""
    too_late = run.targets.filter(status=Status.SKIPPED, error=TOO_LATE).count()
    counts = [
        (run.sent, "sent"),
        (run.pending + run.sending, _waiting(run, now)),
        (too_late, "too late"),
        (run.skipped - too_late, "skipped"),
        (run.failed, "failed"),
        (run.unconfirmed, "unconfirmed"),
    ]
    return ", ".join(f"{n} {word}" for n, word in counts if n) or "0 sent"


def _waiting(run: Run, now: datetime) -> str:
    until = run.resume_at if run.status == Run.Status.PAUSED else run.waiting_until
    if until is not None:
        return f"waiting for {wall_clock(until, run.timezone, now)}"
    return f"waiting, {run.get_pause_reason_display()}" if run.status == Run.Status.PAUSED else "on their way"
