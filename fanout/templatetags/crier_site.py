"""Tags and filters that need the admin's modules: the header, the first page, badges and capped numbers.

Separate from `crier`, which those modules import.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import timezone

from fanout.admin import dashboard, widgets
from fanout.admin.notifications import bell_state
from fanout.plans.queue import MOST_PENDING

register = template.Library()
register.filter("badge", widgets.badge)


@register.filter
def capped(n: int) -> str:
    """Return a number that was counted up to a limit, such as “2,000+”."""
    return widgets.capped_number(n, MOST_PENDING)


@register.simple_tag(takes_context=True)
def bell(context: Any) -> dict[str, Any]:
    """Return the numbers of the header, read once per page."""
    request = context["request"]
    if not hasattr(request, "_crier_bell"):
        request._crier_bell = bell_state(request.user)
    state: dict[str, Any] = request._crier_bell
    return state


@register.simple_tag(takes_context=True)
def overview(context: Any) -> dict[str, Any]:
    return dashboard.overview(context["request"].user, timezone.now())
