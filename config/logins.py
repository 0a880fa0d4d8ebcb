"""Logins: how long a session lasts, how many wrong passwords are too many, and the passwords of the demo."""

from __future__ import annotations

import time
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user_model
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError
from django.db.models import Sum
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

#: Seconds. Saving the session with every page would cost three statements each.
RENEWED_EVERY = 300
#: The demo's users and their passwords, which the README prints: made by `demo_data`, refused by `check --deploy`.
DEMO_LOGINS = [("admin", "crier-admin"), ("mei", "crier-mei"), ("jonas", "crier-jonas")]


class IdleLimit(MiddlewareMixin):
    """End a session after SESSION_COOKIE_AGE without a page: Django counts from the last change of a session."""

    def process_request(self, request: HttpRequest) -> None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or SESSION_KEY not in request.session:
            return
        now = int(time.time())
        if now - request.session.get("seen", 0) > RENEWED_EVERY:
            request.session["seen"] = now


class LockoutHandler(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    """Lockout with a limit for each of AXES_LOCKOUT_PARAMETERS; axes itself has one for all of them."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Return the failures in units of the first limit, which is axes' own."""
        counts = [_failures(attempts) for attempts in self.get_user_attempts(request, credentials)]
        scaled = zip(counts, settings.LOCKOUT_CEILINGS, strict=True)
        return max(count * settings.AXES_FAILURE_LIMIT // ceiling for count, ceiling in scaled)

    def reset_user_attempts(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Clear only this name's failures from this address. Otherwise a login would clear guesses at other names."""
        username = get_client_username(request, credentials)
        return self.reset_attempts(username=username, ip_address=request.axes_ip_address) if username else 0


def _failures(attempts: Any) -> int:
    return attempts.aggregate(n=Sum("failures_since_start"))["n"] or 0


@register(Tags.security, "demo", deploy=True)
def demo_logins(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Return an error for users of the demo whose passwords still work: the README prints them."""
    try:
        names = [name for name, password in DEMO_LOGINS if _works(name, password)]
    except DatabaseError:
        return []  # without a database logging in is impossible, and other checks report it
    hint = "Change the passwords or delete the users: they belong to the demo."
    return [Error(f"Demo passwords work: {', '.join(names)}.", hint=hint, id="crier.E002")] if names else []


def _works(name: str, password: str) -> bool:
    user = get_user_model().objects.filter(username=name, is_active=True).first()
    return user is not None and user.check_password(password)
