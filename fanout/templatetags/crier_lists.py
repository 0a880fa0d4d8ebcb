"""The cells of the admin's lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

register = template.Library()


#: what the lists write where there is nothing
NOTHING = ('">–</td>', '">-</td>', '">-</th>', '"></td>')


@register.filter
def labelled(cells: Iterable[SafeString], headers: Iterable[Mapping[str, Any]]) -> Iterator[SafeString]:
    """The cells of one row, each with its column's name, which a phone shows before it; it hides the empty ones."""
    names = dict(enumerate(header["text"] for header in headers))
    for n, cell in enumerate(cells):
        yield _with_label(cell, names.get(n, ""))


def _with_label(cell: SafeString, text: Any) -> SafeString:
    # A header that is markup is the box that ticks all rows: it names nothing.
    if not text or isinstance(text, SafeString):
        return cell
    start, rest = cell.split(' class="', 1)
    empty = "nothing " if cell.endswith(NOTHING) else ""
    label = format_html('data-label="{}"', capfirst(text))
    return mark_safe(f'{start} {label} class="{empty}{rest}')  # noqa: S308 escaped above
