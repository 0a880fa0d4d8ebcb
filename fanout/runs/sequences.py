"""Follow-ups that a reminder sends by itself, some days after a firing, to those who have not replied.

A firing freezes its follow-ups with its own parts (`Run.steps`). When one is due, it becomes a run of its own that
follows the first: through the account that each person knows, as a follow-up like any other. So the attempts, the
cooldown, the backpressure and a reply that comes meanwhile apply as they always do.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from fanout.database import raise_unless
from fanout.lanes.lane_rows import wake_lanes_at
from fanout.models import Event, Run
from fanout.plans.audience import recipients_of, unanswered
from fanout.plans.follow_up_steps import step_moments, step_title
from fanout.runs.firing import AHEAD, LARGE, Together, send_off
from reminders import readiness

log = logging.getLogger("crier.sequences")

MOST_AT_ONCE = 50
#: the moments of follow-ups that fall together are moved within this time
APART = timedelta(milliseconds=1)
EVERYONE_REPLIED = "no one is left to write to: everyone who got the message has replied"


def fire_follow_ups(now: datetime) -> list[Run]:
    """Make the runs of the follow-ups that are due within the next minute. Called every minute."""
    due = Run.objects.filter(next_step_at__lte=now + AHEAD).order_by("next_step_at").values_list("pk", flat=True)
    runs = []
    for pk in list(due[:MOST_AT_ONCE]):
        try:
            run = fire_step(pk, now)
        except Exception:
            # One that fails must not hold up the others; it is tried again in the next minute.
            log.exception("a follow-up could not be fired", extra={"run": pk})
            continue
        if run is not None:
            runs.append(run)
    return runs


def fire_step(pk: int, now: datetime) -> Run | None:
    """Make the run of the follow-up that is due, and note when the next one is; None: there is nothing to send."""
    with transaction.atomic():
        # Left to the next minute while another session works on the run.
        due = Run.objects.filter(pk=pk, next_step_at__lte=now + AHEAD)
        parent = due.select_for_update(no_key=True, skip_locked=True, of=("self",)).select_related("reminder").first()
        if parent is None or parent.next_step_at is None:
            return None
        moments = step_moments(parent.steps, parent.scheduled_for, parent.timezone)
        number = 1 + sum(at < parent.next_step_at for at in moments)
        stopped, at = reason_to_stop(parent), parent.next_step_at
        later = [at for at in moments if at > parent.next_step_at]
        parent.next_step_at = later[0] if later and not stopped else None
        parent.save(update_fields=["next_step_at"])
        if stopped or not unanswered(parent.pk, at).exists():
            detail = f"follow-up {number}: {stopped or EVERYONE_REPLIED}"
            Event.objects.create(run=parent, at=now, verb="no follow-up", detail=detail)
            return None
        return _make(parent, number, at, now)


def reason_to_stop(parent: Run) -> str:
    """Return why no further follow-up of the run goes out, in words, or nothing."""
    if parent.status == Run.Status.CANCELED:
        return "the run was canceled"
    if parent.reminder.archived:
        return "the reminder is archived"
    if not parent.reminder.follow_up_days:
        return "the reminder has no follow-ups any more"
    if problem := readiness.rights_problem(parent.reminder, parent.reminder.owner):
        return f"its owner may not send this any more. {problem}"
    return ""


def _make(parent: Run, number: int, at: datetime, now: datetime) -> Run | None:
    together = Together()
    try:
        with transaction.atomic():
            run = Run.objects.create(**frozen_step(parent, number, _free_moment(parent, at)))
            detail = f"follow-up {number} of run {parent.pk}"
            Event.objects.create(run=run, at=now, verb="fired", detail=detail)
            send_off(run, recipients_of(run)[: LARGE + 1].count(), now, together)
    except IntegrityError as error:
        raise_unless(error, "run_one_follow_up_per_step")
        return None  # this follow-up exists
    wake_lanes_at(together.due, now)
    return run


def _free_moment(parent: Run, at: datetime) -> datetime:
    """Return the moment at which the reminder has no run yet: each moment has one. Firings of 02:30 in summer time and
    an hour later in winter time, or of the hour that is left out in spring, have follow-ups at the same moment."""
    taken = set(
        parent.reminder.runs.filter(scheduled_for__range=(at, at + APART)).values_list("scheduled_for", flat=True)
    )
    while at in taken:
        at += timedelta(microseconds=1)
    return at


def frozen_step(parent: Run, number: int, at: datetime) -> dict[str, Any]:
    """Return the fields of a follow-up's run: those of the run before, with parts and a moment of its own."""
    return {
        "reminder": parent.reminder,
        "account_id": parent.account_id,
        "lanes": [parent.account_id],
        "owner_id": parent.owner_id,
        "team_id": parent.team_id,
        "title": step_title(parent.title, number),
        "action": parent.action,
        "scheduled_for": at,
        "parts": parent.steps[number - 1]["parts"],
        "reply_parts": parent.reply_parts,
        "timezone": parent.timezone,
        "window_start_hour": parent.window_start_hour,
        "window_end_hour": parent.window_end_hour,
        "window_closes_at": parent.window.closes_on(at),
        "auto_resume": parent.auto_resume,
        "resume_after_limit": parent.resume_after_limit,
        "follow_up": True,
        "urgency": parent.urgency,
        "follows": parent,
        "step": number,
    }
