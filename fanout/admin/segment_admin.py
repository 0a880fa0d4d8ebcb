"""Segments: recipients by conditions, with how many they are now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from accounts import access
from accounts.inputs import as_ids
from fanout.admin.model_admin import OwnedAdmin, OwnedForm, capped_counts
from fanout.admin.reminder_draft import members_in_words
from fanout.admin.reminder_targets import proposed_tags
from fanout.admin.widgets import capped_number
from fanout.plans.audience import segment_members
from reminders import imports
from reminders.models import Recipient, Reminder, Segment
from reminders.segments import MOST_DAYS, NO_CONDITION, read_conditions, stored_conditions

MEMBERS_CAP = 2_000
#: a segment has at least one of them
CONDITIONS = ("tags", "without_tags", "fields", "not_replied_to", "not_contacted_days")
TAGS = {"list": "tags", "autocomplete": "off"}


class Tags(forms.CharField):
    """Tags with commas between them."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return imports.split_tags(super().to_python(value) or "")


class Conditions(forms.CharField):
    """Conditions about fields, one per line."""

    widget = forms.Textarea

    def __init__(self, *, encoder: Any = None, decoder: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # without those of the JSON column

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, stored_conditions(value))) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        try:
            return [list(condition) for condition in read_conditions(super().to_python(value) or "")]
        except ValueError as problem:
            raise forms.ValidationError(str(problem)) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class SegmentForm(OwnedForm):
    tags = Tags(
        label="With one of the tags",
        required=False,
        widget=forms.TextInput(attrs=TAGS),
        help_text="Several tags with commas between them.",
    )
    without_tags = Tags(label="Without the tags", required=False, widget=forms.TextInput(attrs=TAGS))
    not_contacted_days = forms.IntegerField(
        label="Not contacted for",
        required=False,
        min_value=1,
        max_value=MOST_DAYS,
        widget=forms.NumberInput(attrs={"class": "hour"}),
        help_text="Days in which no account has sent them anything.",
    )

    class Meta:
        model = Segment
        fields = (
            "name",
            "tags",
            "every_tag",
            "without_tags",
            "fields",
            "not_replied_to",
            "not_contacted_days",
            "owner",
            "team",
        )
        field_classes = {"fields": Conditions}
        labels = {"every_tag": "They must have all of these tags", "fields": "With these values"}
        help_texts = {
            "every_tag": "",
            "fields": "One per line, such as city = Penang or city != Penang. Case does not matter; “city =” finds "
            "empty fields.",
            "not_replied_to": "They got this reminder and have not written since.",
        }
        widgets = {"fields": forms.Textarea(attrs={"rows": 3, "placeholder": "city = Penang"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "not_replied_to" in self.fields:
            field: Any = self.fields["not_replied_to"]
            wrapper = field.widget
            wrapper.can_add_related = wrapper.can_change_related = wrapper.can_view_related = False
            wrapper.can_delete_related = False
            if self.user is not None:
                # With the one it has, which may not be shared with this person: saving must not take it away.
                mine = access.visible(self.user, Reminder.objects.all()).values("pk")
                field.queryset = Reminder.objects.filter(Q(pk__in=mine) | Q(pk=self.instance.not_replied_to_id))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors and not any(cleaned.get(name) for name in CONDITIONS):
            raise forms.ValidationError(NO_CONDITION)
        return cleaned


@admin.register(Segment)
class SegmentAdmin(OwnedAdmin):
    form = SegmentForm
    list_display = ("name", "conditions", "members", "used_by")
    search_fields = ("name",)
    list_select_related = ("not_replied_to", "owner")
    sortable_by = ()
    readonly_fields = ("now", "used_in")
    fieldsets = (
        (None, {"fields": ("name",)}),
        (
            "Who is in it",
            {
                "description": "All conditions must hold. A reminder goes to those who are in it when it fires.",
                "fields": (
                    "tags",
                    "every_tag",
                    "without_tags",
                    "fields",
                    "not_replied_to",
                    "not_contacted_days",
                    "now",
                ),
            },
        ),
        ("Sharing", {"fields": ("owner", "team")}),
    )
    change_form_template = "admin/reminders/segment/change_form.html"

    class Media:
        js = ("crier/form_pieces.js", "crier/segment.js")

    # --- the list ---------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Segment]:
        rows: QuerySet[Segment] = super().get_queryset(request)
        return rows.annotate(reminder_n=Count("reminders", filter=Q(reminders__archived=False)))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        rows, now = list(changes.result_list), timezone.now()
        changes.result_list = rows
        members = {row.pk: _seen_members(row, request.user, now) for row in rows}
        counts = capped_counts(members, MEMBERS_CAP)
        for row in rows:
            row.members_shown = capped_number(counts[row.pk], MEMBERS_CAP)
        return changes

    @admin.display(description="who is in it")
    def conditions(self, segment: Segment) -> str:
        return segment.words

    @admin.display(description="members now")
    def members(self, segment: Any) -> str:
        return str(segment.members_shown)

    @admin.display(description="reminders")
    def used_by(self, segment: Any) -> str:
        return f"{segment.reminder_n:,}"

    # --- the page ---------------------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return fieldsets
        return [*fieldsets[:2], ("Reminders to it", {"fields": ("used_in",)}), *fieldsets[2:]]

    def changeform_view(
        self, request: HttpRequest, object_id: Any = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        context = {"tags": proposed_tags(request.user)}
        return super().changeform_view(request, object_id, form_url, context | (extra_context or {}))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        if obj is not None:
            obj.reader = request.user
        return form

    @admin.display(description="Now")
    def now(self, segment: Any) -> SafeString:
        """Show how many they are and three of them that the reader may see. The script keeps it up to date."""
        known = segment is not None and segment.pk and hasattr(segment, "reader")
        words = _now(segment, segment.reader) if known else "–"
        return format_html('<span data-members aria-live="polite">{}</span>', words)

    @admin.display(description="Used in")
    def used_in(self, segment: Segment) -> SafeString | str:
        reader = getattr(segment, "reader", None)
        reminders = Reminder.objects.filter(segment=segment, archived=False)
        rows = list(access.visible(reader, reminders)[:20]) if reader is not None else []
        links = format_html_join(
            ", ", '<a href="{}">{}</a>', ((reverse("admin:reminders_reminder_change", args=[r.pk]), r) for r in rows)
        )
        add = f"{reverse('admin:reminders_reminder_add')}?segment={segment.pk}"
        return format_html('{} <a class="act" href="{}">New reminder to this segment</a>', links or "no reminder", add)

    # --- endpoints --------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("count/", wrap(require_POST(self.count_view)), name="reminders_segment_count"),
            *super().get_urls(),
        ]

    def count_view(self, request: HttpRequest) -> HttpResponse:
        """Return how many the segment would have as the form stands, without saving anything."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        saved = access.visible(request.user, Segment.objects.filter(pk__in=as_ids([request.POST.get("segment", "")])))
        form = self.get_form(request)(request.POST, instance=saved.select_related("owner").first())
        # Only the conditions matter: the name may be missing yet.
        problems = [text for name in CONDITIONS for text in form.errors.get(name, [])]
        if not problems and not any(form.cleaned_data.get(name) for name in CONDITIONS):
            problems = [NO_CONDITION]
        words = "" if problems else _now(form.instance, request.user)
        return JsonResponse({"members": words, "problem": " ".join(map(str, problems))})


def _now(segment: Segment, reader: Any) -> str:
    return members_in_words(_seen_members(segment, reader, timezone.now()), reader)


def _seen_members(segment: Segment, reader: Any, now: datetime) -> QuerySet[Recipient]:
    """Return the owner's members that the reader sees, too. A colleague who may edit the segment could otherwise count
    the owner's other recipients by trying conditions."""
    return access.visible(reader, segment_members(segment, segment.owner, now))
