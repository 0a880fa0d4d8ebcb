"""Times, durations and progress bars for templates and lists, and the cells of lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from reminders.moments import UNITS, duration, in_full, same_clock, wall_clock

register = template.Library()


def relative(at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    if -5 < seconds < 1:
        return "now"
    size, unit = next((size, unit) for size, unit in UNITS if abs(seconds) >= size)
    amount = f"{int(abs(seconds) // size)} {unit}"
    return f"in {amount}" if seconds > 0 else f"{amount} ago"


@register.filter
def when(at: datetime | None, own: str = "") -> SafeString | str:
    """Return the time in the reader's timezone, how far away it is, and the time in its own timezone if that differs.

    The page's script keeps the distance up to date.
    """
    if at is None:
        return "–"
    now, zone = timezone.now(), timezone.get_current_timezone_name()
    beside = "" if not own or same_clock(at, zone, own) else format_html(BESIDE, wall_clock(at, own, now), own)
    return format_html(
        '<time datetime="{}" title="{}">{} <span class="quiet" data-away>{}</span>{}</time>',
        at.astimezone(UTC).isoformat(timespec="seconds"),
        in_full(at, zone),
        wall_clock(at, zone, now),
        relative(at, now),
        beside,
    )


BESIDE = ' <span class="quiet zone">{} {}</span>'


@register.filter
def away(at: datetime | None) -> SafeString | str:
    """Return only how far away it is, such as “in 2 s”; “now” for a past time."""
    if at is None:
        return ""
    now = timezone.now()
    moment = at.astimezone(UTC).isoformat(timespec="seconds")
    return format_html(
        '<time datetime="{}"><span data-away="ahead">{}</span></time>', moment, relative(max(at, now), now)
    )


@register.filter
def spoken(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


@register.filter
def thousands(n: int) -> str:
    return f"{n:,}"


@register.filter
def with_code(text: str) -> SafeString:
    """Show what stands between backticks as code."""
    pieces = [format_html("<code>{}</code>", one) if n % 2 else one for n, one in enumerate(text.split("`"))]
    return format_html_join("", "{}", ((piece,) for piece in pieces))


@register.filter
def percent(share: float) -> str:
    return f"{share:.1%}"


# In Python and not in a template: a list draws it fifty times.
PROGRESS = """<div class="progress" data-run="{id}" data-status="{status}">
<svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{sent} of {total} sent">
<rect class="track" width="100" height="8"/>{bars}</svg>
<span class="figures"><b data-count="sent">{sent}</b> / <span data-count="total">{total}</span></span></div>"""
BAR = '<rect class="{}" data-bar="{}" x="{}" width="{}" height="8"/>'
SEGMENTS = (("good", "sent"), ("bad", "failed"), ("warn", "unconfirmed"), ("mute", "skipped"))


@register.simple_tag
def progress(run: Any) -> SafeString:
    """Return a bar with the shares of settled targets by status; the page's script updates it."""
    x, bars = 0.0, []
    for tone, name in SEGMENTS:
        width = getattr(run, name) / run.total * 100 if run.total else 0.0
        bars.append((tone, name, f"{x:.2f}", f"{width:.2f}"))
        x += width
    drawn = format_html_join("", BAR, bars)
    return format_html(PROGRESS, id=run.pk, status=run.status, sent=f"{run.sent:,}", total=f"{run.total:,}", bars=drawn)


@register.inclusion_tag("crier/chart.html")
def chart(chart: Any) -> dict[str, Any]:
    return {"chart": chart}


# --- cells of the admin's lists ---------------------------------------------------------------------------


#: ends of empty cells in Django's lists
NOTHING = ('">–</td>', '">-</td>', '">-</th>', '"></td>')


@register.filter
def labelled(cells: Iterable[SafeString], headers: Iterable[Mapping[str, Any]]) -> Iterator[SafeString]:
    """Yield the cells of a row with the names of their columns, for phones, which also hide empty cells."""
    names = dict(enumerate(header["text"] for header in headers))
    for n, cell in enumerate(cells):
        yield _with_label(cell, names.get(n, ""))


def _with_label(cell: SafeString, text: Any) -> SafeString:
    # The only header that is markup is the checkbox that selects all rows.
    if not text or isinstance(text, SafeString):
        return cell
    start, rest = cell.split(' class="', 1)
    empty = "nothing " if cell.endswith(NOTHING) else ""
    label = format_html('data-label="{}"', capfirst(text))
    return mark_safe(f'{start} {label} class="{empty}{rest}')  # noqa: S308 escaped above
