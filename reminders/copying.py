"""A copy of a reminder, with its parts, senders and targets."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import transaction

from reminders.models import Reminder, ReminderMessage, ReminderTarget, ReplyPart
from reminders.targets import BATCH

P = TypeVar("P", ReminderMessage, ReplyPart)


@transaction.atomic
def duplicate(reminder: Reminder, owner: Any) -> Reminder:
    """A copy that is off and belongs to this person."""
    copy = Reminder.objects.get(pk=reminder.pk)
    copy.pk, copy.title, copy.enabled, copy.owner = None, f"Copy of {reminder.title}"[:200], False, owner
    copy.next_fire_at, copy.archived = None, False
    copy.forgive()
    copy._state.adding = True
    copy.save(force_insert=True)
    ReminderMessage.objects.bulk_create(_copied(part, copy) for part in reminder.messages.all())
    ReplyPart.objects.bulk_create(_copied(part, copy) for part in reminder.reply_parts.all())
    copy.set_further_senders(reminder.senders)
    ReminderTarget.objects.bulk_create(
        (
            ReminderTarget(reminder=copy, recipient_id=pk, position=position)
            for pk, position in reminder.targets.values_list("recipient_id", "position")
        ),
        batch_size=BATCH,
    )
    return copy


def _copied(part: P, reminder: Reminder) -> P:
    part.pk, part.reminder = None, reminder
    part._state.adding = True
    return part
