"""Erase a person: address, name, fields, texts and events leave every table; the counts of runs stay.

An operator erases what is theirs. An administrator, or a person with a shell, erases the address everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.db import transaction
from django.db.models import Case, F, Func, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast

from accounts import access
from accounts.addresses import GROUP_KINDS, guess_kind
from accounts.models import Account
from fanout.database import carry_out
from fanout.models import (
    Event,
    InboundEvent,
    KeptAnswer,
    KnownChat,
    KnownId,
    LaneState,
    LostClaim,
    Notification,
    Run,
    RunTarget,
    SingleMessage,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
)
from fanout.models.trail import note, note_all
from fanout.runs import transitions
from fanout.runs.controls import ControlResult
from reminders import erasure, suppressions
from reminders.models import Recipient, Reminder, ReminderTarget, Suppression

GONE = "erased"
WHY = "the recipient was erased"
IN_FLIGHT = "A message to this address is being sent at this moment. Try again in a minute."
STRANGER = "There is nothing about this address."
NOT_YOURS = "None of your recipients has this address. Perhaps it belongs to another operator."

#: instead of a kept answer of the API
KEPT = json.dumps({"text": "This answer named a person who was erased since."})

Status = RunTarget.Status

#: what an event holds of a person
BLANK: dict[str, Any] = {"address": "", "group": "", "provider_id": "", "message_id": "", "words": {}, "detail": {}}


class InFlight(Exception):
    """The provider has a message whose outcome, with the address, is still to be written."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows that are erased: those that the user may see, or only those of one team, or all."""

    address: str
    user: Any = None
    team: int | None = None

    @property
    def everywhere(self) -> bool:
        return self.team is None and (self.user is None or bool(self.user.is_superuser))

    def of(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if self.everywhere:
            return rows
        rows = access.visible(self.user, rows)
        return rows if self.team is None else rows.filter(team=self.team)

    def recipients(self) -> QuerySet[Recipient]:
        return self.of(Recipient.objects.filter(address=self.address))

    def strays(self) -> list[int]:
        """Return targets that kept the address when their recipient was given another one. No index leads to them: this
        reads the whole table, so it is called before anything is locked."""
        rows = RunTarget.objects.filter(address=self.address) if self.everywhere else RunTarget.objects.none()
        return list(rows.order_by().values_list("pk", flat=True))

    def events(self) -> QuerySet[InboundEvent]:
        about = Q(address=self.address)
        if guess_kind(self.address) in GROUP_KINDS:
            about |= Q(group=self.address)
        rows = InboundEvent.objects.filter(about)
        return rows if self.everywhere else rows.filter(account__in=self.of(Account.objects.all()))

    def chats(self) -> QuerySet[KnownChat]:
        rows = KnownChat.objects.filter(address=self.address)
        return rows if self.everywhere else rows.filter(account__in=self.of(Account.objects.all()))

    def known_ids(self) -> QuerySet[KnownId]:
        rows = KnownId.objects.filter(address=self.address)
        return rows if self.everywhere else rows.filter(account__in=self.of(Account.objects.all()))

    def lost_claims(self) -> QuerySet[LostClaim]:
        rows = LostClaim.objects.filter(address=self.address)
        return rows if self.everywhere else rows.filter(account__in=self.of(Account.objects.all()))

    def suppressions(self, people: list[int]) -> QuerySet[Suppression]:
        """Return the suppressions of the address; none while another operator's list has it, because they protect the
        person there."""
        others = Recipient.objects.filter(address=self.address).exclude(pk__in=people)
        if not self.everywhere and others.exists():
            return Suppression.objects.none()
        return Suppression.objects.filter(address=self.address)


def erase(address: str, user: Any, now: datetime, team: int | None = None) -> ControlResult:
    """Erase the person, in one transaction; then the texts, which takes long and locks no run for longer than a moment.
    `user` None is the shell; a token of a team erases only what the team has."""
    scope = Scope(address, user, team)
    recipients = list(scope.recipients().order_by("pk"))
    for recipient in recipients:
        access.require(user, recipient)
    if not (recipients or scope.everywhere):
        return ControlResult(False, NOT_YOURS)
    people, strays = [recipient.pk for recipient in recipients], scope.strays()
    if not (
        people or strays or scope.events().exists() or scope.chats().exists() or scope.suppressions(people).exists()
    ):
        return ControlResult(False, STRANGER)
    try:
        silent, targets = _erase_person(scope, recipients, strays, now)
    except InFlight:
        return ControlResult(False, IN_FLIGHT)
    events = _erase_events(scope, targets)
    _erase_webhooks(scope, targets, events)
    _erase_kept_answers(address, recipients)
    _erase_mentions(scope, people)
    return ControlResult(True, _summary(len(people), len(targets), len(events), silent))


@transaction.atomic
def _erase_person(
    scope: Scope, recipients: list[Recipient], strays: list[int], now: datetime
) -> tuple[bool, list[int]]:
    """Erase the person; returns whether they had asked for silence, and which targets they had."""
    people = [recipient.pk for recipient in recipients]
    silent = suppressions.asked_for_silence(scope.address, now)
    targets = _hold(people, strays)
    _erase_targets(targets, now)
    scope.suppressions(people).delete()
    scope.chats().delete()
    scope.known_ids().delete()
    scope.lost_claims().delete()
    if silent:
        erasure.remember(scope.address, now)
    _erase_recipients(recipients, scope.user, now)
    return silent, targets


def _summary(recipients: int, targets: int, events: int, silent: bool) -> str:
    kept = " A keyed hash keeps the address from being added again." if silent else ""
    return f"Erased: recipients {recipients}, deliveries {targets}, events {events}.{kept}"


# --- deliveries -----------------------------------------------------------------------------------------------


def _hold(people: list[int], strays: list[int]) -> list[int]:
    """Return the person's targets, with everything locked that could add one or change one: reminders, as a firing
    does, then runs, people and targets, as the ledger does."""
    wanted = RunTarget.objects.filter(Q(recipient__in=people) | Q(pk__in=strays)).order_by()
    # A run that is being made at this moment copies the address: wait for it, and let the next one wait.
    # Who is in a segment may have changed since it looked, so all reminders with one are waited for.
    by_segment = Q(segment__isnull=False, archived=False)
    reminders = _locked(Reminder.objects.filter(Q(targets__recipient__in=people) | by_segment))
    runs = set(wanted.values_list("run_id", flat=True))
    copying = Run.objects.filter(Q(reminder__in=reminders) | Q(follows__in=runs), status=Run.Status.PREPARING)
    runs.update(copying.values_list("pk", flat=True))
    _locked(Run.objects.filter(pk__in=runs))
    _locked(Recipient.objects.filter(pk__in=people))
    ReminderTarget.objects.filter(recipient__in=people).delete()
    # A message that is put into a run at this moment has locked its row: wait for it.
    SingleMessage.objects.filter(pk__in=_locked(SingleMessage.objects.filter(recipient__in=people))).delete()
    return _locked(wanted)


def _erase_targets(targets: list[int], now: datetime) -> None:
    """Skip what is pending and blank the targets. Raises InFlight while one is being sent: its outcome would bring the
    address back."""
    rows = RunTarget.objects.filter(pk__in=targets)
    if rows.filter(status=Status.SENDING).exists():
        raise InFlight
    pending = rows.filter(status=Status.PENDING)
    runs = sorted(set(pending.order_by().values_list("run_id", flat=True)))
    pending.update(status=Status.SKIPPED, error=WHY, settled_at=now, next_attempt_at=None)
    rows.update(
        address=Func(Value(erasure.FACELESS), F("recipient_id"), function="concat", output_field=TextField()),
        # Providers make ids and sentences out of addresses. A late result must not bring them back: no claim fits it.
        provider_id="",
        part_ids={},
        error=Case(When(error="", then=Value("")), default=Value(WHY)),
        claim_epoch=0,
    )
    rows.filter(values__isnull=False).update(values={})
    for run in runs:
        carry_out(transitions.finish(run, now))


def _locked(rows: QuerySet[Any]) -> list[int]:
    """Lock the rows and return their ids in lock order. They are found first and locked then."""
    ids = set(rows.order_by().values_list("pk", flat=True))
    wanted = rows.model.objects.filter(pk__in=ids).order_by("pk")
    return list(wanted.select_for_update(no_key=True).values_list("pk", flat=True))


# --- what came back -------------------------------------------------------------------------------------------


@transaction.atomic
def _erase_events(scope: Scope, targets: list[int]) -> set[int]:
    """Blank the person's events and return their ids. The provider's key of an event stays unless it holds the address,
    so that a repeated delivery is still recognised."""
    ids = {*_locked(scope.events()), *_locked(_events_of(targets))}
    events = InboundEvent.objects.filter(pk__in=ids)
    events.filter(key__icontains=_core(scope.address)).delete()
    events.update(**BLANK, effect=GONE, state=InboundEvent.State.DONE, next_attempt_at=None)
    return ids


def _events_of(targets: list[int]) -> QuerySet[InboundEvent]:
    """Return events that name the person's messages and not the person, by account: no index has the target."""
    accounts = set(RunTarget.objects.filter(pk__in=targets).order_by().values_list("account_id", flat=True))
    return InboundEvent.objects.filter(account__in=accounts, run_target_id__in=targets)


def forget(event: InboundEvent) -> str:
    """Keep nothing of an event that came after its person was erased. Returns its effect, in words."""
    rows = InboundEvent.objects.filter(pk=event.pk)
    key = event.key.lower()
    if any(_core(address).lower() in key for address in (event.address, event.group) if address):
        rows.delete()
    rows.update(**BLANK)
    return GONE


# --- what programs were told ------------------------------------------------------------------------------------


@transaction.atomic
def _erase_webhooks(scope: Scope, targets: list[int], events: set[int]) -> None:
    """Blank what webhooks tell about the person. Deliveries stay, so that a receiver still learns that something
    happened. The events come first: one that becomes deliveries at this moment is waited for, and found among these."""
    mention, of_person = _mention(scope.address), set(targets)
    runs, accounts = scope.of(Run.objects.all()), scope.of(Account.objects.all())
    theirs = Q() if scope.everywhere else Q(run_id__in=runs.values("pk")) | Q(account_id__in=accounts.values("pk"))
    happened = WebhookEvent.objects.annotate(said=Cast("facts", TextField()))
    about = Q(target_id__in=targets) | Q(inbound_id__in=events) | (theirs & Q(said__iregex=mention))
    for event in WebhookEvent.objects.filter(pk__in=_locked(happened.filter(about))):
        event.facts = _without(event.facts, mention) | ({"error": ""} if event.target_id in of_person else {})
        event.save(update_fields=["facts"])
    told = WebhookDelivery.objects.annotate(said=Cast("payload", TextField()))
    theirs = Q(endpoint__in=scope.of(WebhookEndpoint.objects.all()))
    about = Q(payload__data__target__in=targets) | (theirs & Q(said__iregex=mention))
    for delivery in WebhookDelivery.objects.filter(pk__in=_locked(told.filter(about))):
        data = delivery.payload.get("data", {})
        delivery.payload = _without(delivery.payload, mention)
        if data.get("target") in of_person or re.search(mention, data.get("address", ""), re.IGNORECASE):
            blank = {name: "" for name in ("address", "message", "error") if name in data}
            delivery.payload |= {"text": GONE, "data": delivery.payload["data"] | blank}
        delivery.save(update_fields=["payload"])


def _without(said: Any, mention: str) -> Any:
    """Return the JSON with every mention in its texts replaced."""
    if isinstance(said, dict):
        return {name: _without(value, mention) for name, value in said.items()}
    if isinstance(said, list):
        return [_without(value, mention) for value in said]
    return re.sub(mention, GONE, said, flags=re.IGNORECASE) if isinstance(said, str) else said


def _erase_kept_answers(address: str, recipients: list[Recipient]) -> None:
    """Blank answers of the API that name the person, by the address or by the name as a text of its own: those of every
    token, because they only serve calls that are repeated. The rows stay, so that such a call does nothing twice."""
    names = {json.dumps(recipient.name) for recipient in recipients if recipient.name}
    # As JSON has it: a letter with an accent is an escape there.
    for word in {json.dumps(_core(address)).strip('"')} | names:
        KeptAnswer.objects.filter(body__icontains=word).update(body=KEPT)


# --- what was written about it ----------------------------------------------------------------------------------


def _erase_mentions(scope: Scope, recipients: list[int]) -> None:
    log = LogEntry.objects.filter(content_type__app_label="reminders", content_type__model="recipient")
    log.filter(object_id__in=map(str, recipients)).update(object_repr=GONE)
    pattern = _mention(scope.address)
    for rows, column in _mentions(scope):
        words = Func(
            F(column), Value(pattern), Value(GONE), Value("gi"), function="regexp_replace", output_field=TextField()
        )
        with transaction.atomic():
            ids = _locked(rows.filter(**{f"{column}__iregex": pattern}))
            rows.model.objects.filter(pk__in=ids).update(**{column: words})


def _mentions(scope: Scope) -> Iterator[tuple[QuerySet[Any], str]]:
    """Yield every text that may name an address, as far as it is theirs. The audit trail never does, and never
    changes."""
    runs, accounts = scope.of(Run.objects.all()), scope.of(Account.objects.all())
    events, notifications, log = Event.objects.all(), Notification.objects.all(), LogEntry.objects.all()
    if not scope.everywhere:
        events = events.filter(Q(run__in=runs) | Q(account__in=accounts))
        notifications, log = notifications.filter(user=scope.user), log.filter(user=scope.user)
    yield from ((runs, column) for column in ("error_summary", "waiting_why"))
    yield accounts, "status_reason"
    yield from ((LaneState.objects.filter(account__in=accounts), column) for column in ("why", "new_chats_why"))
    yield events, "detail"
    yield from ((notifications, column) for column in ("title", "body"))
    yield from ((log, column) for column in ("object_repr", "change_message"))
    if scope.everywhere:
        yield Suppression.objects.all(), "detail"


def _mention(address: str) -> str:
    """Return a pattern for the address in sentences; one that only ends or begins alike is another address."""
    core = _core(address)
    if core.isdigit():
        return rf"(?<!\d)\+?{core}(?!\d)"
    return rf"(?<![\w.+-]){re.escape(core)}(?![\w-]|\.\w)"


def _core(address: str) -> str:
    """Return the part that every form of the address has: a number may stand without its plus, and a group without its
    server."""
    number = address.removeprefix("+").removesuffix("@g.us")
    return number if number.isdigit() else address


# --- the recipient --------------------------------------------------------------------------------------------


def _erase_recipients(recipients: list[Recipient], user: Any, now: datetime) -> None:
    """Recipients with deliveries keep a row without name and address; the others are deleted."""
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
