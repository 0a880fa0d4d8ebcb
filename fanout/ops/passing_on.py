"""Notifications by mail, for operators who asked for it. Webhooks are in fanout.ops.webhooks."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.core.mail import send_mail

from fanout.models import Notification, Subscription
from fanout.runs import texts

log = logging.getLogger("crier.notifications")

# A task is ended after a minute; the next one passes on the rest.
BUDGET_SECONDS = 40.0
# People whose server is slower get the rest in the next minute: all share one budget.
SLOW_SECONDS = 2.0
# Bounces of one run are passed on together; meanwhile the bell is updated (TELL_AGAIN in fanout.runs.transitions).
BOUNCES_GATHER = timedelta(minutes=5)


def pass_on(now: datetime) -> int:
    """Pass on new notifications; called every minute. Returns how many went out."""
    wishes = {wish.user_id: wish for wish in Subscription.objects.all()}
    deadline, passed_on = time.monotonic() + BUDGET_SECONDS, 0
    waiting = Notification.objects.filter(passed_on_at=None)
    ripe = waiting.exclude(title=texts.CAME_BACK, created_at__gt=now - BOUNCES_GATHER)
    ripe.exclude(user__in=wishes).update(passed_on_at=now)
    slow: set[int] = set()
    # Not those of people without wishes that came in between.
    wanted = ripe.filter(user__in=wishes).select_related("run", "account", "reminder").order_by("id")
    for notification in _in_turns(wanted, slow):
        if (begun := time.monotonic()) > deadline:
            break
        # Claimed first, so that it is never sent twice.
        if Notification.objects.filter(pk=notification.pk, passed_on_at=None).update(passed_on_at=now):
            notification.refresh_from_db(fields=["body"])  # it may have been kept up to date since it was read
            passed_on += _pass_on_safely(notification, wishes[notification.user_id])
        if time.monotonic() - begun > SLOW_SECONDS:
            slow.add(notification.user_id)
    return passed_on


def _in_turns(notifications: Iterable[Notification], slow: set[int]) -> Iterator[Notification]:
    """Yield one notification per person in turn, in random order of people; none for those who were slow."""
    queues: dict[int, deque[Notification]] = {}
    for notification in notifications:
        queues.setdefault(notification.user_id, deque()).append(notification)
    people = random.sample(list(queues), len(queues))
    while people := [person for person in people if queues[person] and person not in slow]:
        for person in people:
            yield queues[person].popleft()


def _pass_on_safely(notification: Notification, wish: Subscription) -> bool:
    """Deliver one notification; errors of one person's server do not affect the others."""
    if wish.only_problems and notification.level == "info":
        return False
    try:
        problems = deliver(notification, wish)
    except Exception:
        log.exception("a notification could not be passed on", extra={"notification": notification.pk})
        return False
    for problem in problems:
        log.warning("a notification was not passed on: %s", problem, extra={"notification": notification.pk})
    return bool(wish.email)


def deliver(notification: Notification, wish: Subscription) -> list[str]:
    """Send by mail, as subscribed. Returns the problems."""
    problem = _mail(notification, wish.email) if wish.email else ""
    return [problem] if problem else []


def try_out(wish: Subscription, now: datetime) -> list[str]:
    """Send a test to the person's own mail address. Returns the problems."""
    words = {"title": "Notifications from Crier", "body": "This is a test: notifications reach you here."}
    return deliver(Notification(user=wish.user, level="info", created_at=now, **words), wish)


def _subject(notification: Notification) -> str:
    """Return the title and the reminder or account it is about."""
    about = notification.run.title if notification.run else str(notification.account or notification.reminder or "")
    return " ".join(f"{notification.title}: {about}".rstrip(": ").split())


def _mail(notification: Notification, address: str) -> str:
    """Return the problem; empty if there is none."""
    text = f"{notification.body}\n\n{settings.SITE_URL}{notification.get_absolute_url()}\n"
    try:
        send_mail(_subject(notification), text, None, [address])
    except (OSError, ValueError) as problem:
        return f"The mail to {address} could not be sent: {problem}"
    return ""
