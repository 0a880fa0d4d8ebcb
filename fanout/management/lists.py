"""Lists of recipients as people have them: one address per line, or CSV with a header."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import transaction

from accounts.addresses import AddressError, guess_kind, normalise
from fanout.management.base import BadInput
from reminders.models import Recipient

COLUMNS = {"address", "name", "kind", "tags"}
BATCH = 1000
MOST_TAG = 60


@dataclass
class Entry:
    line: int
    kind: str
    address: str
    name: str = ""
    tags: list[str] = field(default_factory=list)


@dataclass
class Listed:
    """What a file holds: usable entries in their order, and what is wrong with the others."""

    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    repeated: int = 0


def read(path: str, kind: str | None, region: str | None, tags: list[str]) -> Listed:
    listed, seen = Listed(), set()
    lines = _lines(path)
    names = _header(lines)
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#") or (names and number == 1):
            continue
        try:
            entry = _entry(number, _row(line, names), kind, region, tags)
        except (AddressError, csv.Error) as problem:
            listed.problems.append(f"line {number}: {problem}")
            continue
        if entry.address in seen:
            listed.repeated += 1
        else:
            seen.add(entry.address)
            listed.entries.append(entry)
    return listed


def _lines(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{path} cannot be read: {reason}.") from None
    return text.splitlines()


def _header(lines: list[str]) -> list[str]:
    """Without one each line is an address: a display name may hold a comma."""
    try:
        names = [word.strip().lower() for word in next(csv.reader(lines[:1]), [])]
    except csv.Error:
        return []
    return names if "address" in names else []


def _row(line: str, names: list[str]) -> dict[str, str]:
    if "\x00" in line:
        raise AddressError("The line contains a NUL character.")
    cells = next(csv.reader([line])) if names else [line.strip()]
    return dict(zip(names or ["address"], cells))


def _entry(number: int, row: dict[str, str], kind: str | None, region: str | None, tags: list[str]) -> Entry:
    raw = row.get("address", "")
    chosen = (row.get("kind") or "").strip() or kind or guess_kind(raw)
    if chosen not in Recipient.Kind.values:
        raise AddressError(f"“{chosen}” is not one of {', '.join(Recipient.Kind.values)}.")
    own = [tag.strip() for tag in (row.get("tags") or "").split(";") if tag.strip()]
    if any(len(tag) > MOST_TAG for tag in own):
        raise AddressError(f"A tag has at most {MOST_TAG} characters.")
    name = (row.get("name") or "").strip()[:200]
    return Entry(number, chosen, normalise(chosen, raw, region), name, sorted({*own, *tags}))


def store(listed: Listed, owner: Any, team: Any = None) -> int:
    """Add those that the owner has not got. What is there keeps its name, tags and status."""
    before = Recipient.objects.filter(owner=owner).count()
    with transaction.atomic():
        Recipient.objects.bulk_create(
            (
                Recipient(owner=owner, team=team, kind=e.kind, address=e.address, name=e.name, tags=e.tags)
                for e in listed.entries
            ),
            batch_size=BATCH,
            ignore_conflicts=True,
        )
    return Recipient.objects.filter(owner=owner).count() - before


def stored(listed: Listed, owner: Any) -> list[Recipient]:
    """The recipients of a list, in its order."""
    addresses = [entry.address for entry in listed.entries]
    found = {r.address: r for r in Recipient.objects.filter(owner=owner, address__in=addresses)}
    return [found[address] for address in addresses]


def refuse(listed: Listed, path: str) -> None:
    """All lines or none: half a list is worse than a sentence."""
    if listed.problems:
        shown = "; ".join(listed.problems[:10])
        more = f" and {len(listed.problems) - 10} more" if len(listed.problems) > 10 else ""
        raise BadInput(f"{path} has {len(listed.problems)} unusable lines ({shown}{more}); nothing was changed.")
    if not listed.entries:
        raise BadInput(f"{path} has no addresses in it.")
