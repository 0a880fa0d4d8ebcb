"""The reminder's form: message, to whom, when."""

from __future__ import annotations

from collections.abc import Collection
from html import escape
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.db.models import Q
from django.forms.utils import flatatt
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from accounts import access
from accounts.actions import Action
from accounts.channels.base import Channel
from accounts.channels.registry import channels
from accounts.inputs import as_id, valid_timezone
from accounts.models import Account
from fanout.admin.model_admin import BaseInlineFormSet, ModelForm, OwnedForm
from fanout.admin.reminder_draft import (
    PROBLEMS_SHOWN,
    Chosen,
    DraftTexts,
    keeps_its_time,
    passed_problem,
    posted_steps,
    written_parts,
)
from fanout.admin.reminder_templates import TemplateKey, TemplateValues, offer, take_template
from reminders import erasure, imports, media, schedule, tables
from reminders.excel import MB, MOST_ROWS, UnusableFile
from reminders.models import MediaFile, Recipient, Reminder, ReminderMessage, Segment
from reminders.part_templates import Choice
from reminders.readiness import (
    action_through,
    connect_problem,
    follow_ups_problem,
    inmail_problem,
    missing,
    missing_in_words,
    segment_problem,
    senders_problem,
    subject_problem,
)
from reminders.targets import able_to_reach, count_kinds, tagged, unreachable_error, what_they_reach

#: Channels that can ask people to connect.
CONNECTING = [key for key, described in channels().items() if Action.CONNECTION_REQUEST in described.actions]
INMAILING = [key for key, described in channels().items() if Action.INMAIL in described.actions]
LIST_LIKE = "+49 176 12345678\nChoir, 120363025246125486@g.us\nann@example.com"
#: of a list of days; more are not even counted
DAYS_READ = 20
HOURS = {"min": 0, "max": 24, "class": "hour"}
IN_SEVERAL_FILES = "import it under Recipients in several files, with a tag, and choose the tag here."
LIST_MB = tables.MOST_BYTES // MB
#: Proposed for a repeated reminder; any other expression can be typed.
CRONS = ("0 9 * * *", "0 9 * * 1-5", "0 9 * * 6,0", "0 9 * * 1", "0 9 * * 5", "0 9 1 * *")
TEXT = ReminderMessage.Kind.TEXT
#: The submit buttons that switch the reminder on or off; the others do not change it.
SWITCH_ON, KEEP_AS_DRAFT = "_on", "_draft"


class LongSelect(forms.Select):
    """A select for thousands of accounts, without an object and a template for each as in Django's.

    The page's script reads the channel of each account from the options.
    """

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return _options(self, name, {str(value)}, attrs or {})


class LongSelectMultiple(forms.SelectMultiple):
    """The same for several accounts."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return _options(self, name, {str(one) for one in value or ()}, {**(attrs or {}), "multiple": True, "size": 6})


def _options(widget: Any, name: str, chosen: set[str], attrs: dict[str, Any]) -> SafeString:
    empty = widget.choices.field.empty_label
    rows = [("", "", empty)] if empty is not None else []
    rows += widget.choices.queryset.values_list("pk", "channel", "label")
    marks = {str(key): " selected" for key, _, _ in rows if str(key) in chosen}
    options = (
        f'<option value="{key}" data-channel="{channel}"{marks.get(str(key), "")}>{escape(label)}</option>'
        for key, channel, label in rows
    )
    return format_html("<select{}>{}</select>", flatatt({"name": name, **attrs}), SafeString("\n".join(options)))


def channel_facts() -> dict[str, dict[str, Any]]:
    """Return facts about each channel for the page's script: its fields, and how large its files may be."""
    return {
        key: {
            "subject": described.subject,
            "connects": key in CONNECTING,
            "inmails": key in INMAILING,
            "label": described.label,
            "files": media.limits_in_words([described]),
            "mb": {kind: media.most_mb(kind, [described]) for kind in media.TYPES},
        }
        for key, described in channels().items()
    }


