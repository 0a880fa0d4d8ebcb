"""The form of an account: what every account has, and the fields of its channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError

from accounts.actions import Action
from accounts.addresses import KINDS
from accounts.channels.base import Channel
from accounts.channels.registry import channels
from accounts.channels.settings import LONGEST_PEM, BadSetting, Field, FieldKind
from accounts.crypto import CredentialError
from accounts.fields import Sealed
from accounts.knobs import KNOBS
from accounts.models import Account, changed_destination, reenter_credentials
from accounts.presets import HOURS, WARMUP
from accounts.signin import SignIn
from fanout.admin.login import PROOF
from fanout.admin.model_admin import OwnedForm
from fanout.lanes import tuning
from fanout.lanes.accounts import readable

WEEKDAYS = [(1, "Mon"), (2, "Tue"), (3, "Wed"), (4, "Thu"), (5, "Fri"), (6, "Sat"), (7, "Sun")]
#: shown at the input of a secret, which is empty when the page comes back with errors
ENTER_AGAIN = "Enter it again: a secret is not sent back to the page."


class CapField(forms.CharField):
    """A daily cap: a number, or “none”. If empty, the cap of the channel or the site applies."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(required=False, max_length=20, **more)
        self.name = name

    def clean(self, value: Any) -> Any:
        return tuning.parse([f"{self.name}={super().clean(value)}"])[self.name]


