"""How many wrong passwords are too many: for one name from one address, for a name, and for an address."""

from __future__ import annotations

from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from django.conf import settings
from django.db.models import Sum


class Handler(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    """With a ceiling for each of AXES_LOCKOUT_PARAMETERS; axes itself has one for all of them."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """In units of the first ceiling, which is axes' own limit."""
        counts = [_failures(attempts) for attempts in self.get_user_attempts(request, credentials)]
        scaled = zip(counts, settings.LOCKOUT_CEILINGS, strict=True)
        return max(count * settings.AXES_FAILURE_LIMIT // ceiling for count, ceiling in scaled)

    def reset_user_attempts(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Only this name's from this address. Whoever has a login would else wipe out their guesses at other names."""
        username = get_client_username(request, credentials)
        return self.reset_attempts(username=username, ip_address=request.axes_ip_address) if username else 0


def _failures(attempts: Any) -> int:
    return attempts.aggregate(n=Sum("failures_since_start"))["n"] or 0
