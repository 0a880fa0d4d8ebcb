"""Events that are faster than our own record of what they are about: they look again a few times, then are done."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F
from django.db.models.functions import Greatest

from fanout.models import InboundEvent

#: Seconds before each further look for the message. A provider may be faster than our own record of what it answered,
#: and what a dead driver left in flight is settled by the next one; others are about messages that Crier did not send.
LOOK_AGAIN = (2, 15, 120)


class NotYet(Exception):
    """The target that the event is about is not settled yet, or not found. It is no failure of the event."""


def may_look_again(event: InboundEvent) -> bool:
    return _looks(event) < len(LOOK_AGAIN)


def look_again(pk: int, now: datetime) -> None:
    """Put the event off until its next look. Its tries are for what fails: this one does not count."""
    event = InboundEvent.objects.defer("words").get(pk=pk)
    looks = _looks(event)
    InboundEvent.objects.filter(pk=pk, state=InboundEvent.State.NEW).update(
        attempts=Greatest(F("attempts") - 1, 0),
        next_attempt_at=now + timedelta(seconds=LOOK_AGAIN[looks]),
        detail={**event.detail, "looks": looks + 1},
    )


def _looks(event: InboundEvent) -> int:
    return int(event.detail.get("looks", 0))
