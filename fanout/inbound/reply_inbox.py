"""Replies to our messages, newest first, and what operators do with them: mark them as handled, opt the person out, or
note that the reminder has reached its aim. Answering stays on the phone or in the gateway's own client.

A reply belongs to the account that received it: people who may see that account see its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.crypto import CredentialError
from accounts.models import Account
from fanout.inbound import replies
from fanout.models import InboundEvent, Run, RunTarget
from fanout.models.events import REPLY_TO_US
from fanout.models.trail import note, shell_user
from fanout.runs.controls import ControlResult
from reminders import placeholders, suppressions
from reminders.models import Recipient, Suppression

OPEN, HANDLED, ALL = "open", "handled", "all"
STATES = (OPEN, HANDLED, ALL)
SHOWN = 50
TEXT_SHOWN = 2_000  # characters of one part or reply
MOST_NAMED = 200  # people whose name is searched for
UNREADABLE = "stored, but no key decrypts it"
NOT_KEPT = "the text is not kept any more"


# --- the list -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which replies are listed. `person` is an address, or a part of a name."""

    state: str = OPEN
    account: int | None = None
    team: int | None = None
    run: int | None = None
    person: str = ""
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply with what the reader may see around it: the message that it answers, and the person."""

    event: InboundEvent
    text: str
    run: Run | None
    answered: list[str]
    person: Recipient | None
    suppressed: bool


def visible_replies(user: Any, rows: QuerySet[InboundEvent] | None = None) -> QuerySet[InboundEvent]:
    """Return all replies to our messages that came to accounts of the user; None is the shell."""
    found = (InboundEvent.objects.all() if rows is None else rows).filter(REPLY_TO_US)
    if user is None or user.is_superuser:
        return found
    return found.filter(account__in=access.visible(user, Account.objects.all()))


def open_replies(user: Any) -> QuerySet[InboundEvent]:
    """Return the replies that no one has dealt with yet."""
    return visible_replies(user).filter(handled_at=None)


def chosen(user: Any, wanted: Wanted) -> QuerySet[InboundEvent]:
    """Return the wanted replies, newest first."""
    rows = visible_replies(user)
    if wanted.state != ALL:
        rows = rows.filter(handled_at__isnull=wanted.state == OPEN)
    if wanted.account is not None:
        rows = rows.filter(account=wanted.account)
    if wanted.team is not None:
        rows = rows.filter(account__in=Account.objects.filter(team=wanted.team))
    if wanted.run is not None:
        runs = _runs(user, {wanted.run})
        answered = RunTarget.objects.filter(run__in=runs, replied_at__isnull=False)
        rows = rows.filter(run_target_id__in=answered.values("pk"))
    if wanted.person.strip():
        rows = rows.filter(address__in=_addresses(user, wanted.person.strip()))
    if wanted.before is not None:
        rows = rows.filter(pk__lt=wanted.before)
    return rows.order_by("-pk")


def _addresses(user: Any, term: str) -> list[str]:
    """Return the address that was typed, in any spelling, or those of people with such a name."""
    try:
        return [normalise(guess_kind(term), term)]
    except AddressError:
        named = _people(user, Q(name__icontains=term))
        return list(named.order_by("pk").values_list("address", flat=True)[:MOST_NAMED])


def _people(user: Any, which: Q) -> QuerySet[Recipient]:
    rows = Recipient.objects.filter(which)
    return rows if user is None else access.visible(user, rows)


def _runs(user: Any, ids: set[int]) -> QuerySet[Run]:
    rows = Run.objects.filter(pk__in=ids)
    return rows if user is None else access.visible(user, rows)


def page(user: Any, wanted: Wanted, now: datetime, most: int = SHOWN) -> tuple[list[Reply], int | None]:
    """Return a page of replies with their surroundings, in a handful of queries, and the reply before which the next
    page begins; None on the last one."""
    events = list(chosen(user, wanted).select_related("account", "account__team")[: most + 1])
    shown = events[:most]
    return with_surroundings(user, shown, now), (shown[-1].pk if len(events) > most else None)


def with_surroundings(user: Any, events: Sequence[InboundEvent], now: datetime) -> list[Reply]:
    targets = RunTarget.objects.in_bulk({event.run_target_id for event in events if event.run_target_id})
    runs = {run.pk: run for run in _runs(user, {target.run_id for target in targets.values()})}
    addresses = {event.address for event in events}
    people = {one.address: one for one in _people(user, Q(address__in=addresses)).order_by("-archived", "-pk")}
    held = Suppression.objects.filter(suppressions.in_force(now), address__in=addresses)
    silent = set(held.values_list("address", flat=True))
    found = []
    for event in events:
        target = targets.get(event.run_target_id or 0)
        run = runs.get(target.run_id) if target else None
        answered = sent_texts(target, run) if target and run else []
        person = people.get(event.address)
        found.append(Reply(event, readable(event)[:TEXT_SHOWN], run, answered, person, event.address in silent))
    return found


def readable(event: InboundEvent) -> str:
    """Return the text of a reply, or why there is none."""
    try:
        return event.text or NOT_KEPT
    except CredentialError:
        return UNREADABLE


def sent_texts(target: RunTarget, run: Run) -> list[str]:
    """Return the texts of the parts that the person got; of the first one while it is being sent."""
    if target.claimed_at is None:
        return []
    values = target.values or {}
    parts = run.parts[: max(1, target.parts_sent)]
    return [(_text(part, values) or part.get("media", {}).get("filename", ""))[:TEXT_SHOWN] for part in parts]


def _text(part: dict[str, Any], values: dict[str, str]) -> str:
    text: str = part.get("text", "")
    return placeholders.render(text, values) if part.get("personal") else text


# --- what operators do ------------------------------------------------------------------------------------


def find(user: Any, pk: int) -> InboundEvent | None:
    """Return the reply, if the user may see it."""
    return visible_replies(user, InboundEvent.objects.filter(pk=pk)).select_related("account").first()


@transaction.atomic
def mark_handled(event: InboundEvent, user: Any, now: datetime) -> ControlResult:
    access.require(user, event.account)
    if not _handle(event, user, now):
        return ControlResult(False, _already(event))
    note("handled", event, user, now)
    return ControlResult(True, "Marked as handled.")


@transaction.atomic
def reopen(event: InboundEvent, user: Any, now: datetime) -> ControlResult:
    access.require(user, event.account)
    handled = InboundEvent.objects.filter(pk=event.pk, handled_at__isnull=False)
    if not handled.update(handled_at=None, handled_by=""):
        return ControlResult(False, "It is not handled yet.")
    note("reopened", event, user, now)
    return ControlResult(True, "It waits for an answer again.")


@transaction.atomic
def opt_out(event: InboundEvent, user: Any, now: datetime) -> ControlResult:
    """Opt the person out in all lists, as if they had written STOP, and mark the reply as handled."""
    access.require(user, event.account)
    # Of two people who press it at the same moment, the second finds the suppression of the first.
    InboundEvent.objects.select_for_update().filter(pk=event.pk).first()
    if Suppression.objects.filter(suppressions.in_force(now), address=event.address).exists():
        _handle(event, user, now)
        return ControlResult(False, f"{event.address} gets no messages already.")
    replies.note_opt_out(event, now)
    reason, source = Suppression.Reason.OPTED_OUT, Suppression.Source.OPERATOR
    replies.opt_out(event.address, reason, source, f"asked for it in a reply, noted by {_name(user)}")
    _handle(event, user, now)
    note("opted out", event, user, now)
    return ControlResult(True, f"{event.address} gets no messages any more, from any account.")


@transaction.atomic
def convert(event: InboundEvent, user: Any, now: datetime) -> ControlResult:
    """Note in the user's lists that the person did what the reminder asked for: they get no follow-ups any more. The
    reply is handled."""
    access.require(user, event.account)
    people = _people(user, Q(pk__in=replies.lock_recipients(event.address)))
    changed = people.exclude(status__in=[*Recipient.GETS_NOTHING, Recipient.Status.CONVERTED])
    if not changed.update(status=Recipient.Status.CONVERTED, limited=False):
        return ControlResult(False, _not_converted(people, event.address))
    _handle(event, user, now)
    note("marked as converted", event, user, now)
    return ControlResult(True, f"{event.address} is marked as converted and gets no follow-ups any more.")


def _not_converted(people: QuerySet[Recipient], address: str) -> str:
    person = people.first()
    if person is None:
        return f"{address} is in none of your lists."
    return f"{person} is {person.get_status_display().lower()}."


#: by the name of their button and of the command's choice
CONTROLS: dict[str, Callable[[InboundEvent, Any, datetime], ControlResult]] = {
    "handled": mark_handled,
    "open": reopen,
    "opted_out": opt_out,
    "converted": convert,
}


def _handle(event: InboundEvent, user: Any, now: datetime) -> bool:
    waiting = InboundEvent.objects.filter(pk=event.pk, handled_at=None)
    return bool(waiting.update(handled_at=now, handled_by=_name(user)[:150]))


def _already(event: InboundEvent) -> str:
    by = InboundEvent.objects.values_list("handled_by", flat=True).get(pk=event.pk)
    return f"{by} has handled it already." if by else "It is handled already."


def _name(user: Any) -> str:
    return user.get_username() if user is not None else shell_user() or "Crier"
