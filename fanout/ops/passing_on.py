"""Notifications by mail and webhook, for operators who asked for it."""

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

from fanout.models import Notification, Subscription

log = logging.getLogger("crier.notifications")

TIMEOUT = 5.0
# A task is ended after a minute; what is left then is passed on by the next one.
BUDGET_SECONDS = 40.0


def pass_on(now: datetime) -> int:
    """Pass on what is new; called every minute. Returns how many notifications went out."""
    wishes = {wish.user_id: wish for wish in Subscription.objects.all()}
    deadline, passed_on = time.monotonic() + BUDGET_SECONDS, 0
    unwanted = Notification.objects.filter(passed_on_at=None).exclude(user__in=wishes)
    unwanted.update(passed_on_at=now)
    for notification in Notification.objects.filter(passed_on_at=None).order_by("id"):
        if time.monotonic() > deadline:
            break
        # Claimed first, so that nobody gets it twice.
        if Notification.objects.filter(pk=notification.pk, passed_on_at=None).update(passed_on_at=now):
            passed_on += _pass_on(notification, wishes[notification.user_id])
    return passed_on


def _pass_on(notification: Notification, wish: Subscription) -> bool:
    if wish.only_problems and notification.level == "info":
        return False
    if wish.email:
        _mail(notification, wish.email)
    if wish.webhook:
        _post(notification, wish.webhook)
    return bool(wish.email or wish.webhook)


def _mail(notification: Notification, address: str) -> None:
    text = f"{notification.body}\n\n{settings.SITE_URL}{notification.get_absolute_url()}\n"
    try:
        send_mail(notification.title, text, None, [address])
    except OSError as problem:
        log.warning("mail to %s failed: %s", address, problem, extra={"notification": notification.pk})


def _post(notification: Notification, url: str) -> None:
    payload = {
        "id": notification.pk,
        "title": notification.title,
        "body": notification.body,
        "level": notification.level,
        "run": notification.run_id,
        "account": notification.account_id,
        "url": settings.SITE_URL + notification.get_absolute_url(),
    }
    if problem := webhook_error(url):
        log.warning("webhook not called: %s", problem, extra={"notification": notification.pk})
        return
    request = urllib.request.Request(
        url, json.dumps(payload).encode(), {"Content-Type": "application/json", "User-Agent": "Crier"}
    )
    try:
        _opener.open(request, timeout=TIMEOUT).close()
    except (OSError, urllib.error.URLError) as failure:
        log.warning("webhook failed: %s", failure, extra={"notification": notification.pk})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to where the check below would not have let us go."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def webhook_error(url: str) -> str:
    """Why a webhook may not be called: operators must not reach the machine's own network through it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "The address of a webhook starts with https://."
    try:
        addresses = socket.getaddrinfo(parts.hostname, parts.port or 443, proto=socket.IPPROTO_TCP)
    except OSError:
        return f"The host {parts.hostname} has no address: check its spelling."
    if not all(ipaddress.ip_address(str(entry[4][0])).is_global for entry in addresses):
        return f"{parts.hostname} is in a private network, which webhooks may not reach."
    return ""
