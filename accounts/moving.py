"""Stored credentials are for one destination. Pure.

Nobody can read them, so nobody may have them sent elsewhere either: who points an account at another server, or lets it
sign in as somebody else, enters its credentials again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names of the settings by which a destination differs from another (Account.destination)."""
    return sorted(name for name in {**before, **after} if before.get(name) != after.get(name))


def sentence(names: list[str]) -> str:
    return (
        f"{' and '.join(names)} changed: the stored credentials are for the old destination, so enter them again "
        "together with the change."
    )
