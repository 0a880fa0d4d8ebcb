"""A reminder that is due becomes a run with frozen parts and targets. Idempotent per reminder and moment."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import Account
from fanout.models import Event, Notification, Run
from fanout.runs import texts
from fanout.runs.forecast import account_plan
from fanout.runs.lanes import poke
from fanout.runs.planning import Planned, Window, freeze_planned, plan
from reminders.models import Reminder, ReminderMessage
from reminders.window import window_end_at

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
            log.exception("reminder %s could not be fired", reminder.pk)
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
    try:
        with transaction.atomic():
            run = Run.objects.create(**frozen(reminder, scheduled_for))
            _fill(run, reminder, now, skip or reason_to_skip(reminder))
            Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=reminder.next_fire_at)
            Event.objects.create(run=run, actor=actor, at=now, verb="fired", detail=run.error_summary)
    except IntegrityError:
        Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=reminder.next_fire_at)
        return None
    return run


def _fill(run: Run, reminder: Reminder, now: datetime, skip: str) -> None:
    if skip:
        run.status, run.error_summary, run.finished_at = Run.Status.SKIPPED, skip, now
        run.save(update_fields=["status", "error_summary", "finished_at"])
        return
    freeze_planned(run, _plan(run, reminder, now))
    run.refresh_from_db()
    if run.window_closes_at <= now:
        fail_late(run, now)
    else:
        poke(run.lanes, run.scheduled_for)


def _plan(run: Run, reminder: Reminder, now: datetime) -> Iterable[Planned]:
    """Account and moment for every target. One account, unless the operator chose several to take turns."""
    starts = max(now, run.scheduled_for)
    senders = list(reminder.rotation.filter(status=Account.Status.ACTIVE)) or [run.account]
    window = Window(run.timezone, run.window_start_hour, run.window_end_hour)
    accounts = [account_plan(account, run.action, starts) for account in senders]
    return plan(reminder.targets.count(), accounts, window, starts, parts=len(run.parts), seed=run.pk)


def fail_late(run: Run, now: datetime) -> None:
    """Never sent after the window: recorded, with every target skipped."""
    run.targets.filter(status="pending").update(status="skipped", error=texts.WINDOW_CLOSED_UNSTARTED, settled_at=now)
    run.refresh_from_db()
    run.status, run.finished_at = Run.Status.FAILED, now
    run.error_summary = texts.closed_before_start(run.facts())
    run.save(update_fields=["status", "finished_at", "error_summary"])
    told = texts.notification(run.facts())
    if told is not None:
        Notification.objects.create(
            user_id=run.owner_id, run=run, title=told[0], body=told[1], level="warning", created_at=now
        )


def reason_to_skip(reminder: Reminder) -> str:
    account = Account.objects.get(pk=reminder.account_id)
    if account.status != Account.Status.ACTIVE and not reminder.rotation.filter(status=Account.Status.ACTIVE).exists():
        reason = f": {account.status_reason}" if account.status_reason else ""
        return f"The account {account.label} is {account.status}{reason}."
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
        "window_closes_at": window_end_at(reminder.timezone, reminder.delivery_window_end_hour, scheduled_for),
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
