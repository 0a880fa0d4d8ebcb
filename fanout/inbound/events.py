"""Store provider events, once each, and put off those that came before our own record of their message."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest

from accounts import crypto
from accounts.channels.events import EventKind, ProviderEvent
from fanout.database import Statement, execute
from fanout.models import InboundEvent

KEY_LENGTH = 200
#: providers report times in whole seconds
WHOLE_SECOND = timedelta(seconds=1)
#: characters kept of a person's message
MOST_WORDS = 10_000
#: Kinds that have a further effect where they name a person.
PERSONAL = (EventKind.REPLY, EventKind.DELIVERED, EventKind.READ)

# A repeated delivery of the same event changes nothing, also one at the same moment: the constraint decides which of
# them was first.
STORE = """
INSERT INTO fanout_inboundevent (account_id, key, kind, address, "group", provider_id, message_id, words, detail,
                                 happened_at, came_at, state, attempts, effect)
SELECT e.*, %(now)s, 'new', 0, ''
  FROM unnest(%(account)s::bigint[], %(key)s::text[], %(kind)s::text[], %(address)s::text[], %(group)s::text[],
              %(provider_id)s::text[], %(message_id)s::text[], %(words)s::text[], %(detail)s::jsonb[],
              %(happened_at)s::timestamptz[]) AS e
ON CONFLICT (account_id, key) DO NOTHING
RETURNING id
"""

COLUMNS = (
    "account",
    "key",
    "kind",
    "address",
    "group",
    "provider_id",
    "message_id",
    "words",
    "detail",
    "happened_at",
)


def store(account_id: int, events: Sequence[ProviderEvent], now: datetime) -> int:
    """Store the events and return how many were new. A repeated delivery of the same event changes nothing."""
    return len(execute(*storing([(account_id, event) for event in events], now)))


def storing(events: Iterable[tuple[int, ProviderEvent]], now: datetime) -> Statement:
    """Return one statement that stores the events with their accounts, and returns a row for each that was new."""
    rows = [_row(account_id, event, now) for account_id, event in events]
    return STORE, {name: [row[name] for row in rows] for name in COLUMNS} | {"now": now}


def _row(account_id: int, event: ProviderEvent, now: datetime) -> dict[str, Any]:
    return {
        "account": account_id,
        # A key longer than the column keeps its end: ids begin alike and end differently.
        "key": _key(event)[-KEY_LENGTH:],
        "kind": str(event.kind),
        "address": _plain(event.address)[:254],
        "group": _plain(event.group)[:254],
        "provider_id": _plain(event.provider_id)[:200],
        "message_id": _plain(event.message_id)[:200],
        "words": crypto.encrypt({"text": _plain(event.text[:MOST_WORDS])}) if event.text else "",
        "detail": json.dumps(_plain_values(event.detail)),
        # A provider's clock may be ahead of ours: nothing happened after it came.
        "happened_at": min(event.at or now, now),
    }


def _key(event: ProviderEvent) -> str:
    """Return the event's key. A copy that names no person, because WhatsApp hid the number, must not keep out the one
    that does."""
    anonymous = event.kind in PERSONAL and not event.address and not event.group
    return _plain(event.key) + (":nobody" if anonymous else "")


def _plain_values(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {_plain(str(name)): _plain_value(value) for name, value in detail.items()}


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _plain(str(value))


def _plain(text: str) -> str:
    """Return what PostgreSQL can store: one strange character must not refuse all events that came with it."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


# --- events that are faster than our own record ----------------------------------------------------------

#: Seconds before each further look for the message. A provider may report before our own record of the send is stored,
#: and what a dead driver left in flight is settled by the next one; others are about messages that Crier did not send.
LOOK_AGAIN = (2, 15, 120)


class NotYet(Exception):
    """The target of the event is not settled yet, or not found. The event has not failed, and what was done stays."""


def may_look_again(event: InboundEvent) -> bool:
    return _looks(event) < len(LOOK_AGAIN)


def look_again(pk: int, now: datetime) -> None:
    """Put the event off until its next look. This try does not count: tries are for what fails."""
    event = InboundEvent.objects.defer("words").get(pk=pk)
    looks = _looks(event)
    InboundEvent.objects.filter(pk=pk, state=InboundEvent.State.NEW).update(
        attempts=Greatest(F("attempts") - 1, 0),
        next_attempt_at=now + timedelta(seconds=LOOK_AGAIN[looks]),
        detail={**event.detail, "looks": looks + 1},
    )


def _looks(event: InboundEvent) -> int:
    return int(event.detail.get("looks", 0))
