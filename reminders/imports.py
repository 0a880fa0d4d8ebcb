"""Lists of recipients as people have them, pasted or in a file: an address per line, with a name before or after it
if there is one, or CSV with a header. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from accounts.addresses import AddressError, guess_kind, normalise
from reminders.models import Recipient

MOST_TAG = 60
MOST_NAME = 200
MOST_FIELD = 500
COLUMNS = ("address", "name", "kind", "tags")
FORMULA = ("=", "+", "-", "@", ";")
SEPARATOR = re.compile(r"[\t;,]")
NOT_IN_A_NAME = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Entry:
    line: int
    kind: str
    address: str
    name: str = ""
    tags: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RecipientList:
    """What a text holds: usable entries in their order, each address once, and what is wrong with the other lines."""

    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for every line that does not say otherwise: kind (None: guessed), country, tags."""

    kind: str | None = None
    region: str | None = None
    tags: Sequence[str] = ()


GUESS_ALL = Defaults()


def read(text: str, defaults: Defaults = GUESS_ALL) -> RecipientList:
    lines = text.splitlines()
    columns = _header(lines)
    result, seen = RecipientList(), set()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#") or (columns and number == 1):
            continue
        try:
            entry = _entry(number, line, columns, defaults)
        except (AddressError, csv.Error) as problem:
            result.problems.append(f"line {number} ({line.strip()[:40]}): {problem}")
            continue
        result.repeated += entry.address in seen
        if entry.address not in seen:
            seen.add(entry.address)
            result.entries.append(entry)
    return result


def _header(lines: list[str]) -> list[str]:
    """The columns of a CSV file; without them each line is an address, because a display name may hold a comma."""
    try:
        names = [word.strip().lower() for word in next(csv.reader(lines[:1]), [])]
    except csv.Error:
        return []
    return names if "address" in names else []


def _entry(number: int, line: str, columns: list[str], defaults: Defaults) -> Entry:
    if "\x00" in line:
        raise AddressError("The line contains a NUL character.")
    if columns:
        return _from_row(number, dict(zip(columns, map(unguarded, next(csv.reader([line]))))), defaults)
    kind, address, name = _from_line(line.strip(), defaults)
    return Entry(number, kind, address, name, sorted(defaults.tags))


def unguarded(cell: str) -> str:
    """Without the apostrophe that an export puts before what a spreadsheet would take for a formula."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in FORMULA else cell


def _from_row(number: int, row: dict[str, str], defaults: Defaults) -> Entry:
    raw = row.get("address", "")
    kind = (row.get("kind") or "").strip() or defaults.kind or guess_kind(raw)
    if kind not in Recipient.Kind.values:
        raise AddressError(f"“{kind}” is not one of {', '.join(Recipient.Kind.values)}.")
    tags = [tag.strip() for tag in (row.get("tags") or "").split(";") if tag.strip()]
    if any(len(tag) > MOST_TAG for tag in tags):
        raise AddressError(f"A tag has at most {MOST_TAG} characters.")
    name = (row.get("name") or "").strip()[:MOST_NAME]
    address = normalise(kind, raw, defaults.region)
    return Entry(number, kind, address, name, sorted({*tags, *defaults.tags}), _fields(row))


def _fields(row: dict[str, str]) -> dict[str, str]:
    """Every other column, under a name that a placeholder can have: "Flat no." is {flat_no}."""
    own = {field_name(column): value.strip() for column, value in row.items() if column not in COLUMNS}
    if any(len(value) > MOST_FIELD for value in own.values()):
        raise AddressError(f"A field has at most {MOST_FIELD} characters.")
    return {name: value for name, value in own.items() if name and value}


def field_name(words: str) -> str:
    """Empty where nothing is left that a placeholder could be called."""
    name = NOT_IN_A_NAME.sub("_", words.strip().lower()).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def _from_line(line: str, defaults: Defaults) -> tuple[str, str, str]:
    """Kind, address and name: the whole line is the address, or one of its pieces is and the rest is the name."""
    try:
        return *_address(line, defaults), ""
    except AddressError as problem:
        pieces = [piece.strip() for piece in SEPARATOR.split(line)]
        return _among(pieces, defaults, problem)


def _among(pieces: list[str], defaults: Defaults, problem: AddressError) -> tuple[str, str, str]:
    for piece in pieces if len(pieces) > 1 else ():
        try:
            kind, address = _address(piece, defaults)
        except AddressError:
            continue
        rest = " ".join(other for other in pieces if other and other != piece)
        return kind, address, rest[:MOST_NAME]
    raise problem


def _address(text: str, defaults: Defaults) -> tuple[str, str]:
    kind = defaults.kind or guess_kind(text)
    return kind, normalise(kind, text, defaults.region)


def first_problems(problems: Sequence[str], most: int) -> list[str]:
    """What is shown of a long list of problems."""
    more = len(problems) - most
    return [*problems[:most], *([f"and {more} more"] if more > 0 else [])]