class AccountForm(OwnedForm):
    #: set for each request by `form_class`
    described = Channel(key="", label="")
    #: the provider's answer to the test before saving
    tested: SignIn | None = None
    #: values to start from: a preset's or a provider's
    start: dict[str, Any] = {}

    send_days = forms.TypedMultipleChoiceField(
        choices=WEEKDAYS,
        coerce=int,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None selected: every day.",
        empty_value=None,
    )

    class Meta:
        model = Account
        fields = "__all__"
        widgets = {"timezone": forms.TextInput(attrs={"list": "zones"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entered: dict[str, Any] = {}
        # Not in a posted form: values that differ from the initial ones count as changed.
        start = {} if self.is_bound else self.start
        self.initial = {name: _short(v) for name, v in {**self._caps_stored(), **self.initial, **start}.items()}
        if "address" in self.fields:  # the page of a viewer has no inputs
            own = KINDS.get(self.described.own_kind)
            self.fields["address"].label = own.own_label if own else "Address"
            self.fields["address"].help_text = "The sender, as recipients see it."
        if self.instance.pk is None:
            self.instance.channel = self.described.key

    def _caps_stored(self) -> dict[str, Any]:
        if self.instance.pk is None:
            return {}
        rows = self.instance.daily_limits.values_list("action", "limit")
        return {tuning.CAP + action: tuning.NO_CAP if limit is None else limit for action, limit in rows}

    # --- what was typed ----------------------------------------------------------------------------------

    def clean(self) -> dict[str, Any] | None:
        before = self.instance.destination()
        self.instance.config = self._config()
        after = self.described.destination(self.instance.config, self.cleaned_data.get("address", ""))
        moved = changed_destination(before, {"channel": self.described.key} | after) if self.instance.pk else []
        # Before the model's own checks, which look at the credentials too.
        self._take_credentials(moved)
        return super().clean()

    def _config(self) -> dict[str, Any]:
        """Return the stored settings with the changed ones.

        An untouched input changes nothing, not even the spelling. Settings that the channel no longer has are dropped.
        """
        stored, typed = self.instance.config, self.cleaned_data
        if self.described.key not in channels():
            return dict(stored)  # its folder is gone, perhaps only for a while
        names = [f.name for f in self.described.settings]
        kept = {name: stored[name] for name in names if name in stored}
        changed = {name: typed.get(SETTING + name) for name in names if SETTING + name in self.changed_data}
        return {name: value for name, value in (kept | changed).items() if value not in (None, "")}

    def _take_credentials(self, moved: list[str]) -> None:
        typed = {f.name: self.cleaned_data.get(SECRET + f.name) for f in self.described.credentials}
        self.entered = {name: value for name, value in typed.items() if value is not None}
        if moved and not self.entered and not self.forgets and has_stored(self.instance):
            self._refuse_to_move(moved)
            return
        stays = not moved and not self.forgets
        if self.entered or self.forgets or self.instance.pk is None:
            self.instance.credentials = (readable(self.instance) if stays else {}) | self.entered
        self._miss_credentials()

    @property
    def forgets(self) -> bool:
        return bool(self.cleaned_data.get(FORGET))

    def _refuse_to_move(self, moved: list[str]) -> None:
        labels = {f.name: f.label for f in self.described.settings} | {"address": str(self.fields["address"].label)}
        sentence = reenter_credentials([labels.get(name, name) for name in moved])
        first = next((SECRET + f.name for f in self.described.credentials), None)
        self.add_error(first, f"{sentence} If it needs none now, tick “Forget what is stored”.")

    def _miss_credentials(self) -> None:
        credentials = self.instance.__dict__.get("credentials") or {}
        if isinstance(credentials, Sealed):
            return  # unchanged
        for f in self.described.credentials:
            if f.required and f.name not in credentials and SECRET + f.name not in self.errors:
                self.add_error(SECRET + f.name, f"{f.label} is missing.")

    # --- what is wrong -----------------------------------------------------------------------------------

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.tested is not None and not self.tested.ok and not self.errors:
            self.add_error(None, f"Not saved: the test failed. {self.tested.text}")
        if self.errors:
            # Saved without the secret, the account would keep using the stored one, or none.
            for name in self.entered:
                self.add_error(SECRET + name, ENTER_AGAIN)

    def _update_errors(self, errors: ValidationError) -> None:
        """Show each problem once: the model's errors about settings and credentials appear at their inputs."""
        by_field = errors.error_dict
        without_box = [name for name in by_field if name not in self.fields]
        general = [problem for name in without_box for problem in by_field.pop(name)]
        if general and not any(name.startswith((SETTING, SECRET)) for name in self.errors):
            by_field[NON_FIELD_ERRORS] = general
        if by_field:
            super()._update_errors(errors)  # type: ignore[misc]

    # --- what is saved -----------------------------------------------------------------------------------

    def changed_columns(self) -> list[str]:
        own = {f.name for f in Account._meta.concrete_fields}
        return [*(name for name in self.changed_data if name in own), "config"]

    def changed_caps(self) -> dict[str, float | None]:
        return {name: self.cleaned_data[name] for name in self.changed_data if name.startswith(tuning.CAP)}


def _short(value: Any) -> Any:
    """Return 20 instead of 20.0, as people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def has_stored(account: Account | None) -> bool:
    """Return whether credentials are stored, readable or not."""
    if account is None or account.pk is None:
        return False
    try:
        return bool(account.credentials)
    except CredentialError:
        return True


def cap_names(channel: Channel) -> list[str]:
    return [tuning.CAP + action for action in channel.actions]


def form_class(channel: Channel, account: Account | None, start: dict[str, Any], tested: SignIn | None) -> type[Any]:
    """Return the form class for this account, or for a new account of the channel."""
    fields: dict[str, Any] = form_fields(channel, account.config if account else {}, has_stored(account))
    for name in cap_names(channel):
        label = f"{Action(name.removeprefix(tuning.CAP)).label}s a day".capitalize()
        fields[name] = CapField(name, label=label, widget=forms.TextInput(attrs={"inputmode": "numeric"}))
    if account is None:
        fields["channel"] = forms.CharField(widget=forms.HiddenInput, initial=channel.key)
    attributes = fields | {"described": channel, "start": start, "tested": tested}
    return type("AccountForm", (AccountForm,), attributes)


def sections(channel: Channel, account: Account | None, superuser: bool) -> list[Any]:
    """Return the form's fieldsets, in the order in which people think about an account."""
    adding = account is None
    who = ["label", "address", "timezone", "team", *(["owner"] if superuser else []), *(["channel"] if adding else [])]
    plain = [f for f in channel.fields if not f.advanced]
    rare = [(SECRET if f.secret else SETTING) + f.name for f in channel.fields if f.advanced]
    connection = [(SECRET if f.secret else SETTING) + f.name for f in plain]
    if has_stored(account) and channel.credentials:
        connection.append(FORGET)
    if channel.credentials:
        connection.append(PROOF)
    return [
        (None, {"fields": who}),
        *([("How to reach it", {"classes": ["reach"], "fields": connection})] if connection else []),
        *([("More settings", {"classes": ["collapse"], "fields": rare})] if rare else []),
        ("Pace", {"classes": ["pace"], "fields": [*cap_names(channel), *KNOBS]}),
        ("Business hours", {"classes": ["collapse"], "fields": list(HOURS)}),
        ("Warm-up", {"classes": ["collapse"], "fields": list(WARMUP)}),
    ]


# --- a channel's settings and credentials as typed fields, with the channel's own error messages ----------


SETTING, SECRET, FORGET = "setting_", "secret_", "forget"
LONGEST_TEXT = 2_000
LONGEST_FILE = 100_000
KEEP_STORED = "Stored; leave empty to keep it."


def read_setting(field: Field, value: Any) -> Any:
    """Return the value as the channel reads it; a refused value becomes an error at the input."""
    try:
        return field.read_entered(value) if value not in (None, "") else None
    except BadSetting:
        raise forms.ValidationError(f"{field.label} must be {field.takes()}.") from None


class TextField(forms.CharField):
    def __init__(self, described: Field, **more: Any) -> None:
        super().__init__(**more)
        self.described = described

    def clean(self, value: Any) -> Any:
        return read_setting(self.described, super().clean(value))

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
        return read_setting(self.described, upload.read().decode(errors="replace"))


def form_fields(channel: Channel, config: Mapping[str, Any], stored: bool) -> dict[str, forms.Field]:
    """Return the fields by name. `stored`: credentials exist, and an empty input keeps them."""
    fields = {SETTING + f.name: _setting_field(f, config.get(f.name, f.default)) for f in channel.settings}
    fields |= {SECRET + f.name: _secret_field(f, stored) for f in channel.credentials}
    if stored and channel.credentials:
        fields[FORGET] = forms.BooleanField(
            required=False,
            label="Forget what is stored",
            help_text="Only what is entered above counts from now on.",
        )
    return fields


def _setting_field(field: Field, initial: Any) -> forms.Field:
    common: dict[str, Any] = {"label": field.label, "help_text": field.help, "initial": initial}
    if field.kind is FieldKind.YES_NO:
        return forms.BooleanField(required=False, **common)
    if field.kind is FieldKind.CHOICE:
        return forms.ChoiceField(required=False, choices=[(word, word) for word in field.choices], **common)
    # An empty input means the default, which is shown as a placeholder.
    if initial == field.default:
        common["initial"] = None
    return TextField(
        field,
        required=field.required,
        error_messages={"required": f"{field.label} is missing."},
        max_length=LONGEST_PEM if field.kind is FieldKind.PEM else LONGEST_TEXT,
        widget=_input(field),
        **common,
    )


def _input(field: Field) -> forms.Widget:
    if field.kind is FieldKind.PEM:
        return forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})
    attrs = {"spellcheck": "false", "autocapitalize": "none"}
    if field.default is not None:
        attrs["placeholder"] = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    if field.kind in (FieldKind.NUMBER, FieldKind.WHOLE):
        attrs["inputmode"] = "decimal"
    return forms.TextInput(attrs=attrs)


def _secret_field(field: Field, stored: bool) -> forms.Field:
    help_text = " ".join(filter(None, [KEEP_STORED if stored else "", field.help]))
    common: dict[str, Any] = {"label": field.label, "help_text": help_text, "required": False}
    if field.kind is FieldKind.OBJECT:
        return KeyFile(field, widget=forms.FileInput(attrs={"accept": ".json,application/json"}), **common)
    # Never filled in: a form that comes back with an error does not repeat what was typed.
    box = forms.PasswordInput(attrs={"autocomplete": "new-password", "spellcheck": "false"})
    return TextField(field, max_length=LONGEST_TEXT, widget=box, **common)
