"""Bar charts: positions in a box of 100 by 100, which a template draws as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MOST_BARS = 90
STEPS = tuple(timedelta(minutes=m) for m in (1, 2, 5, 10, 15, 30, 60, 120, 240, 720, 1440))


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time that is marked behind the bars."""

    x: float
    width: float
    tone: str
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    bars: list[Bar]
    top: str
    left: str
    right: str
    bands: list[Band] = field(default_factory=list)
    line: str = ""  # the points of a polyline
    empty: str = "Nothing to show yet."


def step_for(starts: datetime, ends: datetime) -> timedelta:
    """The shortest step that keeps the bars wide enough to see."""
    return next((step for step in STEPS if (ends - starts) / step <= MOST_BARS), STEPS[-1])


def timeline(
    title: str,
    counts: Mapping[datetime, int],
    starts: datetime,
    ends: datetime,
    step: timedelta,
    zone: str,
    spans: Iterable[tuple[datetime, datetime, str, str]] = (),
) -> Chart:
    """`counts` by the start of their step; `spans` are (from, to, tone, label)."""
    whole = max((ends - starts).total_seconds(), 1.0)
    most = max(counts.values(), default=0)
    top = nice(most)
    tz = ZoneInfo(zone)
    width = step.total_seconds() / whole * 100

    def x(at: datetime) -> float:
        return round(min(max((at - starts).total_seconds() / whole * 100, 0), 100), 2)

    bars = [bar(x(at), width, n / top, f"{at.astimezone(tz):%H:%M} {n}") for at, n in sorted(counts.items()) if n]
    bands = [
        Band(x(begin), round(x(end) - x(begin), 2), tone, label)
        for begin, end, tone, label in spans
        if x(end) > x(begin)
    ]
    day = "%a %H:%M" if ends - starts > timedelta(hours=20) else "%H:%M"
    left, right = (f"{at.astimezone(tz):{day}}" for at in (starts, ends))
    return Chart(title, bars, f"{top:,}", left, right, bands)


def curve(title: str, values: Sequence[tuple[str, int]], marked: int | None = None) -> Chart:
    """One bar per value, in order; `marked` is the one to point out."""
    top = nice(max((n for _, n in values), default=0))
    width = 100 / max(len(values), 1)
    bars = [bar(i * width, width, n / top, f"{label}: {n}") for i, (label, n) in enumerate(values)]
    bands = [] if marked is None else [Band(round(marked * width, 2), round(width, 2), "now", "today")]
    ends = (values[0][0], values[-1][0]) if values else ("", "")
    return Chart(title, bars, f"{top:,}", *ends, bands)


def bar(x: float, step: float, share: float, label: str) -> Bar:
    """A bar that leaves a gap to the next one; `step` is their distance, `share` its part of the full height."""
    height = share * 100
    return Bar(round(x, 2), round(100 - height, 2), round(step * 0.86, 2), round(height, 2), label)


def nice(most: int) -> int:
    """A round number at or above the highest bar."""
    if most <= 5:
        return max(most, 1)
    power = 10 ** (len(str(most)) - 1)
    return next((math.ceil(step * power) for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= most), most)
