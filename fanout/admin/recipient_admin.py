"""Recipients: the list with filters, and the form with own fields. Its page ends with the person's timeline."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts import access
from accounts.addresses import PHONE
from accounts.inputs import counted
from fanout.admin.list_actions import ArchivedFilter, archive_actions
from fanout.admin.model_admin import OwnedAdmin, OwnedForm, acts
from fanout.admin.recipient_actions import (
    erase_selected,
    remove_selected,
    suppress_selected,
    tag_selected,
    untag_selected,
)
from fanout.admin.recipient_import import import_page
from fanout.admin.widgets import recipient_badges
from fanout.inbound.person_timeline import timeline
from fanout.models.trail import note
from fanout.ops import exports
from fanout.runs import corrections
from fanout.templatetags.crier import when
from reminders import erasure, suppressions
from reminders.imports import COLUMNS, MOST_FIELD, field_name
from reminders.models import Membership, Recipient, Suppression
from reminders.targets import tag_counts

# --- own fields as rows of a name and a value -------------------------------------------------------------


EMPTY_ROWS = 3
MOST_NAME = 60

Pairs = list[tuple[str, str]]


class RowsWidget(forms.Widget):
    """Two inputs per row, and some empty rows for new fields."""

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
        if problem := _rows_problem(kept):
            raise forms.ValidationError(problem)
        return {name: text for name, text, _ in kept}

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return dict(initial or {}) != self.to_python(data)
        except forms.ValidationError:
            return True


def _rows_problem(rows: list[tuple[str, str, str]]) -> str:
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


# --- the list and the form --------------------------------------------------------------------------------


MOST_RESULTS = 20
#: tags that the filter offers; the list's address accepts any other
MOST_TAGS = 25


class RecipientForm(OwnedForm):
    fields = RowsField(  # type: ignore[assignment]  # a declared field of that name; the form keeps its own apart
        label="Own fields",
        required=False,
        help_text="For placeholders: a field called flat is {flat} in a reminder's text. Empty a value to remove it.",
    )

    class Meta:
        help_texts = {"tags": "Separated by commas."}
        error_messages = {"tags": {"item_invalid": "Tag %(nth)s cannot be used:"}}

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # not in the stubs
        if "address" in self.changed_data and not self.errors and erasure.erased([self.instance.address]):
            self.add_error("address", erasure.REFUSED)


def as_in_addresses(term: str) -> str:
    """Return a phone number without spaces and signs; other terms in lower case."""
    text = term.strip().lower()
    return re.sub(r"[^+0-9]", "", text) if PHONE.fullmatch(text) else text


class GoneFilter(admin.SimpleListFilter):
    title = "group"
    parameter_name = "group"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("gone", "no account is in it any more")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Recipient]) -> QuerySet[Recipient]:
        if self.value() != "gone":
            return queryset
        listed = Membership.objects.filter(recipient=OuterRef("pk"))
        return queryset.filter(Exists(listed), ~Exists(listed.filter(gone_at=None)))


def who_writes(memberships: list[Membership]) -> str:
    """Return a note if only admins may write in the group; empty if all members may."""
    if not any(membership.announce_only for membership in memberships):
        return ""
    may = any(membership.may_write for membership in memberships)
    return "only admins write" if may else "only admins write, and none of the accounts is one"


class TagFilter(admin.SimpleListFilter):
    """Offers the most frequent tags; every tag in the list links to its filter."""

    title = "tag"
    parameter_name = "tag"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        counts = tag_counts(model_admin.get_queryset(request))
        most = set(sorted(counts, key=lambda tag: -counts[tag])[:MOST_TAGS])
        most |= {chosen} if (chosen := request.GET.get(self.parameter_name)) else set()
        return [(tag, f"{tag} ({counts.get(tag, 0):,})") for tag in sorted(most, key=str.lower)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Recipient]) -> QuerySet[Recipient]:
        tag = self.value()
        return queryset.filter(tags__contains=[tag]) if tag else queryset


class SuppressedFilter(admin.SimpleListFilter):
    title = "suppression"
    parameter_name = "suppressed"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Suppressed"), ("no", "Not suppressed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Recipient]) -> QuerySet[Recipient]:
        held = suppressions.is_suppressed(timezone.now())
        return {"yes": queryset.filter(held), "no": queryset.exclude(held)}.get(self.value() or "", queryset)


@admin.register(Recipient)
class RecipientAdmin(OwnedAdmin):
    form = RecipientForm
    actions = (
        tag_selected,
        untag_selected,
        suppress_selected,
        remove_selected,
        erase_selected,
        *archive_actions(corrections.archive_recipient, corrections.restore_recipient, "recipients"),
    )
    list_display = ("name_or_address", "address", "kind", "members", "status_badge", "tag_list", "history")
    list_display_links = ("name_or_address",)
    list_filter = (TagFilter, "kind", "status", SuppressedFilter, GoneFilter, ArchivedFilter)
    change_list_template = "admin/reminders/recipient/change_list.html"
    search_fields = ("name", "address")
    search_help_text = "Search by name, or by part of the address"
    sortable_by = ()
    readonly_fields = ("members", "unanswered", "counted_since", "in_cooldown", "last_reply")
    fieldsets = (
        (None, {"fields": ("kind", "address", "name", "members", "fields", "tags", "status", "owner", "team")}),
        ("Follow-ups", {"fields": ("unanswered", "counted_since", "in_cooldown", "last_reply")}),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow deleting only recipients without deliveries, which prove what was sent."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.run_targets.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Remove Django's bulk delete, which fails if one of them has deliveries; `remove` replaces it."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what one can enter for a new recipient; nothing has been sent to it yet."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is not None:
            return fieldsets
        (title, options), *_ = fieldsets
        return [(title, options | {"fields": [name for name in options["fields"] if name != "members"]})]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        recipient = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if recipient is not None and self.has_view_permission(request, recipient):
            context["timeline"] = timeline(recipient, request.user, request.GET.get("before", ""))
            in_force = suppressions.in_force(timezone.now())
            context["suppression"] = Suppression.objects.filter(in_force, address=recipient.address).first()
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("find/", wrap(require_GET(self.find_view)), name="reminders_recipient_find"),
            path("import/", wrap(self.import_view), name="reminders_recipient_import"),
            path("export/", wrap(require_GET(self.export_view)), name="reminders_recipient_export"),
            *super().get_urls(),
        ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Recipient], search_term: str
    ) -> tuple[QuerySet[Recipient], bool]:
        """Find all words in the name, or the whole term in the address: half the work of Django's own search."""
        if not search_term.strip():
            return queryset, False
        by_name = Q(*(Q(name__icontains=word) for word in search_term.split()))
        return queryset.filter(by_name | Q(address__contains=as_in_addresses(search_term))), False

    def import_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        context = self.admin_site.each_context(request) | {"title": "Import recipients", "opts": self.opts}
        return import_page(request, context)

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Download the filtered list as the import reads it. As in the list, an invalid filter is ignored."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            rows = self.get_changelist_instance(request).get_queryset(request).order_by("pk")
        except IncorrectLookupParameters:
            return HttpResponseRedirect(f"{reverse('admin:reminders_recipient_changelist')}?{ERROR_FLAG}=1")
        note("exported recipients", None, request.user, timezone.now())
        return exports.csv_download(request, exports.recipient_lines(rows), "recipients.csv")

    def has_suppress_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("reminders.add_suppression") and acts(request)

    def find_view(self, request: HttpRequest) -> JsonResponse:
        """Return the first recipients that match by name, address or tag, for the search in the reminder's form."""
        term = request.GET.get("q", "").strip()
        if not self.has_view_permission(request) or len(term) < 2:
            return JsonResponse({"recipients": []})
        rows = access.visible(
            request.user, Recipient.objects.filter(archived=False).exclude(status__in=Recipient.GETS_NOTHING)
        )
        rows = rows.filter(Q(name__icontains=term) | Q(address__startswith=term) | Q(tags__contains=[term]))
        return JsonResponse({"recipients": list(rows.order_by("name").values("name", "address")[:MOST_RESULTS])})

    def save_model(self, request: HttpRequest, obj: Recipient, form: forms.ModelForm[Recipient], change: bool) -> None:
        if "status" in form.changed_data:
            obj.limited = False  # now set by a person, no longer by the follow-up limit
        super().save_model(request, obj, form, change)

    @admin.display(description="recipient")
    def name_or_address(self, recipient: Recipient) -> str:
        return str(recipient)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Recipient]:
        rows = erasure.present(super().get_queryset(request)).prefetch_related("memberships")
        return rows.annotate(suppressed=suppressions.is_suppressed(timezone.now()))

    @admin.display(description="members")
    def members(self, recipient: Recipient) -> str:
        """Return size and who may write for a synchronised group, or since when no account is in it."""
        memberships = list(recipient.memberships.all())
        present = [membership for membership in memberships if membership.gone_at is None]
        if present or not memberships:
            size = str(max((membership.size or 0 for membership in present), default=0) or "–")
            return " · ".join(filter(None, [size, who_writes(present)]))
        return f"gone since {max(m.gone_at for m in memberships if m.gone_at):%d %b %Y}"

    @admin.display(description="without a reply")
    def unanswered(self, recipient: Recipient) -> str:
        return counted(recipient.follow_up_attempts, "follow-up")

    @admin.display(description="counted since")
    def counted_since(self, recipient: Recipient) -> SafeString | str:
        return when(recipient.attempts_reset_at) if recipient.attempts_reset_at else "the first one"

    @admin.display(description="cooldown")
    def in_cooldown(self, recipient: Recipient) -> SafeString | str:
        return format_html("until {}", when(recipient.cooldown_until)) if recipient.cooldown_until else "no"

    @admin.display(description="last reply")
    def last_reply(self, recipient: Recipient) -> SafeString | str:
        return when(recipient.replied_at)

    @admin.display(description="status")
    def status_badge(self, recipient: Recipient) -> SafeString:
        return recipient_badges(recipient, getattr(recipient, "suppressed", False))

    @admin.display(description="tags")
    def tag_list(self, recipient: Recipient) -> SafeString | str:
        links = ((urlencode({"tag": tag}), tag) for tag in recipient.tags)
        return format_html_join(" ", '<a class="tag" href="?{}">{}</a>', links) or "–"

    @admin.display(description="deliveries")
    def history(self, recipient: Recipient) -> SafeString:
        url = reverse("admin:fanout_runtarget_changelist")
        return format_html('<a href="{}?q={}">see</a>', url, recipient.address.replace("+", "%2B"))
