"""A reminder that is due becomes a run with frozen parts and targets. Idempotent per reminder and moment."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import Account
from fanout.lanes.poke import poke
from fanout.lanes.statements import carry_out
from fanout.models import Event, Run
from fanout.runs import transitions
from fanout.runs.forecast import account_plan
from fanout.runs.planning import Planned, freeze_planned, plan
from reminders import usable
from reminders.models import Reminder, ReminderMessage

log = logging.getLogger("crier.firing")

AHEAD = timedelta(seconds=60)  # runs are made this long before they start, so that they start on their second
MISSED_AT_MOST = 100  # firings of one reminder recorded after a downtime


def fire_due(now: datetime) -> list[Run]:
    """Make the runs that are due within the next minute, and account for those that were missed."""
    due = Reminder.objects.filter(enabled=True, next_fire_at__lte=now + AHEAD).order_by("next_fire_at")
    runs = []
    for reminder in due.select_related("account"):
        try:
            runs += fire_reminder(reminder, now)
        except Exception:  # one broken reminder must not stop the others
            log.exception("a reminder could not be fired", extra={"reminder": reminder.pk})
    return runs


def fire_reminder(reminder: Reminder, now: datetime) -> list[Run]:
    """The firings of one reminder that are due. Of several missed ones only the last is made up for: nobody
    wants the same text ten times because the machine was off."""
    with transaction.atomic():  # all of them and the next time, or none: a kill in between loses no firing
        return _fire_moments(reminder, now)


def _fire_moments(reminder: Reminder, now: datetime) -> list[Run]:
    moments = _due_moments(reminder, now)
    missed = [moment for moment in moments if moment < now - AHEAD]
    note = "Missed while Crier was not running; a later firing of the same reminder took its place."
    runs = [make_run(reminder, moment, now, skip=note) for moment in missed[:-1]]
    runs += [make_run(reminder, moment, now) for moment in [*missed[-1:], *moments[len(missed) :]]]
    return [run for run in runs if run is not None]


def _due_moments(reminder: Reminder, now: datetime) -> list[datetime]:
    moments = []
    while reminder.next_fire_at is not None and reminder.next_fire_at <= now + AHEAD:
        moments.append(reminder.next_fire_at)
        reminder.plan_next(after=reminder.next_fire_at)
        if len(moments) >= MISSED_AT_MOST:
            reminder.plan_next(after=now + AHEAD)
    return moments


def make_run(
    reminder: Reminder, scheduled_for: datetime, now: datetime, *, actor: Any = None, skip: str = ""
) -> Run | None:
    """None: this moment already has its run."""
    skip = skip or reason_to_skip(reminder)
    try:
        with transaction.atomic():
            run = Run.objects.create(**frozen(reminder, scheduled_for), **(_skipped(skip, now) if skip else {}))
            Event.objects.create(run=run, actor=actor, at=now, verb="fired", detail=skip)
            if not skip:
                _send_off(run, reminder, now)
            Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=reminder.next_fire_at)
    except IntegrityError:
        Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=reminder.next_fire_at)
        return None
    return run


def _skipped(reason: str, now: datetime) -> dict[str, Any]:
    return {"status": Run.Status.SKIPPED, "error_summary": reason, "finished_at": now}


def _send_off(run: Run, reminder: Reminder, now: datetime) -> None:
    """Freeze the targets with their plan and tell the lanes; where the window is over, fail at once."""
    freeze_planned(run, _plan(run, reminder, now))
    if run.window_closes_at <= now:
        carry_out(transitions.fail_unstarted(run.pk, now))
    else:
        poke(run.lanes, run.scheduled_for)
    run.refresh_from_db()


def _plan(run: Run, reminder: Reminder, now: datetime) -> Iterable[Planned]:
    """Account and moment for every target. One account, unless the operator chose several to take turns."""
    starts = max(now, run.scheduled_for)
    senders = list(reminder.rotation.filter(status=Account.Status.ACTIVE)) or [run.account]
    accounts = [account_plan(account, run.action, starts) for account in senders]
    return plan(reminder.targets.count(), accounts, run.window, starts, parts=len(run.parts), seed=run.pk)


def reason_to_skip(reminder: Reminder) -> str:
    account = Account.objects.get(pk=reminder.account_id)
    if account.status != Account.Status.ACTIVE and not reminder.rotation.filter(status=Account.Status.ACTIVE).exists():
        reason = f": {account.status_reason}" if account.status_reason else ""
        return f"The account {account.label} is {account.status}{reason}."
    if problem := usable.problem(reminder, reminder.owner):
        return f"Its owner may not send this any more. {problem}"
    if not reminder.targets.exists():
        return "The reminder has no targets."
    if not reminder.messages.exists():
        return "The reminder has no message."
    return ""


def frozen(reminder: Reminder, scheduled_for: datetime) -> dict[str, Any]:
    """What a run copies of its reminder: later edits change nothing in it."""
    return {
        "reminder": reminder,
        "account": reminder.account,
        "lanes": [reminder.account_id],
        "owner_id": reminder.owner_id,
        "team_id": reminder.team_id,
        "title": reminder.title,
        "action": reminder.action,
        "scheduled_for": scheduled_for,
        "parts": [frozen_part(reminder, message) for message in reminder.messages.select_related("media")],
        "timezone": reminder.timezone,
        "window_start_hour": reminder.delivery_window_start_hour,
        "window_end_hour": reminder.delivery_window_end_hour,
        "window_closes_at": reminder.window.closes_on(scheduled_for),
        "auto_resume": reminder.auto_resume,
    }


def frozen_part(reminder: Reminder, message: ReminderMessage) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": message.kind, "text": message.text}
    if reminder.subject:
        part["subject"] = reminder.subject
    if message.html:
        part["html"] = message.html
    if message.media is not None:
        file = message.media
        part["media"] = {
            "id": file.pk, "sha256": file.sha256, "filename": file.filename, "mime": file.mime, "size": file.size,
            "path": file.file.name,
        }  # fmt: skip
    return part
