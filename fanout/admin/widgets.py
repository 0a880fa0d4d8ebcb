"""Badges, capped numbers and charts, and a page that shows the pieces of all pages. Nothing reads the database."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from accounts.models import Account
from fanout.models import Event, Run, RunTarget
from reminders.models import Recipient

#: status: its tone, which the theme gives a colour in light and dark
RUN = {
    Run.Status.PREPARING: "info",
    Run.Status.QUEUED: "info",
    Run.Status.RUNNING: "busy",
    Run.Status.WAITING: "info",
    Run.Status.PAUSED: "warn",
    Run.Status.SUCCESS: "good",
    Run.Status.PARTIAL: "part",
    Run.Status.FAILED: "bad",
    Run.Status.SKIPPED: "mute",
    Run.Status.CANCELED: "mute",
}
TARGET = {
    RunTarget.Status.PENDING: "info",
    RunTarget.Status.SENDING: "busy",
    RunTarget.Status.SENT: "good",
    RunTarget.Status.FAILED: "bad",
    RunTarget.Status.SKIPPED: "mute",
    RunTarget.Status.UNCONFIRMED: "warn",
}
ACCOUNT = {
    Account.Status.ACTIVE: "good",
    Account.Status.PAUSED: "warn",
    Account.Status.SUSPENDED: "bad",
    Account.Status.UNPAIRED: "mute",
}
RECIPIENT = {
    Recipient.Status.ACTIVE: "good",
    Recipient.Status.NOT_INTERESTED: "mute",
    Recipient.Status.DO_NOT_DISTURB: "warn",
    Recipient.Status.OPTED_OUT: "warn",
    Recipient.Status.BLACKLISTED: "bad",
    Recipient.Status.CONVERTED: "info",
    Recipient.Status.CLOSED: "mute",
}


def tone(thing: Run | RunTarget | Account | Recipient) -> str:
    for model, tones in ((Run, RUN), (RunTarget, TARGET), (Account, ACCOUNT), (Recipient, RECIPIENT)):
        if isinstance(thing, model):
            return tones[thing.status]  # type: ignore[index]
    raise TypeError(f"{type(thing).__name__} has no badge.")


def untested(thing: Run | RunTarget | Account | Recipient) -> bool:
    """Return whether it is an active account that has not been tested yet."""
    return isinstance(thing, Account) and thing.status == Account.Status.ACTIVE and thing.untested_since is not None


def badge(thing: Run | RunTarget | Account | Recipient) -> SafeString:
    return format_html('<span class="badge {}">{}</span>', *look(thing))


def look(thing: Run | RunTarget | Account | Recipient) -> tuple[str, str]:
    """Return the tone and the text of a badge."""
    if untested(thing):
        return "warn", "Not tested"
    return tone(thing), capfirst(thing.get_status_display())


def recipient_badges(recipient: Recipient, suppressed: bool) -> SafeString:
    """Return the badges of a recipient. A suppressed one gets nothing, with any status."""
    badges = [
        mark_safe('<span class="badge bad">Suppressed</span>') if suppressed else "",
        badge(recipient) if recipient.status != Recipient.Status.ACTIVE or not suppressed else "",
        mark_safe('<span class="badge mute">archived</span>') if recipient.archived else "",
    ]
    return format_html_join(" ", "{}", ((one,) for one in badges if one))


def capped_number(count: int, cap: int) -> str:
    return f"{count:,}" if count <= cap else f"{cap:,}+"


# --- charts: positions in a box of 100 by 100, which a template draws as SVG ------------------------------


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
    """A period that is marked behind the bars."""

    x: float
    width: float
    tone: str
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A time below the chart; `anchor` aligns its text, as in SVG."""

    x: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Line:
    """One of several curves: the points of a polyline, the number of its colour, and its label."""

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
    """Return the shortest step that keeps the bars of this period wide enough to see."""
    return next((step for step in STEPS if whole / step <= MOST_BARS), STEPS[-1])


class Axis:
    """Maps times to positions from 0 to 100: periods one after the other, with a narrow gap between two."""

    def __init__(self, periods: Sequence[tuple[datetime, datetime]]) -> None:
        self.periods = periods
        self.gap = min(4.0, 30 / len(periods))
        seconds = sum((end - begin).total_seconds() for begin, end in periods)
        self.per_second = (100 - self.gap * (len(periods) - 1)) / max(seconds, 1.0)

    def x(self, at: datetime) -> float:
        """Return the position; a time in a gap is drawn at the end of the period before it."""
        position = 0.0
        for number, (begin, end) in enumerate(self.periods):
            if at < end or number == len(self.periods) - 1 or at < self.periods[number + 1][0]:
                inside = (min(max(at, begin), end) - begin).total_seconds()
                return round(position + inside * self.per_second, 2)
            position += (end - begin).total_seconds() * self.per_second + self.gap
        return 100.0

    def width(self, step: timedelta) -> float:
        return step.total_seconds() * self.per_second

    def gaps(self) -> list[Band]:
        return [
            Band(self.x(end), round(self.gap, 2), "paused", "paused")
            for (_, end), _ in zip(self.periods, self.periods[1:])
        ]

    def ticks(self, tz: ZoneInfo, words: str = "") -> list[Tick]:
        """Return the start of every period where there is room, and the end of the last one; `words` is their
        format."""
        first, last = self.periods[0][0], self.periods[-1][1]
        words = words or ("%a %H:%M" if last - first > timedelta(hours=20) else "%H:%M")
        ticks = [Tick(0.0, f"{first.astimezone(tz):{words}}", "start")]
        inner = [begin for begin, _ in self.periods[1:]] or [first + (last - first) / 2]
        for at in inner:
            x = self.x(at)
            if x - ticks[-1].x >= LEAST_APART and x <= 100 - LEAST_APART:
                ticks.append(Tick(x, f"{at.astimezone(tz):{words}}"))
        return [*ticks, Tick(100.0, f"{last.astimezone(tz):{words}}", "end")]


