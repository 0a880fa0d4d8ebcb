"""A recipient's own fields as rows of a name and a value."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from reminders.imports import COLUMNS, MOST_FIELD, field_name

EMPTY_ROWS = 3
MOST_NAME = 60

Pairs = list[tuple[str, str]]


class RowsWidget(forms.Widget):
    """Two inputs per row, and some empty rows for new ones."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        rows = format_html_join(
            "",
            '<p><input name="{0}-name" value="{1}" maxlength="{3}" aria-label="Name of the field" placeholder="flat"> '
            '<input name="{0}-value" value="{2}" maxlength="{4}" aria-label="Value of the field"></p>',
            ((name, key, text, MOST_NAME, MOST_FIELD) for key, text in [*_pairs(value), *[("", "")] * EMPTY_ROWS]),
        )
        return format_html('<div class="own-fields" id="id_{}">{}</div>', name, rows)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Pairs:
        if not hasattr(data, "getlist"):
            return []
        return list(zip(data.getlist(f"{name}-name"), data.getlist(f"{name}-value")))

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return f"{name}-name" not in data


def _pairs(value: Any) -> Pairs:
    return sorted(value.items()) if isinstance(value, dict) else list(value or ())


class RowsField(forms.Field):
    """A dict of texts. A row without a value is left out."""

    widget = RowsWidget

    def to_python(self, value: Any) -> dict[str, str]:
        rows = [(field_name(key), text.strip(), key.strip()) for key, text in _pairs(value)]
        kept = [(name, text, typed) for name, text, typed in rows if text]
        if problem := _problem(kept):
            raise forms.ValidationError(problem)
        return {name: text for name, text, _ in kept}

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return dict(initial or {}) != self.to_python(data)
        except forms.ValidationError:
            return True


def _problem(rows: list[tuple[str, str, str]]) -> str:
    counts = Counter(name for name, _, _ in rows)
    for name, text, typed in rows:
        if not name:
            return f"“{typed}” cannot be the name of a field: use letters, such as flat."
        if name in COLUMNS:
            return f"A field cannot be called “{name}”: the recipient has that already."
        if counts[name] > 1:
            return f"There are two fields called “{name}”."
        if len(name) > MOST_NAME or len(text) > MOST_FIELD:
            return f"A field's name has at most {MOST_NAME} characters, its value {MOST_FIELD}."
    return ""
