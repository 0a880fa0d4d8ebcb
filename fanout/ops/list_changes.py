"""Changes of the lists of recipients, segments and suppressions, from the admin, the shell and the API.

Each change and its audit trail entry are one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError

from accounts import access
from accounts.inputs import counted
from fanout.models.trail import note
from fanout.runs.controls import ControlResult
from reminders import suppressions, targets
from reminders.imports import Entry
from reminders.models import Segment
from reminders.segments import NO_CONDITION


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


@transaction.atomic
def add_segment(segment: Segment, user: Any, now: datetime) -> None:
    """Save a new segment. `user` None is the shell. Raises ValidationError."""
    reminder = segment.not_replied_to
    if reminder is not None and not access.may_see(segment.owner, reminder):
        words = f"{reminder} belongs to another operator than {segment.owner}."
        raise ValidationError({"not_replied_to": words})
    segment.clean()
    if not segment.words:
        raise ValidationError(NO_CONDITION)
    segment.full_clean()
    segment.save()
    note("added", segment, user, now)


def delete_segment(segment: Segment, user: Any, now: datetime) -> ControlResult:
    """Delete a segment that no reminder has. `user` None is the shell."""
    access.require(user, segment)
    try:
        with transaction.atomic():
            note("deleted", segment, user, now)
            segment.delete()
    except ProtectedError:
        rows = segment.reminders.all()
        seen = rows if user is None else access.visible(user, rows)
        used = ", ".join(f"“{reminder}”" for reminder in seen[:5]) or "reminders of others"
        return ControlResult(False, f"{segment} is used by {used}: give those other recipients first.")
    return ControlResult(True, f"{segment.name} is deleted.")


def suppress(news: Sequence[suppressions.NewSuppression], user: Any, now: datetime) -> int:
    """Suppress the addresses. Returns how many suppressions changed."""
    return _suppress("suppressed", news, user, now)


def import_suppressions(news: Sequence[suppressions.NewSuppression], user: Any, now: datetime) -> int:
    """Suppress the addresses. Returns how many suppressions changed."""
    return _suppress("imported suppressions", news, user, now)


@transaction.atomic
def _suppress(verb: str, news: Sequence[suppressions.NewSuppression], user: Any, now: datetime) -> int:
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
