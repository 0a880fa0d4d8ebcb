"""The bell in the header: how many notifications are unread, the newest ones, and what a tab has missed.

Whoever finishes or pauses a run writes a Notification (engine/closing.py). A skipped firing writes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q, QuerySet, Subquery

from accounts import access
from fanout.admin.runs.buttons import Button, buttons_for
from fanout.admin.stream import LOOK_BACK, OVERLAP, notification_frame
from fanout.models import Notification, Run

MOST_MISSED = 100
UNREAD_CAP = 99
GOING_ON = ("resume", "resume_when_open")


def state(user: Any) -> dict[str, Any]:
    """The number on the bell, and the notification after which the stream continues. One query: every page asks."""
    mine = Notification.objects.filter(user=OuterRef("pk")).order_by("-id").values("pk")
    numbers = (ArraySubquery(mine.filter(read_at=None)[: UNREAD_CAP + 1]), Subquery(mine[:1]))
    ids, last = get_user_model().objects.filter(pk=user.pk).values_list(*numbers).get()
    unread = len(ids)
    shown = unread if unread <= UNREAD_CAP else f"{UNREAD_CAP}+"
    return {"unread": unread, "last": last or 0, "shown": shown}


def history(user: Any, most: int = 12) -> QuerySet[Notification]:
    return Notification.objects.filter(user=user).order_by("-id")[:most]


def with_buttons(
    user: Any, notifications: Sequence[Notification], now: datetime
) -> list[tuple[Notification, Run | None, list[Button]]]:
    """Each with its run and the button that lets it go on, where the person may press it."""
    runs = _resumable(user, {item.run_id for item in notifications if item.run_id})
    return [(item, run, _going_on(run, now)) for item in notifications for run in [runs.get(item.run_id or 0)]]


def _resumable(user: Any, ids: set[int]) -> dict[int, Run]:
    if not ids or not user.has_perm("fanout.change_run") or access.is_viewer(user):
        return {}
    paused = Run.objects.filter(pk__in=ids, status=Run.Status.PAUSED).defer("parts", "reply_parts")
    return {run.pk: run for run in access.visible(user, paused)}


def _going_on(run: Run | None, now: datetime) -> list[Button]:
    return [button for button in buttons_for(run, now) if button.name in GOING_ON] if run else []


def missed(user_id: int, after: int, now: datetime) -> list[str]:
    """The notifications that a returning tab has not seen, as frames. A later commit may carry a lower id, so those
    of the last minute are sent again; the page drops repeats."""
    late = Q(id__gt=after - LOOK_BACK, created_at__gte=now - OVERLAP)
    unread = Notification.objects.filter(user_id=user_id, read_at=None)
    rows = unread.filter(Q(id__gt=after) | late).order_by("-id")[:MOST_MISSED]
    return [notification_frame(row.__dict__) for row in reversed(rows)]


def mark_read(user: Any, now: datetime, ids: list[int] | None = None) -> int:
    unread = Notification.objects.filter(user=user, read_at=None)
    return (unread if ids is None else unread.filter(pk__in=ids)).update(read_at=now)
