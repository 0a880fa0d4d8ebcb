"""What a new site still needs before its first reminder goes out."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db.models import Exists, QuerySet
from django.urls import reverse

from accounts import access
from accounts.models import Account
from fanout.models import Run
from reminders.models import Recipient, Reminder


class FirstStep(NamedTuple):
    label: str
    hint: str
    url: str


def first_steps(user: Any) -> list[FirstStep]:
    """Those that are left, in order; none for people who may not take them. One query."""
    if not user.has_perm("reminders.add_reminder"):
        return []
    steps: list[tuple[FirstStep, QuerySet[Any]]] = [
        (
            FirstStep("Add an account", "the number or mailbox that sends", reverse("admin:accounts_account_add")),
            access.visible(user, Account.objects.all()),
        ),
        (
            FirstStep("Add recipients", "groups and people", reverse("admin:reminders_recipient_changelist")),
            access.visible(user, Recipient.objects.all()),
        ),
        (
            FirstStep("Write a reminder", "what, to whom and when", reverse("admin:reminders_reminder_add")),
            access.visible(user, Reminder.objects.all()),
        ),
        (
            FirstStep("Send a test", "from the reminder's page", reverse("admin:reminders_reminder_changelist")),
            access.visible(user, Run.objects.all()),
        ),
    ]
    done = {f"step_{n}": Exists(rows) for n, (_, rows) in enumerate(steps)}
    # One row to hang the answers on: the person's own.
    taken = get_user_model().objects.filter(pk=user.pk).values_list(*done.values()).get()
    return [step for (step, _), yes in zip(steps, taken) if not yes]
