"""Tags for the header and the first page. Separate from `crier`, which the modules behind these tags import."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import timezone

from fanout.admin import dashboard
from fanout.admin.notifications import bell_state

register = template.Library()


@register.simple_tag(takes_context=True)
def bell(context: Any) -> dict[str, Any]:
    return bell_state(context["request"].user)


@register.simple_tag(takes_context=True)
def overview(context: Any) -> dict[str, Any]:
    return dashboard.overview(context["request"].user, timezone.now())
