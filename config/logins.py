"""Logins: how long a session lasts, how many wrong passwords are too many, and the passwords of the demo."""

from __future__ import annotations

import time
from typing import Any

from axes.backends import AxesStandaloneBackend
from axes.handlers.database import AxesDatabaseHandler
from axes.handlers.proxy import AxesProxyHandler
from axes.helpers import get_client_username
from axes.models import AccessAttempt
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user_model
from django.contrib.auth.backends import ModelBackend
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection, transaction
from django.db.models import F, Sum
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


# --- wrong passwords --------------------------------------------------------------------------------------

#: longest name of a user; a longer one is refused before its password is hashed, and counts as a wrong guess
MOST_NAME = 150
LOGIN_LOCKS = 0x435247  # "CRG": the first key of an advisory lock; the second is a name's or an address' hash
# In one order, so that two guesses never wait for each other.
LOCK = """
SELECT pg_advisory_xact_lock(%s, key)
  FROM (SELECT DISTINCT hashtext(word) AS key FROM unnest(%s::text[]) AS word ORDER BY key) AS ordered
"""


class CountingBackend(AxesStandaloneBackend, ModelBackend):  # type: ignore[misc]  # axes has no types
    """Check passwords. A guess counts as wrong before its password is hashed, and is taken back if it is right.

    Hashing takes a good part of a second. If guesses were counted after it, all that come within that time would find
    the same count, below the limit.
    """

    def authenticate(
        self, request: Any, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> Any:
        if username is None or password is None:
            return None
        guess = self._count(request, username[:MOST_NAME]) if settings.AXES_ENABLED else None
        request.counted_guess = True  # for the audit trail: not refused because of a lockout
        if len(username) <= MOST_NAME:
            user = ModelBackend.authenticate(self, request, username, password)
            if user is not None:
                self._take_back(guess)
                return user
        # The next back end would only hash the password once more.
        raise PermissionDenied("wrong name or password")

    def _count(self, request: Any, name: str) -> int:
        """Count a guess at this name from this address, and return its row. Raises PermissionDenied when locked out.

        The lock makes checking and counting one step for all guesses at the name and from the address.
        """
        AxesProxyHandler.update_request(request)
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(LOCK, [LOGIN_LOCKS, [f"name {name}", f"address {request.axes_ip_address}"]])
            if not AxesProxyHandler.is_allowed(request, {"username": name}):
                request.axes_locked_out = True  # the answer is 429
                raise PermissionDenied("locked out")
            AxesProxyHandler.get_implementation().clean_expired_user_attempts(request)
            attempt, _ = AccessAttempt.objects.get_or_create(
                username=name,
                ip_address=request.axes_ip_address,
                user_agent=request.axes_user_agent,
                defaults={"get_data": "", "post_data": "", "failures_since_start": 0},
            )
            AccessAttempt.objects.filter(pk=attempt.pk).update(
                failures_since_start=F("failures_since_start") + 1,
                attempt_time=request.axes_attempt_time,
                path_info=request.axes_path_info,
                http_accept=request.axes_http_accept,
            )
        return int(attempt.pk)

    def _take_back(self, guess: int | None) -> None:
        rows = AccessAttempt.objects.filter(pk=guess)
        if not rows.filter(failures_since_start__lte=1).delete()[0]:
            rows.update(failures_since_start=F("failures_since_start") - 1)


class LockoutHandler(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    """Lockout with a limit for each of AXES_LOCKOUT_PARAMETERS; axes itself has one for all of them."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Return the failures in units of the first limit, which is axes' own."""
        counts = [_failures(attempts) for attempts in self.get_user_attempts(request, credentials)]
        scaled = zip(counts, settings.LOCKOUT_CEILINGS, strict=True)
        return max(count * settings.AXES_FAILURE_LIMIT // ceiling for count, ceiling in scaled)

    def user_login_failed(self, sender: Any, credentials: dict[str, Any], request: Any = None, **kwargs: Any) -> None:
        """Answer the last guess with a refusal, too. It was counted by the back end."""
        name = (get_client_username(request, credentials) or "")[:MOST_NAME]
        if request.axes_locked_out or self.is_locked(request, {"username": name}):
            request.axes_locked_out, request.axes_credentials = True, credentials
            user_locked_out.send("axes", request=request, username=name, ip_address=request.axes_ip_address)

    def reset_user_attempts(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Clear only this name's failures from this address. Otherwise a login would clear guesses at other names."""
        username = get_client_username(request, credentials)
        return self.reset_attempts(username=username, ip_address=request.axes_ip_address) if username else 0


def _failures(attempts: Any) -> int:
    return attempts.aggregate(n=Sum("failures_since_start"))["n"] or 0


# --- the demo's passwords ---------------------------------------------------------------------------------


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
