"""Numbers that strangers write, and numbers in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable

#: what a key in PostgreSQL holds (bigint)
LARGEST_ID = 2**63 - 1


def as_id(text: str) -> int | None:
    """The key of a row, or None: `isdigit` alone takes "²", and a long one is more than the database takes."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= LARGEST_ID else None


def as_ids(texts: Iterable[str]) -> list[int]:
    """The keys among them; what is none is left out."""
    return [number for text in texts if (number := as_id(text)) is not None]


def counted(n: int, noun: str) -> str:
    """ "1 recipient", "5,000 recipients"."""
    many = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else many}"
