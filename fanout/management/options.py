"""Values of options that several commands take."""

from __future__ import annotations

import re
from datetime import datetime

from accounts.inputs import valid_timezone
from fanout.management.base import BadInput
from reminders.window import window_error

YEARS = range(2000, 2201)


def window(raw: str) -> tuple[int, int]:
    """`6-18`: the first and the closing hour."""
    match = re.fullmatch(r"(\d{1,2})-(\d{1,2})", raw)
    if match is None:
        raise BadInput(f"A window is written like 6-18, not {raw!r}.")
    start, end = int(match[1]), int(match[2])
    if problem := window_error(start, end):
        raise BadInput(problem)
    return start, end


def timezone_name(raw: str) -> str:
    if not valid_timezone(raw):
        raise BadInput(f"{raw!r} is not a timezone; write it like Asia/Kuala_Lumpur.")
    return raw


def date_and_time(raw: str, example: str) -> datetime:
    """ISO, with or without a timezone, in a year that has days before and after it."""
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        raise BadInput(f"--at takes {example}, not {raw!r}.") from None
    if moment.year not in YEARS:
        raise BadInput(f"--at takes a date from {YEARS.start} to {YEARS.stop - 1}, not one in {moment.year}.")
    return moment
