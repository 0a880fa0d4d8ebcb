"""Send a test to oneself: a run of one target, through the same lane as every other message, so that the account's pace
and its single sender hold for tests too. It goes ahead of the lane's queue, because a person waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Event, Run, RunTarget
from fanout.plans.audience import living
from fanout.runs import freezing, texts
from fanout.runs.controls import ControlResult
from fanout.runs.why import why_run
from reminders import erasure, placeholders, readiness, suppressions
from reminders.models import Recipient, Reminder, ReminderMessage, Suppression
from reminders.moments import two_clocks
from reminders.readiness import senders_problem
from reminders.targets import able_to_reach, what_they_reach
from reminders.window import Window

ACCOUNT_TEST = "Account check"
ACCOUNT_TEXT = "This is a test message from Crier. The account works."


def send_test(reminder: Reminder, address: str, user: Any, now: datetime) -> ControlResult:
    access.require(user, reminder)
    if refusal := readiness.rights_problem(reminder, user):
        return ControlResult(False, refusal)
    try:
        kind = guess_kind(address)
        normal = normalise(kind, address)
    except AddressError as error:
        return ControlResult(False, str(error))
    sender = _sender(reminder, kind)
    if problem := _problem(reminder, sender, kind, normal, now):
        return ControlResult(False, problem)
    with transaction.atomic():
        recipient = _recipient(user, kind, normal)
        run = Run.objects.create(
            **_facts(reminder, user, now) | {"account": sender, "lanes": [sender.pk], "kinds": [kind]}
        )
        RunTarget.objects.create(
            run=run,
            account_id=run.account_id,
            recipient=recipient,
            position=1,
            address=normal,
            values=_values(reminder, recipient, run, now),
        )
        wake_lanes([run.account_id], now)
        Event.objects.create(run=run, actor=user, at=now, verb="test sent", detail=normal)
    run.refresh_from_db()
    return ControlResult(True, f"A test is on its way to {normal}.", run)


def send_account_test(account: Account, address: str, now: datetime, user: Any = None) -> ControlResult:
    """Send a test through the account without a reminder; from the shell, in the name of its owner."""
    return send_test(_account_reminder(account), address, user or account.owner, now)


def _account_reminder(account: Account) -> Reminder:
    """Return the account's own reminder for tests, because a run needs one. It never fires by itself."""
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
    """Return the first of its senders that reaches the address."""
    accounts = reminder.senders
    able = able_to_reach(kind, accounts)
    return accounts[able[0]] if able else accounts[0]


def _problem(reminder: Reminder, sender: Account, kind: str, address: str, now: datetime) -> str:
    if not reminder.messages.exists():
        return "The reminder has no message yet: write one and save it, then send the test."
    if not channel(sender.channel).reaches(kind):
        return f"{what_they_reach(reminder.senders)}: no test can go to {address}."
    if erasure.erased([address]):
        return erasure.REFUSED
    if Suppression.objects.filter(suppressions.in_force(now), address=address).exists():
        return f"{address} is suppressed and gets no messages. Test with another address, or lift the suppression."
    if sender.status != sender.Status.ACTIVE:
        return f"The account {sender} is {sender.status}: {sender.way_back} first."
    return senders_problem(reminder.owner, [sender], (), reminder.subject)


def _recipient(user: Any, kind: str, address: str) -> Recipient:
    recipient, _ = Recipient.objects.get_or_create(owner=user, address=address, defaults={"kind": kind, "name": "me"})
    return recipient


def _values(reminder: Reminder, me: Recipient, run: Run, now: datetime) -> dict[str, str] | None:
    """Return the values of the first recipient, because the tester may have none."""
    fixed = reminder.targets.select_related("recipient").first()
    first = fixed.recipient if fixed else living(reminder, now).order_by("pk").first()
    return placeholders.values_for(first or me, run.parts)


def _facts(reminder: Reminder, user: Any, now: datetime) -> dict[str, Any]:
    """Return the run's fields as it would fire, but for one person and at any hour: a person who asks for a test is
    awake."""
    all_day = Window(reminder.timezone)
    return freezing.frozen(reminder, now) | {
        "title": f"Test: {reminder.title}"[:200],
        "owner_id": user.pk,
        "window_start_hour": all_day.start_hour,
        "window_end_hour": all_day.end_hour,
        "window_closes_at": all_day.closes_on(now),
        "steps": [],
        "next_step_at": None,
        "auto_resume": False,
        "resume_after_limit": False,
        "follow_up": False,
        "is_test": True,
    }


# --- its status ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SelfTestStatus:
    """The status of a test, in a sentence; `live` while it may still change."""

    run: Run
    text: str
    tone: str
    live: bool = False


def last_test(reminder: Reminder, user: Any) -> Run | None:
    return reminder.runs.filter(is_test=True, owner=user).order_by("-scheduled_for", "-pk").first()


def last_address(user: Any, account: Account) -> str:
    """Return where the person's last test through an account of this channel went."""
    mine = Run.objects.filter(owner=user, is_test=True, account__channel=account.channel)
    targets = RunTarget.objects.filter(run__in=mine.order_by("-scheduled_for").values("pk")[:1])
    return targets.values_list("address", flat=True).first() or ""


def status_of_test(run: Run, now: datetime, zone: str, explain: bool = True) -> SelfTestStatus:
    """Return the status of a test to a reader in this timezone. `explain` says what a test on its way waits for, which
    takes a few queries more."""
    target = run.targets.first()
    if target is None:
        return SelfTestStatus(run, "The test has no recipient any more.", "mute")
    to, at = f"The test to {target.address}", target.settled_at
    when = f" at {two_clocks(at, zone, run.timezone, now, seconds=True)}" if at else ""
    status = RunTarget.Status(target.status)
    if status == RunTarget.Status.SENT:
        return SelfTestStatus(run, f"{to} {_how_far(target)}{when}.", "good")
    if status == RunTarget.Status.UNCONFIRMED:
        return SelfTestStatus(run, f"{to} had no answer from the provider: look whether it arrived.", "warn")
    if status in (RunTarget.Status.FAILED, RunTarget.Status.SKIPPED):
        cause = target.error or texts.error(target.error_kind)
        return SelfTestStatus(run, f"{to} was not delivered: {cause}.", "bad")
    why = f": {why_run(run, now).text}" if explain else ""
    return SelfTestStatus(run, f"{to} is on its way{why}.", "busy", live=True)


def _how_far(target: RunTarget) -> str:
    if target.read_at:
        return "was read after it was sent"
    return "arrived; it was sent" if target.delivered_at else "was sent"
