"""The second message answers a contact who replied to the first in time, and goes to nobody else. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

REPLY_WITHIN = timedelta(hours=24)


def may_send_second(first_sent_at: datetime | None, replied_at: datetime | None, now: datetime) -> bool:
    """At once when the contact replied within 24 hours of the first message; never otherwise."""
    if first_sent_at is None or replied_at is None:
        return False
    return first_sent_at <= replied_at <= min(now, first_sent_at + REPLY_WITHIN)
