"""Checks before a reminder is switched on or fired, each with a sentence for the operator, and copies of reminders.

A reminder that lacks a message, targets or a time is a draft: it is off, and fires only by hand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction
from django.utils.text import get_text_list

from accounts import access
from accounts.actions import Action
from accounts.addresses import KINDS, MAILBOX
from accounts.channels.registry import channel
from accounts.models import Account
from reminders.models import FollowUpPart, Recipient, Reminder, ReminderMessage, ReminderTarget, ReplyPart, Segment
from reminders.targets import BATCH, able_to_reach

P = TypeVar("P", ReminderMessage, ReplyPart, FollowUpPart)

#: what a reminder may lack
NO_MESSAGE, NO_RECIPIENTS, NO_TIME = "no message", "no recipients", "no time"


def missing(parts: int, people: int, timed: bool) -> list[str]:
    """Return what a reminder lacks before it can fire by itself."""
    has = {NO_MESSAGE: parts, NO_RECIPIENTS: people, NO_TIME: timed}
    return [what for what, there in has.items() if not there]


def missing_in_words(missing: Sequence[str]) -> str:
    """Return for example "It has no message and no time yet.", or nothing."""
    return f"It has {get_text_list(list(missing), 'and')} yet." if missing else ""


# --- senders --------------------------------------------------------------------------------------------------


def senders_problem(owner: Any, accounts: Sequence[Account], kinds: Collection[str], subject: str) -> str:
    """Return why these accounts cannot send the reminder, or nothing."""
    wanted = Account.objects.filter(pk__in=[account.pk for account in accounts])
    usable = set(access.visible(owner, wanted))
    for account in accounts:
        if account not in usable:
            return f"{owner} may not send through {account}: the account belongs to another operator."
    if lacking := subject_problem(accounts, subject):
        return lacking
    unreached = [KINDS[kind].plural for kind in sorted(kinds) if not able_to_reach(kind, accounts)]
    if unreached:
        return f"None of the senders reaches the {' and '.join(unreached)} among the targets: add one that does."
    return ""


def connect_problem(account: Account) -> str:
    """Return why a reminder through this account cannot send connection requests, or nothing."""
    described = channel(account.channel)
    can = Action.CONNECTION_REQUEST in described.actions
    return "" if can else f"{account} ({described.label}) sends no connection requests."


def inmail_problem(account: Account, parts: int) -> str:
    """Return why a reminder of so many parts cannot go out as InMail through this account, or nothing."""
    described = channel(account.channel)
    if Action.INMAIL not in described.actions:
        return f"{account} ({described.label}) sends no InMail."
    return "An InMail is one message: put everything into one part." if parts > 1 else ""


def action_through(account: Account, connects: bool, before: str, inmail: bool = False) -> str:
    """Return the action of a reminder through this account; the channel's own if it no longer has a special one."""
    described = channel(account.channel)
    if connects:
        return Action.CONNECTION_REQUEST
    if inmail:
        return Action.INMAIL
    special = (Action.CONNECTION_REQUEST, Action.INMAIL)
    return described.action if before in special else described.counts(before)


def subject_problem(accounts: Sequence[Account], subject: str) -> str:
    mail = [account for account in accounts if channel(account.channel).subject]
    return f"Give the reminder a subject: {mail[0]} sends mail." if mail and not subject.strip() else ""


# --- rights ---------------------------------------------------------------------------------------------------


def rights_problem(reminder: Reminder, user: Any, ask_recipients: bool = True) -> str:
    """Return a sentence if the reminder has accounts, files or recipients that the person may not use, or nothing.

    A reminder may be shared with a team while its account is not, and what was shared may have been taken back.
    `ask_recipients`: False where all recipients are known to be the person's own.
    """
    parts = [*reminder.messages.all(), *reminder.reply_parts.all(), *reminder.follow_up_parts.all()]
    files = [part.media for part in parts if part.media is not None]
    segment = [reminder.segment] if reminder.segment else []
    problem = access.may_use(user, [*reminder.senders, *files, *segment])
    return problem or (_recipients_problem(reminder, user) if ask_recipients else "")


