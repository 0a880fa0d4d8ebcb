"""What the operator is told, and through what: the bell and its history, mail, webhook.

Whoever finishes or pauses a run writes a Notification (runs/transitions.py); from here it reaches the person.
A skipped firing writes none.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import time
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import send_mail
from django.db.models import Q, QuerySet
from django.urls import reverse

from fanout.admin.stream import LOOK_BACK, OVERLAP, news_frame
from fanout.models import Notification, Subscription

log = logging.getLogger("crier.notices")

MOST_MISSED = 100
UNREAD_CAP = 99
TIMEOUT = 5.0
# A task is ended after a minute; what is left then is seen to by the next one.
BUDGET_SECONDS = 40.0


def bell(user: Any) -> dict[str, Any]:
    """The number on the bell, and from where on the stream has to go on."""
    unread = Notification.objects.filter(user=user, read_at=None)[: UNREAD_CAP + 1].count()
    last = Notification.objects.filter(user=user).order_by("-id").values_list("id", flat=True).first()
    return {
        "unread": unread,
        "last": last or 0,
        "shown": unread if unread <= UNREAD_CAP else f"{UNREAD_CAP}+",
    }


def history(user: Any, most: int = 12) -> QuerySet[Notification]:
    return Notification.objects.filter(user=user).order_by("-id")[:most]


def missed(user_id: int, after: int, now: datetime) -> list[str]:
    """What a tab that comes back has not seen, ready for the wire. A later commit may carry a lower id: those
    of the last minute are told again, and the page drops repeats."""
    late = Q(id__gt=after - LOOK_BACK, created_at__gte=now - OVERLAP)
    rows = Notification.objects.filter(Q(id__gt=after) | late, user_id=user_id).order_by("-id")[:MOST_MISSED]
    return [news_frame(row.__dict__) for row in reversed(rows)]


def mark_read(user: Any, now: datetime, ids: list[int] | None = None) -> int:
    unread = Notification.objects.filter(user=user, read_at=None)
    return (unread if ids is None else unread.filter(pk__in=ids)).update(read_at=now)


def link(notification: Notification) -> str:
    """The page a click leads to."""
    if notification.run_id:
        return reverse("admin:fanout_run_change", args=[notification.run_id])
    if notification.account_id:
        return reverse("admin:accounts_account_change", args=[notification.account_id])
    return reverse("admin:fanout_notification_changelist")


# --- mail and webhook -----------------------------------------------------------------------------------


def pass_on(now: datetime) -> int:
    """Mail and webhooks for what is new; called every minute. How many people were told."""
    wishes = {wish.user_id: wish for wish in Subscription.objects.all()}
    deadline, told = time.monotonic() + BUDGET_SECONDS, 0
    unwanted = Notification.objects.filter(passed_on_at=None).exclude(user__in=wishes)
    unwanted.update(passed_on_at=now)
    for notification in Notification.objects.filter(passed_on_at=None).order_by("id"):
        if time.monotonic() > deadline:
            break
        # Claimed first, so that nobody is told twice.
        if Notification.objects.filter(pk=notification.pk, passed_on_at=None).update(passed_on_at=now):
            told += _pass_on(notification, wishes[notification.user_id])
    return told


def _pass_on(notification: Notification, wish: Subscription) -> bool:
    if wish.only_problems and notification.level == "info":
        return False
    if wish.email:
        _mail(notification, wish.email)
    if wish.webhook:
        _post(notification, wish.webhook)
    return bool(wish.email or wish.webhook)


def _mail(notification: Notification, address: str) -> None:
    text = f"{notification.body}\n\n{settings.SITE_URL}{link(notification)}\n"
    try:
        send_mail(notification.title, text, None, [address])
    except OSError as problem:
        log.warning("mail to %s about notification %s failed: %s", address, notification.pk, problem)


def _post(notification: Notification, url: str) -> None:
    facts = {
        "id": notification.pk, "title": notification.title, "body": notification.body,
        "level": notification.level, "run": notification.run_id, "account": notification.account_id,
        "url": settings.SITE_URL + link(notification),
    }  # fmt: skip
    if problem := webhook_error(url):
        log.warning("webhook of notification %s not called: %s", notification.pk, problem)
        return
    request = urllib.request.Request(
        url, json.dumps(facts).encode(), {"Content-Type": "application/json", "User-Agent": "Crier"}
    )
    try:
        _opener.open(request, timeout=TIMEOUT).close()
    except (OSError, urllib.error.URLError) as failure:
        log.warning("webhook of notification %s failed: %s", notification.pk, failure)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to where the check below would not have let us go."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def webhook_error(url: str) -> str:
    """Why a webhook may not be called: operators must not reach the machine's own network through it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "A webhook's address starts with https://."
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, proto=socket.IPPROTO_TCP)
    except OSError:
        return f"The host {parts.hostname} is not known."
    if not all(ipaddress.ip_address(str(entry[4][0])).is_global for entry in found):
        return f"{parts.hostname} is inside a private network."
    return ""
