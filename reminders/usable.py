"""Whether a person may use everything in a reminder: its accounts, its files and its recipients."""

from __future__ import annotations

from typing import Any

from accounts import access
from reminders.models import Recipient, Reminder


def problem(reminder: Reminder, user: Any) -> str:
    """The sentence for a reminder with something in it that the person may not use; nothing where they may use it all.

    A reminder may be shared with a team while its account is not, and what was shared may have been taken back.
    """
    parts = [*reminder.messages.all(), *reminder.reply_parts.all()]
    files = [part.media for part in parts if part.media is not None]
    return access.may_use(user, [*reminder.senders, *files]) or _recipients_problem(reminder, user)


def _recipients_problem(reminder: Reminder, user: Any) -> str:
    if user is None or user.is_superuser:
        return ""
    theirs = access.visible(user, Recipient.objects.all()).values("pk")
    others = reminder.targets.exclude(recipient__in=theirs).count()
    if not others:
        return ""
    shared = "recipient is" if others == 1 else "recipients are"
    return f"{others} {shared} not shared with you: ask their owner, or remove them from the reminder."
