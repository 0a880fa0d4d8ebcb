"""Changes of the lists of recipients and suppressions, from the admin and the shell.

Each change and its audit trail entry are one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts.inputs import counted
from fanout.models.trail import note
from reminders import suppressions, targets
from reminders.imports import Entry


@transaction.atomic
def import_recipients(entries: Sequence[Entry], owner: Any, user: Any, now: datetime, team: Any = None) -> int:
    """Store the recipients. Returns how many the owner did not have yet."""
    added = targets.store_recipients(entries, owner, team)
    note("imported recipients", None, user, now, counted(added, "recipient"))
    return added


@transaction.atomic
def upsert_recipients(entries: Sequence[Entry], owner: Any, user: Any, now: datetime, team: Any = None) -> int:
    """Add or change the recipients. Returns how many the owner did not have yet."""
    added = targets.upsert(entries, owner, team)
    note("changed recipients", None, user, now, f"{counted(len(entries), 'recipient')}, {added:,} of them new")
    return added


def suppress(news: Sequence[suppressions.New], user: Any, now: datetime) -> int:
    """Suppress the addresses. Returns how many suppressions changed."""
    return _suppress("suppressed", news, user, now)


def import_suppressions(news: Sequence[suppressions.New], user: Any, now: datetime) -> int:
    """Suppress the addresses. Returns how many suppressions changed."""
    return _suppress("imported suppressions", news, user, now)


@transaction.atomic
def _suppress(verb: str, news: Sequence[suppressions.New], user: Any, now: datetime) -> int:
    changed = suppressions.suppress_all(news)
    note(verb, None, user, now, counted(changed, "address"))
    return changed


@transaction.atomic
def lift(addresses: Iterable[str], user: Any, now: datetime) -> list[str]:
    """Lift suppressions. Returns the addresses that were suppressed."""
    lifted = suppressions.lift(addresses)
    if lifted:
        note("lifted suppressions", None, user, now, counted(len(lifted), "address"))
    return lifted
