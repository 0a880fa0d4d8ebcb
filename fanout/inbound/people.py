"""The person behind an address: one recipient in each list that has it. Groups are no people."""

from __future__ import annotations

from django.db.models import QuerySet

from reminders.models import Recipient


def with_address(address: str) -> QuerySet[Recipient]:
    return Recipient.objects.filter(address=address).exclude(kind=Recipient.Kind.GROUP)


def lock(address: str) -> list[int]:
    """The ids of all of them, locked in one order."""
    rows = with_address(address).order_by("pk").select_for_update(no_key=True, of=("self",))
    return list(rows.values_list("pk", flat=True))
