"""The person behind an address: one recipient in each list that has it."""

from __future__ import annotations

from reminders.models import Recipient


def lock_people(address: str) -> list[Recipient]:
    """Everybody's recipients with this address, locked in one order. Groups are no people."""
    rows = Recipient.objects.filter(address=address).exclude(kind=Recipient.Kind.GROUP)
    return list(rows.order_by("pk").select_for_update(no_key=True, of=("self",)))
