"""Send a test to me: a run of one target, through the same lane as every other message, so that the account's
pace and its single sender hold for tests too."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.poke import poke
from fanout.models import Event, Run, RunTarget
from fanout.runs import firing
from fanout.runs.controls import Answer
from reminders import erasure, placeholders, usable
from reminders.models import Recipient, Reminder, ReminderMessage
from reminders.senders import able_to_reach
from reminders.window import Window

ACCOUNT_TEST = "Account check"
ACCOUNT_TEXT = "This is a test message from Crier. The account works."


def send_test(reminder: Reminder, address: str, user: Any, now: datetime) -> Answer:
    access.require(user, reminder)
    if refusal := usable.problem(reminder, user):
        return Answer(False, refusal)
    try:
        kind = guess_kind(address)
        normal = normalise(kind, address)
    except AddressError as error:
        return Answer(False, str(error))
    sender = _sender(reminder, kind)
    if problem := _problem(reminder, sender, kind, normal):
        return Answer(False, problem)
    with transaction.atomic():
        recipient = _recipient(user, kind, normal)
        run = Run.objects.create(**_facts(reminder, user, now) | {"account": sender, "lanes": [sender.pk]})
        RunTarget.objects.create(
            run=run,
            account_id=run.account_id,
            recipient=recipient,
            position=1,
            address=normal,
            values=_values(reminder, recipient, run),
        )
        poke([run.account_id], now)
        Event.objects.create(run=run, actor=user, at=now, verb="test sent", detail=normal)
    run.refresh_from_db()
    return Answer(True, f"A test is on its way to {normal}.", run)


def send_account_test(account: Account, address: str, now: datetime, user: Any = None) -> Answer:
    """Without a reminder at hand: does the account deliver at all? By its owner, at the shell's word."""
    return send_test(_account_reminder(account), address, user or account.owner, now)


def _account_reminder(account: Account) -> Reminder:
    """Runs belong to a reminder, so each account has one of its own for this. It never fires by itself."""
    kept = Reminder.objects.filter(account=account, title=ACCOUNT_TEST, enabled=False).first()
    if kept is not None:
        return kept
    with transaction.atomic():
        made = Reminder.objects.create(
            owner=account.owner,
            team=account.team,
            account=account,
            title=ACCOUNT_TEST,
            subject="Test message from Crier",
            timezone=account.timezone,
            enabled=False,
            action=channel(account.channel).action,
        )
        ReminderMessage.objects.create(reminder=made, text=ACCOUNT_TEXT)
    return made


def _sender(reminder: Reminder, kind: str) -> Account:
    """The first of its senders that reaches the address."""
    senders = reminder.senders
    able = able_to_reach(kind, senders)
    return senders[able[0]] if able else senders[0]


def _problem(reminder: Reminder, sender: Account, kind: str, address: str) -> str:
    if not reminder.messages.exists():
        return "The reminder has no message."
    if not channel(sender.channel).reaches(kind):
        return f"{sender} ({sender.channel}) cannot reach {address}."
    if erasure.erased([address]):
        return erasure.REFUSED
    if sender.status != sender.Status.ACTIVE:
        return f"The account {sender} is {sender.status}."
    return ""


def _recipient(user: Any, kind: str, address: str) -> Recipient:
    recipient, _ = Recipient.objects.get_or_create(owner=user, address=address, defaults={"kind": kind, "name": "me"})
    return recipient


def _values(reminder: Reminder, me: Recipient, run: Run) -> dict[str, str] | None:
    """As the first target would get it: whoever tests has no flat number."""
    first = reminder.targets.select_related("recipient").first()
    return placeholders.values_for(first.recipient if first else me, run.parts)


def _facts(reminder: Reminder, user: Any, now: datetime) -> dict[str, Any]:
    """As it would fire, but for one person and at any hour: who asks for a test is awake."""
    all_day = Window(reminder.timezone)
    return firing.frozen(reminder, now) | {
        "title": f"Test: {reminder.title}"[:200],
        "owner_id": user.pk,
        "window_start_hour": all_day.start_hour,
        "window_end_hour": all_day.end_hour,
        "window_closes_at": all_day.closes_on(now),
        "auto_resume": False,
    }