class Addresses(forms.Field):
    """People found by search, one line each. The page's script adds the inputs."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[str]:
        return list(value or ())


class Days(forms.CharField):
    """Whole numbers with commas between them."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        words = [word.strip() for word in (super().to_python(value) or "").split(",") if word.strip()]
        days = [as_id(word) for word in words]
        if None in days or len(words) > DAYS_READ:
            raise forms.ValidationError("Write whole numbers of days with commas between them, such as 2, 5.")
        return days

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class ReminderForm(OwnedForm):
    request: Any = None
    further = forms.ModelMultipleChoiceField(
        Account.objects.none(),
        label="Further senders",
        required=False,
        widget=LongSelectMultiple,
        help_text="They share the targets with the account above: each target goes through an account that reaches "
        "its address, and accounts of the same reach take turns.",
    )
    chosen = Addresses(required=False)
    tag = forms.CharField(
        label="All with a tag",
        required=False,
        widget=forms.TextInput(attrs={"list": "tags", "autocomplete": "off"}),
        help_text="Several tags with commas between them.",
    )
    paste = forms.CharField(
        label="A list",
        required=False,
        widget=forms.Textarea(attrs={"rows": 5, "placeholder": LIST_LIKE}),
        help_text="One per line: a phone number, a group id or a mail address, optionally with a name. "
        "Or CSV with a header such as name,phone,city: further columns become the recipient's own fields.",
    )
    list_file = forms.FileField(
        label="The list as a file",
        required=False,
        widget=forms.FileInput(attrs={"accept": ".csv,.txt,.xlsx,text/plain,text/csv"}),
        help_text=f"Excel (.xlsx), CSV or text, up to {MOST_ROWS:,} lines and {LIST_MB} MB.",
    )
    clear = forms.BooleanField(label="Remove all current targets first", required=False)
    fire_at = forms.DateTimeField(
        label="Date and time",
        required=False,
        help_text="By the clock of the reminder's timezone.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    follow_up_days = Days(
        label="Follow up after days",
        required=False,
        help_text="At most three, such as 2, 5. People who have not replied by then get the parts of that follow-up, "
        "at the same time of day and from the same account.",
    )

    even_if_late = forms.BooleanField(
        label="Save it even if it fires after the delivery hours",
        required=False,
        help_text="Such a firing sends nothing.",
    )

    connect = forms.BooleanField(
        label="Send connection requests instead of messages",
        required=False,
        help_text="LinkedIn only. The text is the note: at most 300 characters, and no file.",
    )

    inmail = forms.BooleanField(
        label="Send InMail instead of messages",
        required=False,
        help_text="LinkedIn only: it reaches people without a connection, has a subject and costs a credit each. One "
        "part.",
    )

    class Meta:
        model = Reminder
        exclude = ("enabled",)  # a button says so
        labels = {
            "account": "Send through",
            "schedule": "Fires",
            "cron": "Repeats",
            "delivery_window_start_hour": "Deliver from",
            "delivery_window_end_hour": "until",
            "auto_resume": "If the delivery hours end first, go on by itself the next day",
            "segment": "Everyone in a segment",
            "resume_after_limit": "If the account reaches its daily cap first, go on by itself when it may send again",
        }
        help_texts = {
            "title": "Only operators see it.",
            "segment": "Of a reminder that is shared with a team, only those who are shared with that team.",
            "auto_resume": "Off: it pauses and waits for you. Yesterday's text may be stale.",
            "resume_after_limit": "Also after the account's own hours and its limit of new chats. Off: it pauses and "
            "waits for you.",
            "cron": "As a cron expression (minute, hour, day, month, weekday) in the reminder's timezone.",
            "delivery_window_end_hour": "Whole hours of the day, for example 6 until 18.",
        }
        widgets = {
            "account": LongSelect,
            "timezone": forms.TextInput(attrs={"list": "zones"}),
            "cron": forms.TextInput(attrs={"placeholder": "0 9 * * 1-5", "list": "crons"}),
            "delivery_window_start_hour": forms.NumberInput(attrs=HOURS),
            "delivery_window_end_hour": forms.NumberInput(attrs=HOURS),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.was_enabled = self.instance.enabled
        if "urgency" in self.fields:
            self.fields["urgency"].required = False  # medium; it says nothing where there is no follow-up
        if "schedule" in self.fields:
            self.fields["schedule"].choices = [("once", "once"), ("cron", "repeatedly")]  # type: ignore[attr-defined]
        if "account" in self.fields:
            # Without links to other pages, where the typed values would be lost.
            wrapper: Any = self.fields["account"].widget
            wrapper.can_add_related = wrapper.can_change_related = wrapper.can_view_related = False
        if "segment" in self.fields:
            self._offer_segments()
        if self.user is not None:
            own = access.visible(self.user, Account.objects.filter(archived=False))
            self.fields["further"].queryset = own  # type: ignore[attr-defined]
            channels = set(own.order_by().values_list("channel", flat=True).distinct())
            if channels.isdisjoint(CONNECTING):
                self.fields["connect"].widget = forms.HiddenInput()
            if channels.isdisjoint(INMAILING):
                self.fields["inmail"].widget = forms.HiddenInput()
        if self.instance.pk:
            self.initial["further"] = [sender.account_id for sender in self.instance.further_senders.all()]
        elif "timezone" in self.fields and timezone.get_current_timezone_name() == settings.TIME_ZONE:
            # The person has not chosen a timezone: the browser may know it.
            self.fields["timezone"].widget.attrs["data-guess"] = "yes"
        self.initial["connect"] = self.instance.action == Action.CONNECTION_REQUEST
        self.initial["inmail"] = self.instance.action == Action.INMAIL
        if self.instance.fire_at and valid_timezone(self.instance.timezone):
            # As the reminder's wall clock shows it, not the server's.
            self.initial["fire_at"] = self.instance.fire_at.astimezone(ZoneInfo(self.instance.timezone)).replace(
                tzinfo=None
            )

    def _offer_segments(self) -> None:
        """Offer the person's segments, and the one that the reminder has: saving must not take it away."""
        field: Any = self.fields["segment"]
        wrapper: Any = field.widget
        wrapper.can_add_related = wrapper.can_change_related = wrapper.can_view_related = False
        wrapper.can_delete_related = False
        if self.user is not None:
            mine = access.visible(self.user, Segment.objects.all()).values("pk")
            field.queryset = Segment.objects.filter(Q(pk__in=mine) | Q(pk=self.instance.segment_id))

    @property
    def changed_data(self) -> list[str]:
        """Return the changed fields including `enabled`, so that the history names it."""
        switched = ["enabled"] if self.instance.pk and self.instance.enabled != self.was_enabled else []
        return [*super().changed_data, *switched]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        zone = cleaned.get("timezone", "")
        # A hidden field may still hold a value of the other schedule.
        if cleaned.get("schedule") == Reminder.Schedule.CRON:
            cleaned["fire_at"] = None
        elif cleaned.get("schedule") == Reminder.Schedule.ONCE:
            cleaned["cron"] = ""
        if cleaned.get("fire_at") and valid_timezone(zone):
            self._place(cleaned, zone)
        return cleaned

    def _place(self, cleaned: dict[str, Any], zone: str) -> None:
        """Convert the wall-clock time in that timezone to a moment."""
        now = timezone.now()
        try:
            cleaned["fire_at"] = schedule.from_wall_clock(cleaned["fire_at"], zone, now)
        except ValueError as problem:
            self.add_error("fire_at", str(problem))
            return
        if self.was_enabled and keeps_its_time(self.instance, cleaned["fire_at"]):
            cleaned["fire_at"] = self.instance.fire_at
            return
        passed = passed_problem(cleaned["fire_at"], now)
        if passed and "fire_at" in self.changed_data:
            self.add_error("fire_at", passed)

    def clean_segment(self) -> Segment | None:
        segment: Segment | None = self.cleaned_data["segment"]
        # The one that it has may stay, as `_offer_segments` says.
        is_new = segment is not None and segment.pk != self.instance.segment_id
        if segment is not None and is_new and (problem := segment_problem(self.instance.owner, segment)):
            raise forms.ValidationError(problem)
        return segment

    def clean_tag(self) -> list[str]:
        tags = imports.split_tags(self.cleaned_data["tag"])
        if len(tags) > imports.MOST_TAGS:
            raise forms.ValidationError(f"Name at most {imports.MOST_TAGS} tags.")
        return tags

    def clean_paste(self) -> list[imports.Entry]:
        _require_short(self.cleaned_data["paste"])
        return _usable(imports.read_posted(self.request, "paste"))

    def clean_chosen(self) -> list[imports.Entry]:
        _require_short("\n".join(self.cleaned_data["chosen"]))
        return _usable(imports.read_posted(self.request, "chosen"))

    def clean_list_file(self) -> list[imports.Entry]:
        file = self.cleaned_data["list_file"]
        if not file:
            return []
        self.list_text = text = list_file_text(file)
        return _usable(imports.read(text, most_problems=imports.MOST_PROBLEMS))

    #: text of the chosen file, if it can be read
    list_text = ""

    def show_list_file(self) -> None:
        """Put the chosen file's lines into the list box, for the page that comes back when something is wrong."""
        if self.list_text:
            lines = (self.data.get("paste", "").rstrip(), self.list_text.rstrip())
            self.data = with_values(self.data, {"paste": "\n".join(filter(None, lines))})

    @property
    def entries(self) -> list[imports.Entry]:
        """Return all entries of the lists and of the search."""
        return [entry for name in ("paste", "list_file", "chosen") for entry in self.cleaned_data.get(name) or ()]

    def _post_clean(self) -> None:
        self._switch()
        super()._post_clean()  # type: ignore[misc]
        if accounts := self.senders():
            self._choose_action(accounts[0])
            self._check_reach(accounts)
        if "follow_up_days" not in self.errors:
            posted = posted_steps(self.data, self.files)
            if problem := follow_ups_problem(self.instance.follow_up_days, posted):
                self.add_error("follow_up_days", problem)
        if self.instance.enabled and not self.errors:
            self._check_lateness()
            self._check_missing()

    def _switch(self) -> None:
        if KEEP_AS_DRAFT in self.data:
            self.instance.enabled = False
        elif SWITCH_ON in self.data:
            self.instance.enabled = True

    def _check_reach(self, accounts: list[Account]) -> None:
        for name in ("paste", "list_file"):
            if (entries := self.cleaned_data.get(name)) and (problem := unreachable_error(accounts, entries)):
                self.add_error(name, problem)
        unreached = [e for e in self.cleaned_data.get("chosen") or () if not able_to_reach(e.kind, accounts)]
        if unreached:
            who = ", ".join(entry.name or entry.address for entry in unreached[:PROBLEMS_SHOWN])
            self.add_error("paste", f"{what_they_reach(accounts)}: take out {who}.")
        if problem := subject_problem(accounts, self.instance.subject):
            self.add_error("subject", problem)
        elif problem := senders_problem(self.instance.owner, accounts, self._kinds(), self.instance.subject):
            self.add_error("further" if len(accounts) > 1 else "account", problem)

    def _choose_action(self, account: Account) -> None:
        connects, inmail = bool(self.cleaned_data.get("connect")), bool(self.cleaned_data.get("inmail"))
        if connects and (problem := connect_problem(account)):
            self.add_error("connect", problem)
        elif connects and inmail:
            self.add_error("inmail", "Choose connection requests or InMail, not both.")
        elif inmail and (problem := inmail_problem(account, len(written_parts(self.data, self.files)))):
            self.add_error("inmail", problem)
        else:
            self.instance.action = action_through(account, connects, self.instance.action, inmail)

    def _check_lateness(self) -> None:
        if self.cleaned_data.get("even_if_late"):
            return
        if problem := self.instance.late_error(timezone.now()):
            self.add_error("cron" if self.instance.cron else "fire_at", problem)

    def _check_missing(self) -> None:
        """Require a message, recipients and a time of a reminder that is on."""
        parts = len(written_parts(self.data, self.files))
        lacks = missing(parts, self._has_people(), self.instance.timed)
        if lacks:
            self.lacks_something = True
            self.add_error(None, f"{missing_in_words(lacks)} Add what is missing, or keep it as a draft.")

    #: the page then offers to keep it as a draft
    lacks_something = False

    def _has_people(self) -> bool:
        if self.entries or self.cleaned_data.get("segment") or (self._keeps_targets and self.instance.targets.exists()):
            return True
        tags = self.cleaned_data.get("tag") or []
        return any(tagged(self.user, tag, self.senders()).exists() for tag in tags)

    def senders(self) -> list[Account]:
        """Return the chosen accounts; the first is the reminder's own."""
        account = self.cleaned_data.get("account")
        further = self.cleaned_data.get("further") or []
        return [account, *(other for other in further if other != account)] if account else []

    @property
    def _keeps_targets(self) -> bool:
        return bool(self.instance.pk and not self.cleaned_data.get("clear"))

    def _kinds(self) -> Collection[str]:
        """Return the kinds of address among the targets that it keeps."""
        return count_kinds(Recipient.objects.filter(reminders=self.instance)).keys() if self._keeps_targets else ()


def with_values(data: Any, values: dict[str, str]) -> Any:
    """Return a copy of the posted data with other values for these fields."""
    copy = data.copy()
    for name, value in values.items():
        copy[name] = value
    return copy


def list_file_text(file: Any) -> str:
    """Return the list in an uploaded file as text. Raises ValidationError."""
    if file.size > tables.MOST_BYTES:
        raise forms.ValidationError(f"The file is larger than {LIST_MB} MB: {IN_SEVERAL_FILES}")
    try:
        text = imports.file_text(file.read())
    except UnusableFile as problem:
        raise forms.ValidationError(f"{file.name}: {problem}") from None
    _require_short(text)
    return text


def _too_long(text: str) -> bool:
    return len(text) > tables.MOST_BYTES or tables.has_more_lines(text, MOST_ROWS)


def _require_short(text: str) -> None:
    if _too_long(text):
        raise forms.ValidationError(f"The list has more than {MOST_ROWS:,} lines or {LIST_MB} MB: {IN_SEVERAL_FILES}")


def _usable(listed: imports.RecipientList) -> list[imports.Entry]:
    """Return the entries of a list; raise if any line cannot be used."""
    listed = erasure.refuse(listed)
    if listed.problems:
        problems = imports.first_problems(listed.problems, PROBLEMS_SHOWN)
        raise forms.ValidationError([capfirst(problem) for problem in problems])
    return listed.entries


class PartForm(ModelForm):
    order = forms.IntegerField(
        required=False,
        widget=forms.NumberInput(attrs={"class": "hour"}),
        help_text="Parts are sent in this order.",
    )
    upload = forms.FileField(label="File", required=False)
    template_key = TemplateKey()
    template_values = TemplateValues()
    user: Any = None
    #: the message templates of the accounts in the same form
    choice: Choice = Choice([])
    #: of the accounts in the same form: their providers limit files
    channels: list[Channel] = []

    class Meta:
        model = ReminderMessage
        fields = ("kind", "text", "html", "media")
        widgets = {
            "text": forms.Textarea(attrs={"rows": 4}),
            "html": forms.Textarea(attrs={"rows": 3}),
            "media": forms.HiddenInput,
        }
        labels = {"html": "HTML"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["order"].initial = self.instance.position + 1 if self.instance.pk else None
        self._show_file(self.instance.media)
        offer(self, self.choice)
        if self.user is not None:
            self.fields["media"].queryset = access.visible(self.user, MediaFile.objects.all())  # type: ignore[attr-defined]

    def has_changed(self) -> bool:
        """Ignore a new part without a text, unless it should have a file, which may have been refused."""
        changed = set(self.changed_data)
        has_template = bool(self.data.get(self.add_prefix("template_key")))
        has_file = self.data.get(self.add_prefix("kind"), TEXT) != TEXT
        return bool(changed if self.instance.pk else has_file or has_template or changed - {"order", "kind", "step"})

    def _show_file(self, file: MediaFile | None) -> None:
        """Show which file the part has, though the file input is empty."""
        limits = f"{capfirst(media.limits_in_words(self.channels))}."
        # The field as it is bound to this form has a copy of the help.
        self["upload"].help_text = format_html("{} Empty: keeps {}.", limits, file) if file else limits
        if file:
            # The admin wraps the input, and all forms share the attributes of the wrapper.
            wrapper: Any = self.fields["media"].widget
            url = reverse("admin:media_file", args=[file.pk])
            getattr(wrapper, "widget", wrapper).attrs |= {"data-filename": str(file), "data-url": url}

    def add_error(self, field: str | None, error: Any) -> None:
        """Show one error per cause: the model repeats errors that were found here."""
        if field is not None or not self.errors:
            super().add_error(field, error)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        take_template(self, self.choice)
        upload, kind = cleaned.get("upload"), cleaned.get("kind", "text")
        if upload:
            self._take(upload, kind)
        elif kind == TEXT:
            cleaned["media"] = None
            if not cleaned.get("text", "").strip():
                self.add_error("text", "Write the text, or remove this part.")
        elif not cleaned.get("media") and "upload" not in self.errors:
            self.add_error("upload", "Choose a file, or remove this part.")
        if cleaned.get("media") != self.instance.media:
            self._show_file(cleaned.get("media"))
        if problem := media.caption_problem(cleaned.get("kind", ""), cleaned.get("text", ""), self.channels):
            self.add_error("text", problem)
        return cleaned

    def _take(self, upload: Any, kind: str) -> None:
        if kind == TEXT:
            kind = self.cleaned_data["kind"] = media.kind_of(upload.name)
        try:
            media.check(kind, upload, self.channels)
        except forms.ValidationError as error:
            self.add_error("upload", error)
            return
        # Stored already here, and named in the page if it comes back with another error: a browser does not fill in
        # the file again.
        file = self.cleaned_data["media"] = media.keep(upload, self.user)
        self.data = with_values(self.data, {self.add_prefix("media"): str(file.pk), self.add_prefix("kind"): kind})


class PartFormSet(BaseInlineFormSet):
    request: Any = None

    def clean(self) -> None:
        """Check placeholders once for all parts, with the recipients of the same form."""
        super().clean()
        lists = (self.request.POST.get("paste", ""), "\n".join(self.request.POST.getlist("chosen")))
        if self.model is not ReminderMessage or any(map(_too_long, lists)):
            return  # a list that is refused anyway is not worth seconds of reading
        words = DraftTexts.posted(self.request, lambda: Chosen.posted(self.request).audience)
        if not words.too_long and (problem := words.problem()):  # what is too long is said beside its field
            raise forms.ValidationError(problem)

    def save(self, commit: bool = True) -> Any:
        """Number the parts by the given order, then by their place in the form."""
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
