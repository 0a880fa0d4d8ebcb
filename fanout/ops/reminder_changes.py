"""Add reminders and switch them on and off, for the API and the shell: checked as the form checks them, all or nothing,
with an entry in the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts import access
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models.trail import note
from fanout.plans.audience import audience
from fanout.runs.controls import ControlResult
from reminders import media, readiness, schedule, targets, wording
from reminders.imports import Entry
from reminders.models import MediaFile, Recipient, Reminder, ReminderMessage, ReplyPart
from reminders.moments import moment
from reminders.readiness import senders_problem


@dataclass(frozen=True, slots=True)
class NewPart:
    text: str = ""
    html: str = ""
    media: MediaFile | None = None
    template: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return media.kind_of(self.media.filename) if self.media else ReminderMessage.Kind.TEXT.value


@dataclass(slots=True)
class NewReminder:
    """A reminder that is not saved yet, with everything that belongs to it."""

    reminder: Reminder
    senders: Sequence[Account]
    parts: Sequence[NewPart]
    reply_parts: Sequence[NewPart] = ()
    #: the audience: chosen recipients, everyone with one of these tags, and a list
    chosen: Sequence[Recipient] = ()
    tags: Sequence[str] = ()
    listed: Sequence[Entry] = field(default_factory=list)
    #: add it even if all its firings come after its window has closed
    even_if_late: bool = False


@transaction.atomic
def add_reminder(new: NewReminder, user: Any, now: datetime) -> int:
    """Save the reminder; return how many targets it has. `user` None is the shell. Raises ValidationError, by field
    where the problem belongs to one.

    A reminder that lacks a message, an audience or a time is saved as a draft, which is off.
    """
    reminder = new.reminder
    _check(new, user)
    wanted = reminder.enabled
    reminder.enabled = False  # until it is whole
    reminder.full_clean()
    reminder.save()
    reminder.set_further_senders(new.senders)
    _add_parts(reminder, new.parts, ReminderMessage)
    _add_parts(reminder, new.reply_parts, ReplyPart)
    _add_audience(new, user or reminder.owner)
    people = audience(reminder, now)
    count = people.count()
    if problem := wording.reminder_problem(reminder, wording.Audience(people)):
        raise ValidationError({"parts": problem})
    goes_to = count or int(reminder.segment is not None)  # a segment may be empty today
    reminder.enabled = wanted and not readiness.missing(len(new.parts), goes_to, reminder.timed)
    if reminder.enabled:
        _set_time(reminder, now, new.even_if_late)
    reminder.save(update_fields=["enabled", "next_fire_at", "updated_at"])
    note("added", reminder, user, now)
    return count


def _check(new: NewReminder, user: Any) -> None:
    files = [part.media for part in (*new.parts, *new.reply_parts) if part.media is not None]
    segment = [new.reminder.segment] if new.reminder.segment else []
    if problem := access.may_use(user, [*new.senders, *files, *new.chosen, *segment]):
        raise ValidationError(problem)
    channels = [channel(account.channel) for account in new.senders]
    for name, parts in (("parts", new.parts), ("reply_parts", new.reply_parts)):
        for part in parts:
            if part.media is not None:
                with part.media.file.open("rb") as file:
                    media.check(part.kind, file, channels)
            if problem := media.caption_problem(part.kind, part.text, channels):
                raise ValidationError({name: problem})
    kinds = {recipient.kind for recipient in new.chosen}
    if problem := targets.unreachable_error(new.senders, new.listed):
        raise ValidationError({"audience": problem})
    if problem := senders_problem(new.reminder.owner, new.senders, kinds, new.reminder.subject):
        raise ValidationError({"senders": problem})


def _add_parts(reminder: Reminder, parts: Sequence[NewPart], model: type[ReminderMessage | ReplyPart]) -> None:
    for position, part in enumerate(parts):
        row = model(
            reminder=reminder, position=position, kind=part.kind, text=part.text, html=part.html, media=part.media
        )
        if part.template and isinstance(row, ReminderMessage):
            row.template = part.template
        row.full_clean()
        row.save()


def _add_audience(new: NewReminder, user: Any) -> None:
    targets.add_chosen(new.reminder, [recipient.pk for recipient in new.chosen])
    if new.listed:
        targets.add_listed(new.reminder, user, new.listed)
    for tag in new.tags:
        targets.add_tagged(new.reminder, user, tag)


def _set_time(reminder: Reminder, now: datetime, even_if_late: bool) -> None:
    passed = schedule.passed_error(reminder.fire_at, now) if reminder.fire_at else ""
    if problem := passed or ("" if even_if_late else reminder.late_error(now)):
        raise ValidationError({"schedule": problem})
    reminder.next_fire_at = reminder.firing_after(now)


# --- on and off -------------------------------------------------------------------------------------------------


def switch_off(reminder: Reminder, user: Any, now: datetime) -> ControlResult:
    """Switch a reminder off: it fires only by hand. Runs that it has go on."""
    access.require(user, reminder)
    with transaction.atomic():
        row = Reminder.objects.select_for_update(of=("self",)).get(pk=reminder.pk)
        if not row.enabled:
            return ControlResult(False, f"“{row}” is off already.")
        row.enabled = False
        row.save(update_fields=["enabled", "updated_at"])
        note("changed", row, user, now, "switched off")
    return ControlResult(True, f"“{row}” is off: it fires only by hand.")


def switch_on(reminder: Reminder, user: Any, now: datetime) -> ControlResult:
    """Switch a reminder on; it fires at its next time from now on."""
    access.require(user, reminder)
    with transaction.atomic():
        row = Reminder.objects.select_for_update(of=("self",)).get(pk=reminder.pk)
        if row.enabled:
            return ControlResult(False, f"“{row}” is on already.")
        if problem := _not_on(row, user, now):
            return ControlResult(False, problem)
        row.enabled, row.next_fire_at = True, row.firing_after(now)
        row.forgive()
        row.full_clean()
        row.save(update_fields=["enabled", "next_fire_at", "firing_attempts", "firing_problem", "updated_at"])
        note("changed", row, user, now, "switched on")
    at = f" It fires {moment(row.next_fire_at, row.timezone)}." if row.next_fire_at else ""
    return ControlResult(True, f"“{row}” is on.{at}")


def _not_on(reminder: Reminder, user: Any, now: datetime) -> str:
    """Return why a reminder cannot be switched on; empty where it can."""
    if reminder.archived:
        return "This reminder is archived: restore it first."
    goes_to = reminder.targets.count() or int(reminder.segment is not None)
    lacks = readiness.missing(reminder.messages.count(), goes_to, reminder.timed)
    if lacks:
        return readiness.missing_in_words(lacks)
    if reminder.fire_at and (problem := schedule.passed_error(reminder.fire_at, now)):
        return problem
    return reminder.late_error(now) or readiness.rights_problem(reminder, user)
