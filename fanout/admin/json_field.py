"""JSON that people type into a form."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.forms.fields import InvalidJSONInput


class StorableJSONField(forms.JSONField):
    """Only what PostgreSQL can store: no NUL, no NaN, no half character, and nothing too deep to be read."""

    def to_python(self, value: Any) -> Any:
        try:
            data = super().to_python(value)
            text = json.dumps(data, allow_nan=False, ensure_ascii=False)
            text.encode()
        except (ValueError, RecursionError):
            raise self._refusal() from None
        if "\\u0000" in text:
            raise self._refusal()
        return data

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What the form shows again."""
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)

    def _refusal(self) -> forms.ValidationError:
        return forms.ValidationError(self.error_messages["invalid"], code="invalid", params={"value": ""})
