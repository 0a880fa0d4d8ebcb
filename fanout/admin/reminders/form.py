"""The reminder's form: parts, targets, schedule."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.forms.utils import flatatt
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from accounts import access
from accounts.actions import Action
from accounts.channels.registry import channel, channels
from accounts.models import Account
from accounts.timezones import valid_timezone
from fanout.admin.base import OwnedForm
from fanout.admin.generics import BaseInlineFormSet, ModelForm
from fanout.admin.reminders.words import Words
from reminders import erasure, imports, media, senders
from reminders.models import MediaFile, Recipient, Reminder, ReminderMessage
from reminders.targets import count_kinds, unreachable_error

#: Channels that can ask people to connect.
CONNECTING = [key for key, described in channels().items() if Action.CONNECTION_REQUEST in described.actions]
LIST_LIKE = "+49 176 12345678\nChoir, 120363025246125486@g.us\nann@example.com"
PROBLEMS_SHOWN = 5
HOURS = {"min": 0, "max": 24, "class": "hour"}


class LongSelect(forms.Select):
    """A select for hundreds of options, each of which Django's own would render with a template."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return _options(self, name, {str(value)}, attrs or {})


class LongSelectMultiple(forms.SelectMultiple):
    """The same for several."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return _options(self, name, {str(one) for one in value or ()}, {**(attrs or {}), "multiple": True, "size": 6})


def _options(widget: Any, name: str, chosen: set[str], attrs: dict[str, Any]) -> SafeString:
    options = format_html_join(
        "\n",
        '<option value="{}"{}>{}</option>',
        ((key, mark_safe(" selected") if str(key) in chosen else "", label) for key, label in widget.choices),
    )
    return format_html("<select{}>{}</select>", flatatt({"name": name, **attrs}), options)


class ReminderForm(OwnedForm):
    further = forms.ModelMultipleChoiceField(
        Account.objects.none(),
        label="Further senders",
        required=False,
        widget=LongSelectMultiple,
        help_text="Accounts that share the targets with the one above: each target goes through an account that "
        "reaches its address, and accounts of the same reach take turns.",
    )
    paste = forms.CharField(
        label="Add targets",
        required=False,
        widget=forms.Textarea(attrs={"rows": 5, "placeholder": LIST_LIKE}),
        help_text="One per line: a phone number, a group id or a mail address, optionally with a name. "
        "Or CSV with a header: further columns become the recipient's own fields.",
    )
    tag = forms.CharField(
        label="Add all recipients with the tag", required=False, widget=forms.TextInput(attrs={"list": "tags"})
    )
    clear = forms.BooleanField(label="Remove all current targets first", required=False)
    fire_at = forms.DateTimeField(
        label="Fire at",
        required=False,
        help_text="In the reminder's timezone.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    even_if_late = forms.BooleanField(
        label="Save it even if it fires after the window has closed",
        required=False,
        help_text="Such a firing sends nothing.",
    )

    connect = forms.BooleanField(
        label="Send connection requests instead of messages",
        required=False,
        help_text="LinkedIn only. The text is the note: at most 300 characters, and no file.",
    )

    class Meta:
        model = Reminder
        fields = "__all__"
        widgets = {
            "account": LongSelect,
            "timezone": forms.TextInput(attrs={"list": "zones"}),
            "cron": forms.TextInput(attrs={"placeholder": "0 9 * * 1-5"}),
            "delivery_window_start_hour": forms.NumberInput(attrs=HOURS),
            "delivery_window_end_hour": forms.NumberInput(attrs=HOURS),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "urgency" in self.fields:
            self.fields["urgency"].required = False  # medium; it says nothing where there is no follow-up
        if self.user is not None:
            own = access.visible(self.user, Account.objects.filter(archived=False))
            self.fields["further"].queryset = own  # type: ignore[attr-defined]
            if not own.filter(channel__in=CONNECTING).exists():
                self.fields["connect"].widget = forms.HiddenInput()
        if self.instance.pk:
            self.initial["further"] = [sender.account_id for sender in self.instance.further_senders.all()]
        self.initial["connect"] = self.instance.action == Action.CONNECTION_REQUEST
        if self.instance.fire_at and valid_timezone(self.instance.timezone):
            # As the reminder's wall clock shows it, not the server's.
            self.initial["fire_at"] = self.instance.fire_at.astimezone(ZoneInfo(self.instance.timezone)).replace(
                tzinfo=None
            )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        zone = cleaned.get("timezone", "")
        if cleaned.get("fire_at") and valid_timezone(zone):
            cleaned["fire_at"] = cleaned["fire_at"].replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
            self._check_future(cleaned)
        return cleaned

    def _check_future(self, cleaned: dict[str, Any]) -> None:
        if "fire_at" in self.changed_data and cleaned["fire_at"] <= timezone.now():
            self.add_error("fire_at", "This time has passed. Choose a later one, or use “Fire now”.")

    def clean_paste(self) -> list[imports.Entry]:
        pasted = erasure.refuse(imports.read(self.cleaned_data["paste"]))
        if pasted.problems:
            problems = imports.first_problems(pasted.problems, PROBLEMS_SHOWN)
            raise forms.ValidationError([capfirst(problem) for problem in problems])
        return pasted.entries

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        self._check_lateness()
        if not (accounts := self.senders()):
            return
        self._choose_action(accounts[0])
        if (entries := self.cleaned_data.get("paste")) and (problem := unreachable_error(accounts, entries)):
            self.add_error("paste", problem)
        if problem := senders.problem(self.instance.owner, accounts, self._kinds(), self.instance.subject):
            self.add_error("further" if len(accounts) > 1 else "account", problem)

    def _choose_action(self, account: Account) -> None:
        described, connects = channel(account.channel), bool(self.cleaned_data.get("connect"))
        if connects and Action.CONNECTION_REQUEST not in described.actions:
            self.add_error("connect", f"{account} ({described.label}) sends no connection requests.")
        elif connects:
            self.instance.action = Action.CONNECTION_REQUEST
        elif self.instance.action == Action.CONNECTION_REQUEST:
            self.instance.action = described.action
        else:
            self.instance.action = described.counts(self.instance.action)

    def _check_lateness(self) -> None:
        if self.errors or self.cleaned_data.get("even_if_late"):
            return
        if problem := self.instance.late_error(timezone.now()):
            self.add_error("cron" if self.instance.cron else "fire_at", problem)

    def senders(self) -> list[Account]:
        """The chosen accounts; the first is the reminder's own."""
        account = self.cleaned_data.get("account")
        further = self.cleaned_data.get("further") or []
        return [account, *(other for other in further if other != account)] if account else []

    def _kinds(self) -> Collection[str]:
        """The kinds of address among the targets that it has and keeps."""
        if not self.instance.pk or self.cleaned_data.get("clear"):
            return ()
        return count_kinds(Recipient.objects.filter(reminders=self.instance)).keys()


