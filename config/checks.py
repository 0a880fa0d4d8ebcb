"""Configuration that cannot work is refused when a process starts, not when the first message fails."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from accounts import crypto


@register()
def credential_keys(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    try:
        crypto.encrypt({})
    except ImproperlyConfigured as problem:
        hint = "Make a key with `manage.py rotate_keys --generate`; keep the old ones behind it, after a comma."
        return [Error(str(problem), hint=hint, id="crier.E001")]
    return []
