"""Erase a person: address, name, fields, texts and events leave every table; the counts of runs stay.

An operator erases what is theirs. An administrator, or whoever has a shell, erases the address everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.db import transaction
from django.db.models import Case, F, Func, Q, QuerySet, TextField, Value, When

from accounts import access
from accounts.models import Account
from fanout.lanes.statements import carry_out
from fanout.models import Event, InboundEvent, LaneState, Notification, Run, RunTarget
from fanout.models.trail_entry import note, note_all
from fanout.runs import transitions
from fanout.runs.controls import Answer
from reminders import erasure
from reminders.models import Recipient, Reminder, ReminderTarget, Suppression

GONE = "erased"
WHY = "the recipient was erased"
IN_FLIGHT = "A message to this address is being sent at this moment. Try again in a minute."
STRANGER = "There is nothing about this address."
NOT_YOURS = "None of your recipients has this address. Perhaps it belongs to somebody else."

Status = RunTarget.Status

#: what an event holds of a person
BLANK: dict[str, Any] = {"address": "", "group": "", "provider_id": "", "message_id": "", "words": {}, "detail": {}}


class InFlight(Exception):
    """The provider has a message whose outcome is still to be written, with the address."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose things are erased. Nobody in particular: everybody's."""

    address: str
    user: Any = None

    @property
    def everywhere(self) -> bool:
        return self.user is None or bool(self.user.is_superuser)

    def of(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows if self.everywhere else access.visible(self.user, rows)

    def recipients(self) -> QuerySet[Recipient]:
        return self.of(Recipient.objects.filter(address=self.address))

    def targets(self, recipients: list[int]) -> QuerySet[RunTarget]:
        """With those that kept the address when the recipient was given another one."""
        wanted = Q(recipient__in=recipients)
        return RunTarget.objects.filter(wanted | Q(address=self.address) if self.everywhere else wanted)

    def events(self) -> QuerySet[InboundEvent]:
        rows = InboundEvent.objects.filter(Q(address=self.address) | Q(group=self.address))
        return rows if self.everywhere else rows.filter(account__in=self.of(Account.objects.all()))


def erase(address: str, user: Any, now: datetime) -> Answer:
    """`user` None is the shell."""
    scope = Scope(address, user)
    try:
        with transaction.atomic():
            return _erase(scope, now)
    except InFlight:
        return Answer(False, IN_FLIGHT)


def _erase(scope: Scope, now: datetime) -> Answer:
    recipients = list(scope.recipients().select_for_update().order_by("pk"))
    for recipient in recipients:
        access.require(scope.user, recipient)
    if not (recipients or scope.everywhere):
        return Answer(False, NOT_YOURS)
    silent = erasure.asked_for_silence(scope.address, now)
    ids = [recipient.pk for recipient in recipients]
    targets = _erase_targets(scope, ids, now)
    events = _erase_events(scope)
    suppressed = _erase_suppression(scope, ids)
    if not (recipients or targets or events or suppressed):
        return Answer(False, STRANGER)
    _erase_mentions(scope, ids)
    if silent:
        erasure.remember(scope.address, now)
    _erase_recipients(recipients, scope.user, now)
    return Answer(True, _summary(len(recipients), targets, events, silent))


def _summary(recipients: int, targets: int, events: int, silent: bool) -> str:
    kept = " A keyed hash keeps the address from being added again." if silent else ""
    return f"Erased: recipients {recipients}, deliveries {targets}, events {events}.{kept}"


# --- deliveries -----------------------------------------------------------------------------------------------


def _erase_targets(scope: Scope, recipients: list[int], now: datetime) -> int:
    """What is pending is skipped first. What is in flight must land: its outcome would bring the address back."""
    _hold_firings(recipients)
    targets = scope.targets(recipients)
    ids = list(targets.order_by("pk").values_list("pk", flat=True))
    runs = _locked(Run.objects.filter(pk__in=targets.filter(status=Status.PENDING).order_by().values("run")))
    rows = RunTarget.objects.filter(pk__in=ids)
    rows.filter(status=Status.PENDING).update(status=Status.SKIPPED, error=WHY, settled_at=now, next_attempt_at=None)
    if rows.filter(status=Status.SENDING).exists():
        raise InFlight
    rows.update(
        address=Func(Value(erasure.FACELESS), F("recipient_id"), function="concat", output_field=TextField()),
        # Providers make ids and sentences out of addresses. A late result must not bring them back: no claim fits it.
        provider_id="",
        error=Case(When(error="", then=Value("")), default=Value(WHY)),
        claim_epoch=0,
    )
    rows.filter(values__isnull=False).update(values={})
    for run in runs:
        carry_out(transitions.finish(run, now))
    return len(ids)


def _hold_firings(recipients: list[int]) -> None:
    """A run that is being made at this moment copies the address: wait for it, and let the next one wait."""
    reminders = _locked(Reminder.objects.filter(targets__recipient__in=recipients).order_by().values("pk"))
    _locked(Run.objects.filter(reminder__in=reminders, status=Run.Status.PREPARING))
    ReminderTarget.objects.filter(recipient__in=recipients).delete()


def _locked(rows: QuerySet[Any]) -> list[int]:
    wanted = rows.model.objects.filter(pk__in=rows.values("pk")).order_by("pk")
    return list(wanted.select_for_update(no_key=True).values_list("pk", flat=True))


# --- what came back, and what was written about it ------------------------------------------------------------


def _erase_events(scope: Scope) -> int:
    """The provider's name for an event stays unless it holds the address: a repeated delivery is still recognised."""
    events = scope.events()
    count = events.count()
    events.filter(key__icontains=_core(scope.address)).delete()
    events.update(**BLANK, effect=GONE, state=InboundEvent.State.DONE, next_attempt_at=None)
    return count


def forget(event: InboundEvent) -> str:
    """An event that came after its person was erased: nothing of it is kept. Returns its effect, in words."""
    rows = InboundEvent.objects.filter(pk=event.pk)
    if any(_core(address) in event.key for address in (event.address, event.group) if address):
        rows.delete()
    rows.update(**BLANK)
    return GONE


def _erase_suppression(scope: Scope, recipients: list[int]) -> int:
    """It stays while somebody else's list has the address: it protects the person there."""
    if not scope.everywhere and Recipient.objects.filter(address=scope.address).exclude(pk__in=recipients).exists():
        return 0
    return Suppression.objects.filter(address=scope.address).delete()[0]


def _erase_mentions(scope: Scope, recipients: list[int]) -> None:
    log = LogEntry.objects.filter(content_type__app_label="reminders", content_type__model="recipient")
    log.filter(object_id__in=map(str, recipients)).update(object_repr=GONE)
    pattern = _mention(scope.address)
    for rows, column in _mentions(scope):
        words = Func(
            F(column), Value(pattern), Value(GONE), Value("gi"), function="regexp_replace", output_field=TextField()
        )
        rows.filter(**{f"{column}__iregex": pattern}).update(**{column: words})


def _mentions(scope: Scope) -> Iterator[tuple[QuerySet[Any], str]]:
    """Every text that may name an address, as far as it is theirs. The audit trail never does, and never changes."""
    runs, accounts = scope.of(Run.objects.all()), scope.of(Account.objects.all())
    events, notifications, log = Event.objects.all(), Notification.objects.all(), LogEntry.objects.all()
    if not scope.everywhere:
        events = events.filter(Q(run__in=runs) | Q(account__in=accounts))
        notifications, log = notifications.filter(user=scope.user), log.filter(user=scope.user)
    yield from ((runs, column) for column in ("error_summary", "waiting_why"))
    yield accounts, "status_reason"
    yield LaneState.objects.filter(account__in=accounts), "why"
    yield events, "detail"
    yield from ((notifications, column) for column in ("title", "body"))
    yield from ((log, column) for column in ("object_repr", "change_message"))
    if scope.everywhere:
        yield Suppression.objects.all(), "detail"


def _mention(address: str) -> str:
    """A pattern for the address in other people's sentences; one that only ends or begins alike is another address."""
    core = _core(address)
    if core.isdigit():
        return rf"(?<!\d)\+?{core}(?!\d)"
    return rf"(?<![\w.+-]){re.escape(core)}(?![\w-]|\.\w)"


def _core(address: str) -> str:
    """What every spelling of it has: a number may stand without its plus, and a group without its server."""
    number = address.removeprefix("+").removesuffix("@g.us")
    return number if number.isdigit() else address


# --- the recipient --------------------------------------------------------------------------------------------


def _erase_recipients(recipients: list[Recipient], user: Any, now: datetime) -> None:
    """Deliveries keep a row without a face; one without deliveries is deleted."""
    note_all("erased", recipients, user, now)
    if not recipients:
        note("erased", None, user, now)
    for recipient in recipients:
        row = Recipient.objects.filter(pk=recipient.pk)
        if not RunTarget.objects.filter(recipient=recipient).exists():
            row.delete()
            continue
        row.update(
            address=f"{erasure.FACELESS}{recipient.pk}",
            name="",
            fields={},
            tags=[],
            status=Recipient.Status.BLACKLISTED,
            follow_up_attempts=0,
            attempts_reset_at=None,
            cooldown_until=None,
            replied_at=None,
            limited=False,
        )
