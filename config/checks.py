"""What `check --deploy` and `doctor` refuse."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError

from config.demo_logins import LOGINS


@register(Tags.security, "demo", deploy=True)
def demo_logins(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """An error that names the demo's users whose passwords still work: the README prints them."""
    try:
        names = [name for name, password in LOGINS if _works(name, password)]
    except DatabaseError:
        return []  # without a database nobody logs in, and other checks say so
    hint = "Change the passwords or delete the users: they belong to the demo."
    return [Error(f"Demo passwords work: {', '.join(names)}.", hint=hint, id="crier.E002")] if names else []


def _works(name: str, password: str) -> bool:
    user = get_user_model().objects.filter(username=name, is_active=True).first()
    return user is not None and user.check_password(password)
