"""What has a history cannot be deleted: reminders, accounts and recipients are archived. What is archived sends
nothing, is hidden from lists and choices, and can be restored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts import access
from accounts.models import Account
from fanout.database import carry_out
from fanout.lanes import status
from fanout.models import Run
from fanout.models.trail import note
from fanout.runs.controls import Answer
from reminders.models import Recipient, Reminder, ReminderTarget
from reminders.targets import restore


def archive_reminder(reminder: Reminder, user: Any, now: datetime) -> Answer:
    """It is switched off with it: an archived reminder never fires."""
    access.require(user, reminder)
    with transaction.atomic():
        row = Reminder.objects.select_for_update(of=("self",)).get(pk=reminder.pk)
        if row.archived:
            return Answer(False, f"{row} is archived already.")
        if row.runs.filter(status__in=Run.UNDER_WAY).exists():
            return Answer(False, f"{row} is going out now: cancel its run, or wait for its end.")
        row.archived, row.enabled = True, False
        row.save(update_fields=["archived", "enabled", "updated_at"])
        note("archived", row, user, now)
    return Answer(True, f"{row} was archived and will not fire any more.")


def restore_reminder(reminder: Reminder, user: Any, now: datetime) -> Answer:
    access.require(user, reminder)
    with transaction.atomic():
        if not Reminder.objects.filter(pk=reminder.pk, archived=True).update(archived=False, updated_at=now):
            return Answer(False, f"{reminder} is not archived.")
        note("restored", reminder, user, now)
    return Answer(True, f"{reminder} is back in the list. It is off: switch it on when it should fire.")


def archive_account(account: Account, user: Any, now: datetime) -> Answer:
    """It is paused with it: an archived account sends nothing."""
    access.require(user, account)
    with transaction.atomic():
        row = Account.objects.select_for_update(of=("self",)).get(pk=account.pk)
        if row.archived:
            return Answer(False, f"{row} is archived already.")
        if problem := _in_use(row):
            return Answer(False, problem)
        carry_out(status.pause(row.pk, "archived", user.pk if user else None, now))
        Account.objects.filter(pk=row.pk).update(archived=True, updated_at=now)
        note("archived", row, user, now)
    return Answer(True, f"{row} was archived.")


def restore_account(account: Account, user: Any, now: datetime) -> Answer:
    access.require(user, account)
    with transaction.atomic():
        if not Account.objects.filter(pk=account.pk, archived=True).update(archived=False, updated_at=now):
            return Answer(False, f"{account} is not archived.")
        note("restored", account, user, now)
    return Answer(True, f"{account} is back in the list. It is paused: reactivate it when it should send.")


def archive_recipient(recipient: Recipient, user: Any, now: datetime) -> Answer:
    """It leaves every reminder with it. What runs still owe it goes out: they were fired before."""
    access.require(user, recipient)
    with transaction.atomic():
        if not Recipient.objects.filter(pk=recipient.pk, archived=False).update(archived=True):
            return Answer(False, f"{recipient} is archived already.")
        ReminderTarget.objects.filter(recipient=recipient).delete()
        note("archived", recipient, user, now)
    return Answer(True, f"{recipient} was archived and is no longer among any reminder's targets.")


def remove_recipient(recipient: Recipient, user: Any, now: datetime) -> Answer:
    """Deleted where nothing was ever to be sent to it, otherwise archived."""
    if recipient.run_targets.exists():
        return archive_recipient(recipient, user, now)
    access.require(user, recipient)
    with transaction.atomic():
        note("deleted", recipient, user, now)
        recipient.delete()
    return Answer(True, f"{recipient} was deleted.")


def restore_recipient(recipient: Recipient, user: Any, now: datetime) -> Answer:
    access.require(user, recipient)
    with transaction.atomic():
        if not restore(Recipient.objects.filter(pk=recipient.pk)):
            return Answer(False, f"{recipient} is not archived.")
        note("restored", recipient, user, now)
    return Answer(True, f"{recipient} is back in the list.")


def _in_use(account: Account) -> str:
    """Why an account cannot be archived; nothing where it can."""
    if Run.objects.filter(status__in=Run.UNDER_WAY, lanes__contains=[account.pk]).exists():
        return f"{account} is sending for a run: cancel or offload the run, or wait for its end."
    uses = Q(account=account) | Q(further_senders__account=account)
    using = Reminder.objects.filter(uses, enabled=True).distinct().count()
    if using:
        reminders = "1 reminder that is" if using == 1 else f"{using} reminders that are"
        return f"{account} is used by {reminders} switched on: choose another account there, or archive them first."
    return ""
