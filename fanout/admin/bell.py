"""The bell in the header: how many notifications are unread, the newest ones, and what a tab has missed.

Whoever finishes or pauses a run writes a Notification (engine/closing.py). A skipped firing writes none.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q, QuerySet, Subquery

from fanout.admin.stream import LOOK_BACK, OVERLAP, notification_frame
from fanout.models import Notification

MOST_MISSED = 100
UNREAD_CAP = 99


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


def missed(user_id: int, after: int, now: datetime) -> list[str]:
    """The notifications that a returning tab has not seen, as frames. A later commit may carry a lower id, so those
    of the last minute are sent again; the page drops repeats."""
    late = Q(id__gt=after - LOOK_BACK, created_at__gte=now - OVERLAP)
    rows = Notification.objects.filter(Q(id__gt=after) | late, user_id=user_id).order_by("-id")[:MOST_MISSED]
    return [notification_frame(row.__dict__) for row in reversed(rows)]


def mark_read(user: Any, now: datetime, ids: list[int] | None = None) -> int:
    unread = Notification.objects.filter(user=user, read_at=None)
    return (unread if ids is None else unread.filter(pk__in=ids)).update(read_at=now)
