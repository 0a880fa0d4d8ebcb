"""What operators do with many reminders at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max

from fanout.admin.asking import Question, asking_action, counted
from fanout.models import Run
from fanout.runs import controls
from fanout.templatetags.crier import relative
from reminders.models import Reminder, ReminderTarget
from reminders.moments import moment

RECENTLY = timedelta(hours=24)


def fire_selected() -> Any:
    return asking_action("fire_selected", "Fire the selected reminders now", "Fired", about_firing, controls.fire)


def about_firing(reminders: Sequence[Reminder], now: datetime) -> Question:
    targets, going_out, delivered = _targets(reminders), _going_out(reminders), _delivered(reminders, now)

    def fate(reminder: Reminder) -> str:
        words = [f"{counted(targets.get(reminder.pk, 0), 'target')} via {reminder.account}"]
        if reminder.pk in going_out:
            words.append("is going out already")
        elif reminder.pk in delivered:
            words.append(f"was delivered {relative(delivered[reminder.pk], now)}")
        if not reminder.window.is_open(now):
            opens = moment(reminder.window.next_opening(now), reminder.timezone, now)
            words.append(f"nothing would be sent, its window opens {opens}")
        return "; ".join(words)

    total = sum(targets.values())
    again, closed = len(going_out | delivered.keys()), sum(not one.window.is_open(now) for one in reminders)
    sentences = [
        f"{counted(total, 'target')} in all.",
        f"{counted(again, 'reminder')} went out in the last 24 hours, or {_is(again)} going out now." if again else "",
        f"{counted(closed, 'reminder')} {_is(closed)} outside the delivery window: nothing would be sent."
        if closed
        else "",
    ]
    title = f"Fire {counted(len(reminders), 'reminder')} now?"
    button = title.rstrip("?") if total else ""
    return Question(title, [text for text in sentences if text], button, [(one.title, fate(one)) for one in reminders])


def _is(n: int) -> str:
    return "is" if n == 1 else "are"


def _targets(reminders: Sequence[Reminder]) -> dict[int, int]:
    rows = ReminderTarget.objects.filter(reminder__in=reminders).order_by()
    return dict(rows.values_list("reminder_id").annotate(n=Count("pk")))


def _going_out(reminders: Sequence[Reminder]) -> set[int]:
    live = Run.objects.filter(reminder__in=reminders, answers=None, status__in=[*Run.LIVE, Run.Status.PREPARING])
    return set(live.values_list("reminder_id", flat=True))


def _delivered(reminders: Sequence[Reminder], now: datetime) -> dict[int, datetime]:
    recent = Run.objects.filter(reminder__in=reminders, answers=None, sent__gt=0, finished_at__gte=now - RECENTLY)
    return dict(recent.order_by().values_list("reminder_id").annotate(at=Max("finished_at")))
