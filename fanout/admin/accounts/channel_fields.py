"""A channel's settings and credentials as fields of a form: typed, with the channel's own words for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from accounts.channels.base import Channel
from accounts.channels.settings import LONGEST_PEM, BadSetting, Field, FieldKind

SETTING, SECRET, FORGET = "setting_", "secret_", "forget"
LONGEST_TEXT = 2_000
LONGEST_FILE = 100_000
KEEP = "Stored; leave empty to keep it."


def read(field: Field, value: Any) -> Any:
    """The value as the channel reads it; what it refuses is an error at the box."""
    try:
        return field.read(value) if value not in (None, "") else None
    except BadSetting:
        raise forms.ValidationError(f"{field.label} must be {field.takes()}.") from None


class TextField(forms.CharField):
    def __init__(self, described: Field, **more: Any) -> None:
        super().__init__(**more)
        self.described = described

    def clean(self, value: Any) -> Any:
        return read(self.described, super().clean(value))

    def prepare_value(self, value: Any) -> Any:
        return f"{value:g}" if isinstance(value, float) else value


class KeyFile(forms.FileField):
    """A file that holds a JSON object, such as a service account's key."""

    def __init__(self, described: Field, **more: Any) -> None:
        super().__init__(**more)
        self.described = described

    def clean(self, data: Any, initial: Any = None) -> Any:
        upload = super().clean(data, initial)
        if not upload:
            return None
        if upload.size > LONGEST_FILE:
            raise forms.ValidationError("This file is too large to be a key.")
        upload.seek(0)  # a test before saving has read it already
        return read(self.described, upload.read().decode(errors="replace"))


def form_fields(channel: Channel, config: Mapping[str, Any], stored: bool) -> dict[str, forms.Field]:
    """By their names in the form. `stored`: there are credentials, which an empty box keeps."""
    fields = {SETTING + f.name: _setting(f, config.get(f.name, f.default)) for f in channel.settings}
    fields |= {SECRET + f.name: _secret(f, stored) for f in channel.credentials}
    if stored and channel.credentials:
        fields[FORGET] = forms.BooleanField(
            required=False,
            label="Forget what is stored",
            help_text="Only what is entered above counts from now on.",
        )
    return fields


def _setting(field: Field, initial: Any) -> forms.Field:
    common: dict[str, Any] = {"label": field.label, "help_text": field.help, "initial": initial}
    if field.kind is FieldKind.YES_NO:
        return forms.BooleanField(required=False, **common)
    if field.kind is FieldKind.CHOICE:
        return forms.ChoiceField(required=False, choices=[(word, word) for word in field.choices], **common)
    # An empty box means the default, so it is shown in the box and is not a value.
    if initial == field.default:
        common["initial"] = None
    return TextField(
        field,
        required=field.required,
        error_messages={"required": f"{field.label} is missing."},
        max_length=LONGEST_PEM if field.kind is FieldKind.PEM else LONGEST_TEXT,
        widget=_box(field),
        **common,
    )


def _box(field: Field) -> forms.Widget:
    if field.kind is FieldKind.PEM:
        return forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})
    attrs = {"spellcheck": "false", "autocapitalize": "none"}
    if field.default is not None:
        attrs["placeholder"] = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    if field.kind in (FieldKind.NUMBER, FieldKind.WHOLE):
        attrs["inputmode"] = "decimal"
    return forms.TextInput(attrs=attrs)


def _secret(field: Field, stored: bool) -> forms.Field:
    help_text = " ".join(filter(None, [KEEP if stored else "", field.help]))
    common: dict[str, Any] = {"label": field.label, "help_text": help_text, "required": False}
    if field.kind is FieldKind.OBJECT:
        return KeyFile(field, widget=forms.FileInput(attrs={"accept": ".json,application/json"}), **common)
    # Never filled in: a form that comes back with an error does not repeat what was typed.
    box = forms.PasswordInput(attrs={"autocomplete": "new-password", "spellcheck": "false"})
    return TextField(field, max_length=LONGEST_TEXT, widget=box, **common)
