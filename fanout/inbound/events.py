"""The way in: an event is stored first, once, and worked on later (fanout.inbound.hearing)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from accounts.channels.events import ProviderEvent
from fanout.models import InboundEvent

KEY_LENGTH = 200


def store(account_id: int, events: Sequence[ProviderEvent], now: datetime) -> int:
    """How many of them were new. A repeated delivery of the same event changes nothing."""
    before = InboundEvent.objects.filter(account_id=account_id, key__in=[_fitting(event.key) for event in events])
    known = set(before.values_list("key", flat=True))
    rows = [_row(account_id, event, now) for event in events if _fitting(event.key) not in known]
    # Two deliveries at the same moment: the constraint decides which of them was first.
    InboundEvent.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def _row(account_id: int, event: ProviderEvent, now: datetime) -> InboundEvent:
    return InboundEvent(
        account_id=account_id,
        key=_fitting(event.key),
        kind=event.kind,
        address=_plain(event.address)[:254],
        group=_plain(event.group)[:254],
        provider_id=_plain(event.provider_id)[:200],
        message_id=_plain(event.message_id)[:200],
        words={"text": _plain(event.text)} if event.text else {},
        detail=dict(event.detail),
        # A provider's clock may be ahead of ours: nothing happened after it came.
        happened_at=min(event.at or now, now),
        came_at=now,
    )


def _fitting(key: str) -> str:
    """A key longer than the column keeps its end: ids begin alike and end differently."""
    return _plain(key)[-KEY_LENGTH:]


def _plain(text: str) -> str:
    return text.replace("\x00", "")
