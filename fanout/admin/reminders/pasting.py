"""A pasted list becomes addresses: one per line, with a name before or after it if there is one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from accounts.addresses import AddressError, guess_kind, normalise

MOST_LINES = 20_000
PROBLEMS_SHOWN = 5
SEPARATOR = re.compile(r"[\t;,]")


@dataclass(frozen=True, slots=True)
class Line:
    kind: str
    address: str
    name: str = ""


def read_lines(text: str) -> tuple[list[Line], list[str]]:
    """The addresses, each once, and a sentence for every line that is none."""
    found: dict[str, Line] = {}
    problems = []
    for number, raw in enumerate(text.splitlines(), 1):
        if not raw.strip():
            continue
        try:
            line = read_line(raw)
            found.setdefault(line.address, line)
        except AddressError as error:
            problems.append(f"Line {number} ({raw.strip()[:40]}): {error}")
    return list(found.values()), problems


def read_line(raw: str) -> Line:
    """The whole line is the address, or the first of its pieces that is one; the rest is the name."""
    try:
        kind = guess_kind(raw)
        return Line(kind, normalise(kind, raw))
    except AddressError as error:
        pieces = [piece.strip() for piece in SEPARATOR.split(raw)]
        if len(pieces) < 2:
            raise error
        return _among(pieces, error)


def _among(pieces: list[str], error: AddressError) -> Line:
    for piece in pieces:
        try:
            kind = guess_kind(piece)
            address = normalise(kind, piece)
        except AddressError:
            continue
        rest = " ".join(other for other in pieces if other and other != piece)
        return Line(kind, address, rest[:200])
    raise error


def told(problems: Iterable[str]) -> list[str]:
    every = list(problems)
    more = len(every) - PROBLEMS_SHOWN
    return [*every[:PROBLEMS_SHOWN], *([f"And {more} more lines."] if more > 0 else [])]