def segment_problem(owner: Any, segment: Segment) -> str:
    """Return a sentence if the owner of a reminder may not use this segment, or nothing: firings would be skipped."""
    return "" if access.may_see(owner, segment) else f"{owner} may not use {segment}: it belongs to another operator."


def _recipients_problem(reminder: Reminder, user: Any) -> str:
    if user is None or user.is_superuser:
        return ""
    theirs = access.visible(user, Recipient.objects.all()).values("pk")
    others = reminder.targets.exclude(recipient__in=theirs).count()
    if not others:
        return ""
    shared = "recipient is" if others == 1 else "recipients are"
    return f"{others} {shared} not shared with you: ask their owner, or remove them from the reminder."


# --- replies --------------------------------------------------------------------------------------------------


def replies_not_received(reminder: Reminder) -> str:
    """Return a warning if the reminder relies on replies that its accounts do not receive, or nothing."""
    follows = reminder.follow_up or bool(reminder.follow_up_days)
    needs = {"Message 2 needs": reminder.reply_parts.exists(), "A follow-up needs": follows}
    counts_on = [what for what, so in needs.items() if so]
    without = [account.label for account in reminder.senders if not receives_replies(account)]
    if not counts_on or not without:
        return ""
    return (
        f"{counts_on[0]} replies, and Crier receives none for {', '.join(without)}. "
        "Have their mailbox read by ingest_bounces: “When mail bounces” in docs/operations.md says how."
    )


def receives_replies(account: Account) -> bool:
    """Return whether replies arrive: by the provider's webhook, or from a mailbox that `ingest_bounces` reads."""
    described = channel(account.channel)
    return described.inbound or (described.reaches(MAILBOX) and mailbox_is_read())


def mailbox_is_read() -> bool:
    return bool(settings.BOUNCE_IMAP_PASSWORD or settings.BOUNCE_TOKEN)


# --- follow-ups -----------------------------------------------------------------------------------------------


def follow_ups_problem(days: Sequence[int], steps: Collection[int]) -> str:
    """Return why these days and the follow-ups that have parts do not fit together, or nothing."""
    if lacking := [number for number in range(1, len(days) + 1) if number not in steps]:
        return f"Follow-up {lacking[0]} has no message: add a part to it, or remove its day."
    if over := [number for number in sorted(steps) if number > len(days)]:
        return f"There is a part of follow-up {over[0]}, but no day for it: add the day, or remove the part."
    return ""


def follow_ups_in_words(days: Sequence[int]) -> str:
    """Return "follow-ups after 2 and 5 days to those who have not replied", or nothing."""
    if not days:
        return ""
    word = "follow-up" if len(days) == 1 else "follow-ups"
    last = "day" if list(days) == [1] else "days"
    return f"{word} after {get_text_list([str(day) for day in days], 'and')} {last} to those who have not replied"


# --- copies ---------------------------------------------------------------------------------------------------


@transaction.atomic
def duplicate(reminder: Reminder, owner: Any) -> Reminder:
    """Return a copy with parts, senders and targets that is off and belongs to this person."""
    copy = Reminder.objects.get(pk=reminder.pk)
    copy.pk, copy.title, copy.enabled, copy.owner = None, f"Copy of {reminder.title}"[:200], False, owner
    copy.next_fire_at, copy.archived = None, False
    copy.forgive()
    copy._state.adding = True
    copy.save(force_insert=True)
    ReminderMessage.objects.bulk_create(_copied(part, copy) for part in reminder.messages.all())
    ReplyPart.objects.bulk_create(_copied(part, copy) for part in reminder.reply_parts.all())
    FollowUpPart.objects.bulk_create(_copied(part, copy) for part in reminder.follow_up_parts.all())
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
