"""Add reminders and switch them on and off, for the API and the shell: checked as the form checks them, all or nothing,
with an entry in the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.files import File
from django.db import transaction

from accounts import access
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models.trail import note
from fanout.plans.audience import audience
from fanout.runs.controls import ControlResult
from reminders import media, readiness, schedule, targets, wording
from reminders.imports import Entry
from reminders.models import FollowUpPart, MediaFile, Recipient, Reminder, ReminderMessage, ReplyPart
from reminders.moments import moment
from reminders.part_templates import Choice, WrittenPart
from reminders.readiness import senders_problem


class Late(ValidationError):
    """Raised for a reminder whose firings all come after its window has closed."""


@dataclass(frozen=True, slots=True)
class NewPart:
    text: str = ""
    html: str = ""
    media: MediaFile | None = None
    #: instead of `media`: a file of this machine, stored together with the reminder
    path: Path | None = None
    #: message template by its name, perhaps with “:language”, and the values of its variables
    named: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    #: the same as it is stored, set by `with_templates`
    template: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        name = self.media.filename if self.media else self.path.name if self.path else ""
        return media.kind_of(name) if name else ReminderMessage.Kind.TEXT.value

    def open(self) -> Any:
        """Return its file, opened; None for a text."""
        if self.path is not None:
            return File(self.path.open("rb"), self.path.name)
        return self.media.file.open("rb") if self.media else None


@dataclass(frozen=True, slots=True)
class NewStep:
    """A follow-up, so many days after a firing."""

    days: int
    parts: Sequence[NewPart]


@dataclass(slots=True)
class NewReminder:
    """A reminder that is not saved yet, with everything that belongs to it."""

    reminder: Reminder
    senders: Sequence[Account]
    parts: Sequence[NewPart]
    reply_parts: Sequence[NewPart] = ()
    steps: Sequence[NewStep] = ()
    #: the audience: chosen recipients, everyone with one of these tags, and a list
    chosen: Sequence[Recipient] = ()
    tags: Sequence[str] = ()
    listed: Sequence[Entry] = field(default_factory=list)
    #: tags and list find only recipients of this team: a token of a team sees no others
    team: int | None = None
    #: add it even if all its firings come after its window has closed
    even_if_late: bool = False


@transaction.atomic
def add_reminder(new: NewReminder, user: Any, now: datetime) -> int:
    """Save the reminder; return how many targets it has. `user` None is the shell. Raises ValidationError, by field
    where the problem belongs to one.

    A reminder that lacks a message, an audience or a time is saved as a draft, which is off.
    """
    reminder = new.reminder
    parts = with_templates(new.parts, new.senders)
    _check(new, user)
    wanted = reminder.enabled
    reminder.enabled = False  # until it is whole
    reminder.follow_up_days = [step.days for step in new.steps]
    reminder.full_clean()
    reminder.save()
    reminder.set_further_senders(new.senders)
    for position, part in enumerate(parts):
        _save(ReminderMessage(reminder=reminder, position=position, template=part.template), part)
    for position, part in enumerate(new.reply_parts):
        _save(ReplyPart(reminder=reminder, position=position), part)
    steps = [(number, part) for number, step in enumerate(new.steps, 1) for part in step.parts]
    for position, (number, part) in enumerate(steps):
        _save(FollowUpPart(reminder=reminder, position=position, step=number), part)
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


def with_templates(parts: Sequence[NewPart], senders: Sequence[Account]) -> list[NewPart]:
    """Return the parts with their message templates as they are stored. A text part without a text gets the template's
    words. Raises ValidationError for a template that the provider would refuse."""
    if not any(part.named for part in parts):
        return list(parts)
    choice, found = Choice(senders), []
    for number, part in enumerate(parts, 1):
        if part.named:
            try:
                typed = WrittenPart(f"part {number}", part.kind, part.text, part.named, part.values)
                chosen = choice.typed(typed)
            except ValueError as problem:
                raise ValidationError({"parts": f"Template of part {number}: {problem}"}) from None
            text = part.text if part.text.strip() or chosen.file else choice.words(chosen)
            part = replace(part, template=choice.as_part(chosen), text=text)
        found.append(part)
    return found


def check_parts(parts: Sequence[NewPart], senders: Sequence[Account], name: str = "parts") -> None:
    """Raise ValidationError for files and captions that the channels of these accounts do not take."""
    channels = [channel(account.channel) for account in senders]
    for part in parts:
        if (file := part.open()) is not None:
            with file:
                media.check(part.kind, file, channels)
        if problem := media.caption_problem(part.kind, part.text, channels):
            raise ValidationError({name: problem})


def _check(new: NewReminder, user: Any) -> None:
    reminder = new.reminder
    of_steps = [part for step in new.steps for part in step.parts]
    files = [part.media for part in (*new.parts, *new.reply_parts, *of_steps) if part.media is not None]
    segment = [reminder.segment] if reminder.segment else []
    if problem := access.may_use(user, [*new.senders, *files, *new.chosen, *segment]):
        raise ValidationError(problem)
    if reminder.segment and (problem := readiness.segment_problem(reminder.owner, reminder.segment)):
        raise ValidationError({"segment": problem})
    for name, parts in (("parts", new.parts), ("reply_parts", new.reply_parts), ("follow_ups", of_steps)):
        if name != "parts" and any(part.named for part in parts):
            # A reply opens the time for free texts; follow-ups go by the account's own template.
            raise ValidationError({name: "Only the parts of the first message have templates."})
        check_parts(parts, new.senders, name)
    with_parts = {number for number, step in enumerate(new.steps, 1) if step.parts}
    if problem := readiness.follow_ups_problem([step.days for step in new.steps], with_parts):
        raise ValidationError({"follow_ups": problem})
    kinds = {recipient.kind for recipient in new.chosen}
    if problem := targets.unreachable_error(new.senders, new.listed):
        raise ValidationError({"audience": problem})
    if problem := senders_problem(reminder.owner, new.senders, kinds, reminder.subject):
        raise ValidationError({"senders": problem})


def _save(row: ReminderMessage | ReplyPart | FollowUpPart, part: NewPart) -> None:
    """Save a part with its content; a file of this machine is stored now."""
    for name in ("kind", "text", "html", "media"):
        setattr(row, name, getattr(part, name))
    if part.path is not None:
        with part.open() as file:
            row.media = media.keep(file, row.reminder.owner, row.reminder.team)
    row.full_clean()
    row.save()


def _add_audience(new: NewReminder, user: Any) -> None:
    targets.add_chosen(new.reminder, [recipient.pk for recipient in new.chosen])
    if new.listed:
        targets.add_listed(new.reminder, user, new.listed, new.team)
    for tag in new.tags:
        targets.add_tagged(new.reminder, user, tag, new.team)


def _set_time(reminder: Reminder, now: datetime, even_if_late: bool) -> None:
    if reminder.fire_at and (problem := schedule.passed_error(reminder.fire_at, now)):
        raise ValidationError({"schedule": problem})
    if not even_if_late and (late := reminder.late_error(now)):
        raise Late({"schedule": late})
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
