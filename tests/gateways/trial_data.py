"""What a trial of a channel adds to the demo."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.utils import timezone

from accounts.channels.registry import channel as described
from accounts.models import Account
from fanout.runs import controls
from fanout.runs.controls import synchronise_groups
from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget
from tests.gateways.trial import LABEL, TRIALS

PEOPLE = 7


def fire(channel: str, url: str) -> str:
    account = account_of(channel, url)
    for recipient in recipients_of(account):
        ReminderTarget.objects.get_or_create(reminder=reminder_of(account), recipient=recipient)
    return controls.fire(reminder_of(account), account.owner, timezone.now()).text


def account_of(channel: str, url: str) -> Account:
    owner = get_user_model().objects.get(username="mei")
    label = f"{LABEL}{described(channel).label}"
    account = Account.objects.filter(owner=owner, label=label).first() or Account(owner=owner, label=label)
    account.channel, account.config = channel, {"url": url, **TRIALS[channel].config}
    account.credentials = TRIALS[channel].credentials
    account.full_clean()
    account.save()
    return account


def recipients_of(account: Account) -> list[Recipient]:
    """The groups that the gateway lists, else people."""
    trial = TRIALS[account.channel]
    if not trial.kind:
        synchronise_groups(account, account.owner, timezone.now())
        return [membership.recipient for membership in account.memberships.select_related("recipient")]
    addresses = [trial.addresses.format(n=n) for n in range(1, PEOPLE + 1)]
    return [
        Recipient.objects.get_or_create(owner=account.owner, address=address, defaults={"kind": trial.kind})[0]
        for address in addresses
    ]


def reminder_of(account: Account) -> Reminder:
    whole_day = {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24}
    reminder, made = Reminder.objects.get_or_create(
        owner=account.owner,
        title=account.label,
        account=account,
        defaults={"action": described(account.channel).action, "subject": "A trial", "enabled": False, **whole_day},
    )
    if made:
        ReminderMessage.objects.create(reminder=reminder, text="Doors open at nine.")
    return reminder
