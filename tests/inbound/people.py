"""People who get a reminder and write back."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.models import Account
from fanout.inbound.event_store import store
from fanout.inbound.worker import EFFECTS
from fanout.models import InboundEvent
from reminders.models import Recipient, Reminder, ReminderTarget, ReplyPart
from tests.engine.stage import Stage

NUMBERS = itertools.count(1)


def phone(n: int) -> str:
    return f"+4915112345{n:03d}"


def person(owner: Any, n: int = 0, **fields: Any) -> Recipient:
    return Recipient.objects.create(**{"owner": owner, "kind": "person", "address": phone(n), "name": f"P{n}"} | fields)


def remind(
    stage: Stage, account: Account, people: int = 1, reply: tuple[str, ...] = ("Thank you!",), **fields: Any
) -> Reminder:
    """A reminder to so many people; a person who replies gets `reply`."""
    reminder = stage.reminder(account, groups=0, **fields)
    for position, text in enumerate(reply):
        ReplyPart.objects.create(reminder=reminder, position=position, text=text)
    for n in range(people):
        whom, _ = Recipient.objects.get_or_create(owner=stage.user, address=phone(n), defaults={"kind": "person"})
        ReminderTarget.objects.create(reminder=reminder, recipient=whom, position=n)
    return reminder


def stored(account: Account, n: int, at: datetime, text: str = "ok", **fields: Any) -> InboundEvent:
    """An event of person number `n`; `came_at`: when we got to know it."""
    came_at, kind = fields.pop("came_at", at), fields.pop("kind", EventKind.REPLY)
    key = f"event {next(NUMBERS)}"
    event = ProviderEvent(key=key, kind=kind, at=at, text=text, **{"address": phone(n)} | fields)
    assert store(account.pk, [event], came_at) == 1
    return InboundEvent.objects.get(key__in=[key, f"{key}:nobody"])


def work_on(event: InboundEvent, now: datetime | None = None) -> str:
    with transaction.atomic():
        return EFFECTS[event.kind](event, now or event.came_at)


def say(account: Account, n: int, at: datetime, text: str = "ok", **fields: Any) -> str:
    return work_on(stored(account, n, at, text, **fields))
