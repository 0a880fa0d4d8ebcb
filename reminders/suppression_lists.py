"""Lists of suppressions: an address per line, or CSV with a header as the export writes it. Pure."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from accounts.addresses import AddressError, guess_kind, normalise
from reminders.imports import unguarded
from reminders.models import Suppression
from reminders.schedule import LATEST
from reminders.suppressions import New

#: what an export has, in this order; an import reads those that say something about the address
COLUMNS = ("address", "reason", "source", "detail", "created_at", "expires_at", "added_by")
MOST_DETAIL = 500


@dataclass(slots=True)
class SuppressionList:
    """What a text holds: usable entries in their order, and what is wrong with the other lines."""

    entries: list[New] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read(text: str, added_by: int | None, now: datetime) -> SuppressionList:
    """A line that cannot be used is named with its number and its problem; a repeated address counts once."""
    lines = text.lstrip("\ufeff").splitlines()
    names, result = _header(lines), SuppressionList()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#") or (names and number == 1):
            continue
        try:
            result.entries.append(_entry(_row(line, names), added_by, now))
        except (ValueError, csv.Error) as problem:
            result.problems.append(f"line {number} ({line.strip()[:40]}): {problem}")
    result.entries = list({entry.address: entry for entry in result.entries}.values())
    return result


def _header(lines: list[str]) -> list[str]:
    names = [word.strip().lower() for word in lines[0].split(",")] if lines else []
    return names if "address" in names else []


def _row(line: str, names: list[str]) -> Mapping[str, str]:
    if "\x00" in line:
        raise AddressError("The line contains a NUL character.")
    cells = next(csv.reader([line])) if names else [line]
    return dict(zip(names or ["address"], (unguarded(cell.strip()) for cell in cells)))


def _entry(row: Mapping[str, str], added_by: int | None, now: datetime) -> New:
    raw, reason = row.get("address", ""), row.get("reason") or Suppression.Reason.MANUAL.value
    if reason not in Suppression.Reason.values:
        raise ValueError(f"“{reason[:40]}” is not one of {', '.join(Suppression.Reason.values)}.")
    return New(
        address=normalise(guess_kind(raw), raw),
        reason=reason,
        source=Suppression.Source.IMPORT.value,
        detail=row.get("detail", "")[:MOST_DETAIL],
        at=now,
        expires_at=_moment(row.get("expires_at", "")),
        added_by=added_by,
    )


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        # Also for its overflow: in UTC the first and the last hours of the calendar do not exist everywhere.
        until = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"“{text[:40]}” is not a time; write it like 2026-12-31.") from None
    if problem := expiry_error(until):
        raise ValueError(problem)
    return until


def expiry_error(until: datetime) -> str:
    """In a sentence; empty where all is well. Near the end of the calendar a page cannot show it by every clock."""
    return "" if until < LATEST else "Leave the end empty for a suppression that never expires."