def timeline_chart(
    title: str,
    counts: Mapping[datetime, int],
    periods: Sequence[tuple[datetime, datetime]],
    step: timedelta,
    zone: str,
) -> Chart:
    """Draw `counts`, keyed by the start of their step, over one or several periods with gaps between them."""
    axis, tz = Axis(periods), ZoneInfo(zone)
    top = nice(max(counts.values(), default=0))
    bars = [
        bar(axis.x(at), axis.width(step), n / top, f"{at.astimezone(tz):%H:%M} {n}")
        for at, n in sorted(counts.items())
        if n
    ]
    return Chart(title, bars, f"{top:,}", _half(top), axis.ticks(tz), axis.gaps())


def line_chart(
    title: str,
    counts: Mapping[str, Mapping[datetime, int]],
    starts: datetime,
    ends: datetime,
    step: timedelta,
    zone: str,
    words: str = "",
    totals: bool = False,
) -> Chart:
    """Draw a curve for each name over the same period; the label has the count of the last whole step, or the total.
    `words` is the format of the times below it. With `totals` the steps are days, and the axis ends with the last."""
    moments = [starts + n * step for n in range(int((ends - starts) / step))]
    axis = Axis([(starts, moments[-1] if totals else ends)])
    top = nice(max((n for one in counts.values() for n in one.values()), default=0))
    lines = []
    for colour, (name, one) in enumerate(counts.items()):
        points = " ".join(f"{axis.x(at):g},{100 - one.get(at, 0) / top * 100:.1f}" for at in moments)
        shown = sum(one.values()) if totals else one.get(moments[-1], 0)
        lines.append(Line(points, colour, name, f"{shown:,}"))
    return Chart(title, [], f"{top:,}", _half(top), axis.ticks(ZoneInfo(zone), words), lines=lines)


def bar_chart(title: str, values: Sequence[tuple[str, int]], marked: int | None = None) -> Chart:
    """Draw one bar per value, in order; `marked` is the one to highlight."""
    top = nice(max((n for _, n in values), default=0))
    width = 100 / max(len(values), 1)
    bars = [bar(i * width, width, n / top, f"{label}: {n}") for i, (label, n) in enumerate(values)]
    bands = [] if marked is None else [Band(round(marked * width, 2), round(width, 2), "now", "today")]
    ends = [Tick(0.0, values[0][0], "start"), Tick(100.0, values[-1][0], "end")] if values else []
    return Chart(title, bars, f"{top:,}", _half(top), ends, bands)


def _half(top: int) -> str:
    return f"{top / 2:,.0f}" if top % 2 == 0 else ""


def bar(x: float, step: float, share: float, label: str) -> Bar:
    """Return a bar that leaves a gap to the next one, `step` away; `share` is its part of the full height."""
    height = share * 100
    return Bar(round(x, 2), round(100 - height, 2), round(step * 0.86, 2), round(height, 2), label)


def nice(most: int) -> int:
    """Return a round number at or above the highest bar."""
    if most <= 5:
        return max(most, 1)
    power = 10 ** (len(str(most)) - 1)
    return next((math.ceil(step * power) for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= most), most)


# --- a page for developers ---------------------------------------------------------------------------------


def components(request: HttpRequest) -> HttpResponse:
    """Show every piece that pages are built from, with its template or class."""
    if not (settings.DEBUG or getattr(request.user, "is_superuser", False)):
        raise Http404
    now, step = timezone.now().replace(second=0, microsecond=0), timedelta(minutes=1)
    sent = {now + n * step: 10 + n for n in range(10)}
    context = {
        "title": "Components",
        "now": now,
        "run": Run(pk=0, status=Run.Status.PARTIAL, total=10, sent=6, failed=1, unconfirmed=1, skipped=2),
        "drawn": timeline_chart("Sent per minute", sent, [(now, now + 10 * step)], step, "UTC"),
        "parts": [{"kind": "text", "text": "Street party on Saturday at 6."}],
        "events": [Event(verb="paused", detail="Outside the delivery hours.", at=now)],
        "tones": ("good", "info", "busy", "warn", "part", "bad", "mute"),
        "pills": [
            {"label": "All", "url": "?", "tone": "mute", "chosen": True, "count": ""},
            {"label": "Paused", "url": "?", "tone": "warn", "chosen": False, "count": "2"},
        ],
        "filter_choices": [
            {"selected": number == 1, "query_string": "?", "display": word}
            for number, word in enumerate(("All", "Active", "Archived"))
        ],
    }
    return TemplateResponse(request, "crier/components.html", admin.site.each_context(request) | context)
