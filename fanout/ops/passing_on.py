"""Notifications by mail and webhook, for operators who asked for it."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from django.conf import settings
from django.core.mail import send_mail

from accounts.channels import guard
from accounts.channels.http import FAILURES, connector
from fanout.models import Notification, Subscription
from fanout.runs import texts

log = logging.getLogger("crier.notifications")

TIMEOUT = 5.0
# A task is ended after a minute; what is left then is passed on by the next one.
BUDGET_SECONDS = 40.0
# Bounces of one run are told together: the bell is kept up to date meanwhile (TELL_AGAIN in fanout.runs.transitions).
BOUNCES_GATHER = timedelta(minutes=5)


def pass_on(now: datetime) -> int:
    """Pass on what is new; called every minute. Returns how many notifications went out."""
    wishes = {wish.user_id: wish for wish in Subscription.objects.all()}
    deadline, passed_on = time.monotonic() + BUDGET_SECONDS, 0
    waiting = Notification.objects.filter(passed_on_at=None)
    ripe = waiting.exclude(title=texts.CAME_BACK, created_at__gt=now - BOUNCES_GATHER)
    ripe.exclude(user__in=wishes).update(passed_on_at=now)
    for notification in ripe.order_by("id"):
        if time.monotonic() > deadline:
            break
        # Claimed first, so that nobody gets it twice.
        if Notification.objects.filter(pk=notification.pk, passed_on_at=None).update(passed_on_at=now):
            notification.refresh_from_db(fields=["body"])  # it may have been kept up to date since it was read
            passed_on += _pass_on_safely(notification, wishes[notification.user_id])
    return passed_on


def _pass_on_safely(notification: Notification, wish: Subscription) -> bool:
    """What one person's server answers must not keep the others from their notifications."""
    try:
        return _pass_on(notification, wish)
    except Exception:
        log.exception("a notification could not be passed on", extra={"notification": notification.pk})
        return False


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
    except (OSError, ValueError) as problem:
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
    try:
        status = asyncio.run(_answer(url, payload))
    except (*FAILURES, ValueError) as failure:
        log.warning("webhook failed: %s", failure, extra={"notification": notification.pk})
    else:
        if status >= 300:
            log.warning("webhook answered %s", status, extra={"notification": notification.pk})


async def _answer(url: str, payload: dict[str, Any]) -> int:
    """The status only. A redirect is not followed, and the time is for everything together."""
    async with (
        aiohttp.ClientSession(
            connector=connector(),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT),
            headers={"User-Agent": "Crier"},
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session,
        session.post(url, json=payload, allow_redirects=False) as response,
    ):
        return response.status


def webhook_error(url: str) -> str:
    """Why a webhook may not be called, for the person who enters it: nobody reaches the server's own network by it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        return "The address of a webhook starts with https://."
    return guard.problem(parts.hostname or "")
