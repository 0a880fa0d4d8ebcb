"""Logins, failed ones and lockouts, as entries of the audit trail."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from axes.signals import user_locked_out
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.utils import timezone

from fanout.models import TrailEntry
from fanout.models.trail import note

FAILED, LOCKED_OUT = "login failed", "locked out"
#: anybody can fail to log in, and nobody should fill the table by it
MOST_FAILURES_PER_MINUTE = 60


@receiver(user_logged_in, dispatch_uid="trail of logins")
def logged_in(user: Any, **kwargs: Any) -> None:
    note("logged in", user, user, timezone.now())


@receiver(user_logged_out, dispatch_uid="trail of logouts")
def logged_out(user: Any, **kwargs: Any) -> None:
    if user is not None:
        note("logged out", user, user, timezone.now())


@receiver(user_login_failed, dispatch_uid="trail of failed logins")
def login_failed(credentials: dict[str, Any], **kwargs: Any) -> None:
    note_failure(FAILED, str(credentials.get("username") or ""), timezone.now())


@receiver(user_locked_out, dispatch_uid="trail of lockouts")
def locked_out(username: str | None = None, **kwargs: Any) -> None:
    note_failure(LOCKED_OUT, username or "", timezone.now())


def note_failure(verb: str, name: str, now: datetime) -> None:
    """By the name only if somebody has it: people type their password into that field."""
    person = get_user_model().objects.filter(username=name[:150].replace("\0", "")).first()
    room = MOST_FAILURES_PER_MINUTE - failures_since(now - timedelta(minutes=1))
    if room > 0:
        detail = "" if person else "a name that nobody has"
        note(verb, person, None, now, detail if room > 1 else f"{detail} (further ones in this minute are not listed)")


def failures_since(moment: datetime) -> int:
    recent = TrailEntry.objects.filter(at__gt=moment, verb__in=(FAILED, LOCKED_OUT)).order_by()
    return len(recent.values_list("pk")[:MOST_FAILURES_PER_MINUTE])
