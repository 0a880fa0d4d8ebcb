"""Small values that people type: ids of rows and names of timezones; and counts in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from zoneinfo import available_timezones

#: the largest key in PostgreSQL (bigint)
LARGEST_ID = 2**63 - 1
#: ISO weekdays
EVERY_DAY = frozenset(range(1, 8))
SEND_DAYS = "Send days are the numbers 1 (Monday) to 7 (Sunday)."


def as_id(text: str) -> int | None:
    """Return the key of a row, or None. `isdigit` alone accepts "²", and a long number exceeds what the database
    takes."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= LARGEST_ID else None


def as_ids(texts: Iterable[str]) -> list[int]:
    """Return the keys among the texts and leave out the rest."""
    return [number for text in texts if (number := as_id(text)) is not None]


def counted(n: int, noun: str) -> str:
    """Return a count in words: "1 recipient", "5,000 recipients", "2 deliveries"."""
    many = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        many = f"{noun[:-1]}ies"
    return f"{n:,} {noun if n == 1 else many}"


# Files of the zone database that name no place: the machine's own setting and the "not set up yet" marker.
NOT_A_PLACE = {"localtime", "Factory"}


@lru_cache(maxsize=1)
def _known_timezones() -> frozenset[str]:
    # Looking the name up in the list, not on the disk, refuses paths, and "europe/paris" on any file system.
    return frozenset(available_timezones() - NOT_A_PLACE)


def valid_timezone(name: str) -> bool:
    return name in _known_timezones()
