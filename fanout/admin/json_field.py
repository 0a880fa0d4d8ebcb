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
        """What the form shows again: what it refuses, as it was typed."""
        try:
            self.to_python(data)
        except forms.ValidationError:
            return InvalidJSONInput(data)
        return super().bound_data(data, initial)

    def _refusal(self) -> forms.ValidationError:
        return forms.ValidationError(self.error_messages["invalid"], code="invalid", params={"value": ""})
