"""Which timezone names are real."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

# Files of the zone database that name no place: the machine's own setting and the "not set up yet" marker.
NOT_A_PLACE = {"localtime", "Factory"}


@lru_cache(maxsize=1)
def _known_timezones() -> frozenset[str]:
    # Looking the name up in the list, not on the disk, refuses paths, and "europe/paris" on any file system.
    return frozenset(available_timezones() - NOT_A_PLACE)


def valid_timezone(name: str) -> bool:
    return name in _known_timezones()
