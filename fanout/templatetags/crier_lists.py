"""The cells of the admin's lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

register = template.Library()


@register.filter
def labelled(cells: Iterable[SafeString], headers: Iterable[Mapping[str, Any]]) -> Iterator[SafeString]:
    """The cells of one row, each with its column's name, which a phone shows before it."""
    for cell, header in zip_longest(cells, headers, fillvalue={}):
        yield _with_label(cell, header.get("text"))


def _with_label(cell: SafeString, text: Any) -> SafeString:
    # A header that is markup is the box that ticks all rows: it names nothing.
    if not text or isinstance(text, SafeString):
        return cell
    return mark_safe(cell[:3] + format_html(' data-label="{}"', capfirst(text)) + cell[3:])  # noqa: S308 escaped above
