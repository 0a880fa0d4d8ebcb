"""Bar charts: positions in a box of 100 by 100, which a template draws as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MOST_BARS = 90
LEAST_APART = 14.0  # of two times below the chart, in hundredths of its width
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
class Tick:
    """A time below the chart; `anchor` is the side of the text that stands there, as SVG names it."""

    x: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Line:
    """One of several curves: the points of a polyline, its place among the colours, and what it is."""

    points: str
    colour: int
    label: str
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    bars: list[Bar]
    top: str
    middle: str = ""
    ticks: list[Tick] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    empty: str = "Nothing to show yet."


def step_for(whole: timedelta) -> timedelta:
    """The shortest step that keeps the bars of so long a time wide enough to see."""
    return next((step for step in STEPS if whole / step <= MOST_BARS), STEPS[-1])


class Axis:
    """Times as places from 0 to 100: the periods one after the other, with a narrow gap for the time between two."""

    def __init__(self, periods: Sequence[tuple[datetime, datetime]]) -> None:
        self.periods = periods
        self.gap = min(4.0, 30 / len(periods))
        seconds = sum((end - begin).total_seconds() for begin, end in periods)
        self.per_second = (100 - self.gap * (len(periods) - 1)) / max(seconds, 1.0)

    def x(self, at: datetime) -> float:
        """What lies in a gap stands at the end of the period before it."""
        place = 0.0
        for number, (begin, end) in enumerate(self.periods):
            if at < end or number == len(self.periods) - 1 or at < self.periods[number + 1][0]:
                inside = (min(max(at, begin), end) - begin).total_seconds()
                return round(place + inside * self.per_second, 2)
            place += (end - begin).total_seconds() * self.per_second + self.gap
        return 100.0

    def width(self, step: timedelta) -> float:
        return step.total_seconds() * self.per_second

    def gaps(self) -> list[Band]:
        return [
            Band(self.x(end), round(self.gap, 2), "paused", "paused")
            for (_, end), _ in zip(self.periods, self.periods[1:])
        ]

    def ticks(self, tz: ZoneInfo) -> list[Tick]:
        """The begin of every period that has room for it, and the end of the last one."""
        first, last = self.periods[0][0], self.periods[-1][1]
        words = "%a %H:%M" if last - first > timedelta(hours=20) else "%H:%M"
        ticks = [Tick(0.0, f"{first.astimezone(tz):{words}}", "start")]
        inner = [begin for begin, _ in self.periods[1:]] or [first + (last - first) / 2]
        for at in inner:
            x = self.x(at)
            if x - ticks[-1].x >= LEAST_APART and x <= 100 - LEAST_APART:
                ticks.append(Tick(x, f"{at.astimezone(tz):{words}}"))
        return [*ticks, Tick(100.0, f"{last.astimezone(tz):{words}}", "end")]


def timeline(
    title: str,
    counts: Mapping[datetime, int],
    periods: Sequence[tuple[datetime, datetime]],
    step: timedelta,
    zone: str,
) -> Chart:
    """`counts` by the start of their step, over one period or several with gaps between them."""
    axis, tz = Axis(periods), ZoneInfo(zone)
    top = nice(max(counts.values(), default=0))
    bars = [
        bar(axis.x(at), axis.width(step), n / top, f"{at.astimezone(tz):%H:%M} {n}")
        for at, n in sorted(counts.items())
        if n
    ]
    return Chart(title, bars, f"{top:,}", _half(top), axis.ticks(tz), axis.gaps())


def curves(
    title: str,
    counts: Mapping[str, Mapping[datetime, int]],
    starts: datetime,
    ends: datetime,
    step: timedelta,
    zone: str,
) -> Chart:
    """A curve for each name, over the same time; its last whole step is named with it."""
    axis = Axis([(starts, ends)])
    top = nice(max((n for one in counts.values() for n in one.values()), default=0))
    moments = [starts + n * step for n in range(int((ends - starts) / step))]
    lines = []
    for colour, (name, one) in enumerate(counts.items()):
        points = " ".join(f"{axis.x(at):g},{100 - one.get(at, 0) / top * 100:.1f}" for at in moments)
        lines.append(Line(points, colour, name, f"{one.get(moments[-1], 0):,}"))
    return Chart(title, [], f"{top:,}", _half(top), axis.ticks(ZoneInfo(zone)), lines=lines)


def curve(title: str, values: Sequence[tuple[str, int]], marked: int | None = None) -> Chart:
    """One bar per value, in order; `marked` is the one to point out."""
    top = nice(max((n for _, n in values), default=0))
    width = 100 / max(len(values), 1)
    bars = [bar(i * width, width, n / top, f"{label}: {n}") for i, (label, n) in enumerate(values)]
    bands = [] if marked is None else [Band(round(marked * width, 2), round(width, 2), "now", "today")]
    ends = [Tick(0.0, values[0][0], "start"), Tick(100.0, values[-1][0], "end")] if values else []
    return Chart(title, bars, f"{top:,}", _half(top), ends, bands)


def _half(top: int) -> str:
    return f"{top / 2:,.0f}" if top % 2 == 0 else ""


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
