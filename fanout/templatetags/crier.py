"""Times, numbers and badges as the pages write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from fanout.admin.badges import badge as badge_of

register = template.Library()
register.filter("badge", badge_of)

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """Two units at most: "2 h 5 min"."""
    left = max(0, int(seconds))
    words: list[str] = []
    for size, unit in UNITS:
        if left >= size or (unit == "s" and not words):
            words.append(f"{left // size} {unit}")
            left %= size
        if len(words) == 2:
            break
    return " ".join(words)


def relative(at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    if abs(seconds) < 5:
        return "now"
    size, unit = next((size, unit) for size, unit in UNITS if abs(seconds) >= size)
    amount = f"{int(abs(seconds) // size)} {unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


@register.filter
def when(at: datetime | None, zone: str = "UTC") -> SafeString | str:
    """The wall clock of the reminder's own timezone, with how far away that is."""
    if at is None:
        return "–"
    now = timezone.now()
    local = at.astimezone(ZoneInfo(zone))
    day = "" if local.date() == now.astimezone(ZoneInfo(zone)).date() else f"{local:%a %d %b} "
    return format_html(
        '<time datetime="{}" title="{}">{}{} <span class="quiet">{}</span></time>',
        at.astimezone(UTC).isoformat(timespec="seconds"),
        f"{local:%A %d %B %Y %H:%M:%S} ({zone})",
        day,
        f"{local:%H:%M}",
        relative(at, now),
    )


@register.filter
def took(run: Any) -> str:
    if run.started_at is None:
        return "–"
    return duration(((run.finished_at or timezone.now()) - run.started_at).total_seconds())


@register.filter
def spoken(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


@register.filter
def share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"


@register.filter
def width(part: float, whole: float) -> str:
    """A share of a bar that is 100 wide."""
    return f"{part / whole * 100:.2f}" if whole else "0"


@register.inclusion_tag("crier/progress.html")
def progress(run: Any) -> dict[str, Any]:
    settled = run.sent + run.failed + run.skipped + run.unconfirmed
    return {
        "run": run,
        "x_failed": run.sent,
        "x_unconfirmed": run.sent + run.failed,
        "x_skipped": run.sent + run.failed + run.unconfirmed,
        "settled": settled,
    }


@register.inclusion_tag("crier/chart.html")
def chart(chart: Any) -> dict[str, Any]:
    return {"chart": chart}
