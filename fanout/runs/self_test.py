"""Send a test to me: a run of one target, through the same lane as every other message, so that the account's
pace and its single sender hold for tests too. It goes ahead of the lane's queue: somebody waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.wake import wake_lanes
from fanout.models import Event, Run, RunTarget
from fanout.runs import firing, texts
from fanout.runs.controls import Answer
from fanout.runs.why import why_run
from reminders import erasure, placeholders, senders, suppressions, usable
from reminders.models import Recipient, Reminder, ReminderMessage, Suppression
from reminders.moments import wall_clock
from reminders.targets import what_they_reach
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
    if problem := _problem(reminder, sender, kind, normal, now):
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
        wake_lanes([run.account_id], now)
        Event.objects.create(run=run, actor=user, at=now, verb="test sent", detail=normal)
    run.refresh_from_db()
    return Answer(True, f"A test is on its way to {normal}.", run)


def send_account_test(account: Account, address: str, now: datetime, user: Any = None) -> Answer:
    """Send a test through the account without a reminder at hand; from the shell, in the name of its owner."""
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
    accounts = reminder.senders
    able = senders.able_to_reach(kind, accounts)
    return accounts[able[0]] if able else accounts[0]


def _problem(reminder: Reminder, sender: Account, kind: str, address: str, now: datetime) -> str:
    if not reminder.messages.exists():
        return "The reminder has no message yet: write one and save it, then send the test."
    if not channel(sender.channel).reaches(kind):
        return f"{what_they_reach(reminder.senders)}: no test can go to {address}."
    if erasure.erased([address]):
        return erasure.REFUSED
    if Suppression.objects.filter(suppressions.holding(now), address=address).exists():
        return f"{address} is suppressed: nobody writes to it. Test with another address, or lift the suppression."
    if sender.status != sender.Status.ACTIVE:
        return f"The account {sender} is {sender.status}: reactivate it first."
    return senders.problem(reminder.owner, [sender], (), reminder.subject)


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
        "follow_up": False,
        "is_test": True,
    }


# --- what became of it --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Became:
    """What became of a test, in a sentence; `live` while that may still change."""

    run: Run
    text: str
    tone: str
    live: bool = False


def last_test(reminder: Reminder, user: Any) -> Run | None:
    return reminder.runs.filter(is_test=True, owner=user).order_by("-scheduled_for", "-pk").first()


def last_address(user: Any, account: Account) -> str:
    """Where the person's last test through an account of this channel went."""
    mine = Run.objects.filter(owner=user, is_test=True, account__channel=account.channel)
    targets = RunTarget.objects.filter(run__in=mine.order_by("-scheduled_for").values("pk")[:1])
    return targets.values_list("address", flat=True).first() or ""


def became(run: Run, now: datetime, explain: bool = True) -> Became:
    """`explain` says what a test that is on its way waits for, which takes a few queries more."""
    target = run.targets.first()
    if target is None:
        return Became(run, "The test has no recipient any more.", "mute")
    to, at = f"The test to {target.address}", target.settled_at
    when = f" at {wall_clock(at, run.timezone, now, seconds=True)}" if at else ""
    status = RunTarget.Status(target.status)
    if status == RunTarget.Status.SENT:
        return Became(run, f"{to} {_how_far(target)}{when}.", "good")
    if status == RunTarget.Status.UNCONFIRMED:
        return Became(run, f"{to} had no answer from the provider: look whether it arrived.", "warn")
    if status in (RunTarget.Status.FAILED, RunTarget.Status.SKIPPED):
        cause = target.error or texts.error(target.error_kind)
        return Became(run, f"{to} was not delivered: {cause}.", "bad")
    why = f": {why_run(run, now).text}" if explain else ""
    return Became(run, f"{to} is on its way{why}.", "busy", live=True)


def _how_far(target: RunTarget) -> str:
    if target.read_at:
        return "was read after it was sent"
    return "arrived; it was sent" if target.delivered_at else "was sent"