class PartForm(ModelForm):
    order = forms.IntegerField(
        required=False,
        widget=forms.NumberInput(attrs={"class": "hour"}),
        help_text="Parts are sent in this order.",
    )
    upload = forms.FileField(
        label="File",
        required=False,
        help_text="Picture, video, audio or document. Empty: keep the current file.",
    )
    user: Any = None

    class Meta:
        model = ReminderMessage
        fields = ("kind", "text", "html", "media")
        widgets = {
            "text": forms.Textarea(attrs={"rows": 4}),
            "html": forms.Textarea(attrs={"rows": 3}),
            "media": forms.HiddenInput,
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["order"].initial = self.instance.position + 1 if self.instance.pk else None
        if self.user is not None:
            self.fields["media"].queryset = access.visible(self.user, MediaFile.objects.all())  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        upload, kind = cleaned.get("upload"), cleaned.get("kind", "text")
        if upload and kind == ReminderMessage.Kind.TEXT:
            self.add_error("kind", "A part with a file is an image, a video, audio or a document.")
        elif upload:
            try:
                media.check(kind, upload)
                # Kept already here: when something else is wrong, the file need not be sent again.
                cleaned["media"] = media.keep(upload, self.user)
            except forms.ValidationError as error:
                self.add_error("upload", error)
        elif kind == ReminderMessage.Kind.TEXT:
            cleaned["media"] = None
        return cleaned


class PartFormSet(BaseInlineFormSet):
    request: Any = None

    def clean(self) -> None:
        """Placeholders are checked once for all parts, with the recipients that the same form names."""
        super().clean()
        if self.model is ReminderMessage and (problem := Words.posted(self.request).problem()):
            raise forms.ValidationError(problem)

    def save(self, commit: bool = True) -> Any:
        """Numbers the parts by the order given, then by their place in the form."""
        kept = [
            form for form in self.forms if form not in self.deleted_forms and (form.has_changed() or form.instance.pk)
        ]
        kept.sort(key=lambda form: form.cleaned_data.get("order") or 10_000)
        moved = [form for position, form in enumerate(kept) if _move(form, position)]
        saved = super().save(commit)
        for form in moved:
            if form.instance.pk and commit:
                form.instance.save(update_fields=["position"])
        return saved


def _move(form: ModelForm, position: int) -> bool:
    changed = bool(form.instance.position != position)
    form.instance.position = position
    return changed
