"""Fire many reminders at once: asks first, with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max

from accounts.inputs import counted
from fanout.admin.asking import Question, asking_action
from fanout.models import Run
from fanout.runs import controls
from fanout.templatetags.crier import relative
from reminders.models import Reminder, ReminderTarget
from reminders.moments import moment

RECENTLY = timedelta(hours=24)


def fire_selected() -> Any:
    return asking_action("fire_selected", "Fire the selected reminders now", "Fired", about_firing, fire_if_open)


def fire_if_open(reminder: Reminder, user: Any, now: datetime) -> controls.ControlResult:
    """Of many, one whose window is closed is left alone: fired, it would only fail."""
    return (
        controls.ControlResult(False, _closed(reminder, now))
        if _closed(reminder, now)
        else controls.fire(reminder, user, now)
    )


def _closed(reminder: Reminder, now: datetime) -> str:
    if reminder.window.is_open(now):
        return ""
    return f"Its delivery window opens {moment(reminder.window.next_opening(now), reminder.timezone, now)}."


def about_firing(reminders: Sequence[Reminder], now: datetime) -> Question:
    fired = [reminder for reminder in reminders if not _closed(reminder, now)]
    closed = [reminder for reminder in reminders if _closed(reminder, now)]
    targets, news = _targets(fired), _news(fired, now)
    sentences = [
        f"{counted(sum(targets.values()), 'target')} in all.",
        f"Sent in the last 24 hours, or going out now: {counted(len(news), 'reminder')}." if news else "",
        f"{counted(len(closed), 'reminder')} will not be fired: outside the delivery window." if closed else "",
    ]
    rows = [(one.title, _fate(one, targets.get(one.pk, 0), news.get(one.pk, ""))) for one in fired]
    rows += [(one.title, _closed(one, now)) for one in closed]
    title = f"Fire {counted(len(fired), 'reminder')} now?"
    return Question(title, [text for text in sentences if text], title.rstrip("?") if targets else "", rows)


def _fate(reminder: Reminder, targets: int, news: str) -> str:
    return f"{counted(targets, 'target')} via {reminder.account}" + (f"; {news}" if news else "")


def _targets(reminders: Sequence[Reminder]) -> dict[int, int]:
    rows = ReminderTarget.objects.filter(reminder__in=reminders).order_by()
    return dict(rows.values_list("reminder_id").annotate(n=Count("pk")))


def _news(reminders: Sequence[Reminder], now: datetime) -> dict[int, str]:
    """Of each reminder that went out lately, or is doing so: the words for it."""
    runs = Run.objects.filter(reminder__in=reminders, answers=None).order_by()
    recent = runs.filter(sent__gt=0, finished_at__gte=now - RECENTLY)
    delivered = recent.values_list("reminder_id").annotate(at=Max("finished_at"))
    live = runs.filter(status__in=Run.UNDER_WAY).values_list("reminder_id", flat=True)
    words = {pk: f"was delivered {relative(at, now)}" for pk, at in delivered}
    return words | dict.fromkeys(live, "is going out already")
