"""Recipients and files."""

from __future__ import annotations

import re
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
from fanout.admin.archiving import ArchivedFilter, archive_actions
from fanout.admin.badges import recipient_badges
from fanout.admin.base import OwnedAdmin, OwnedForm
from fanout.admin.downloads import csv_download
from fanout.admin.reminders.bulk import (
    erase_selected,
    remove_selected,
    suppress_selected,
    tag_selected,
    untag_selected,
)
from fanout.admin.reminders.conversation import conversation
from fanout.admin.reminders.importing import import_page
from fanout.admin.reminders.own_fields import RowsField
from fanout.models.trail import note
from fanout.ops import recipient_export
from fanout.runs import archiving
from reminders import erasure, suppressions, tags
from reminders.models import MediaFile, Membership, Recipient, Suppression

MOST_RESULTS = 20
#: tags that the filter offers; a list can be asked for any other by its address
MOST_TAGS = 25


class RecipientForm(OwnedForm):
    fields = RowsField(  # type: ignore[assignment]  # a declared field of that name; the form keeps its own apart
        label="Own fields",
        required=False,
        help_text="For placeholders: a field called flat is {flat} in a reminder's text. Empty a value to remove it.",
    )

    class Meta:
        help_texts = {"tags": "Separated by commas."}

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # not in the stubs
        if "address" in self.changed_data and not self.errors and erasure.erased([self.instance.address]):
            self.add_error("address", erasure.REFUSED)


def as_in_addresses(term: str) -> str:
    """A phone number as people write it without its spaces and signs; anything else in lower case."""
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
    """Nothing where everybody does."""
    if not any(membership.announce_only for membership in memberships):
        return ""
    may = any(membership.may_write for membership in memberships)
    return "only admins write" if may else "only admins write, and none of the accounts is one"


class TagFilter(admin.SimpleListFilter):
    """The tags that most recipients have; in the list every tag leads here."""

    title = "tag"
    parameter_name = "tag"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        counts = tags.counts(model_admin.get_queryset(request))
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
        *archive_actions(archiving.archive_recipient, archiving.restore_recipient, "recipients"),
    )
    list_display = ("name_or_address", "address", "kind", "members", "status_badge", "tag_list", "history")
    list_display_links = ("name_or_address",)
    list_filter = (TagFilter, "kind", "status", SuppressedFilter, GoneFilter, ArchivedFilter)
    change_list_template = "admin/reminders/recipient/change_list.html"
    search_fields = ("name", "address")
    search_help_text = "Search by name, or by part of the address"
    sortable_by = ()
    readonly_fields = ("members", "follow_up_attempts", "attempts_reset_at", "cooldown_until", "replied_at")
    fieldsets = (
        (None, {"fields": ("kind", "address", "name", "members", "fields", "tags", "status", "owner", "team")}),
        ("Follow-up", {"fields": ("follow_up_attempts", "attempts_reset_at", "cooldown_until", "replied_at")}),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only whom nothing was ever sent to: deliveries prove what was."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.run_targets.exists())

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without Django's own deleting of many, which gives up where one of them has deliveries: there is `remove`."""
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        recipient = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if recipient is not None and self.has_view_permission(request, recipient):
            context["conversation"] = conversation(recipient, request.user)
            holding = suppressions.holding(timezone.now())
            context["suppression"] = Suppression.objects.filter(holding, address=recipient.address).first()
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
        """All words are in the name, or the whole is in the address: half of what Django asks of every row."""
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
        """The list as it is filtered, as the import reads it. As in the list, a filter that cannot be read is none."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            rows = self.get_changelist_instance(request).get_queryset(request).order_by("pk")
        except IncorrectLookupParameters:
            return HttpResponseRedirect(f"{reverse('admin:reminders_recipient_changelist')}?{ERROR_FLAG}=1")
        note("exported recipients", None, request.user, timezone.now())
        return csv_download(request, recipient_export.lines(rows), "recipients.csv")

    def has_suppress_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("reminders.add_suppression")

    def find_view(self, request: HttpRequest) -> JsonResponse:
        """For the search in the reminder's form: the first few recipients that match by name, address or tag."""
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
            obj.limited = False  # it is what this person says now, and no longer the follow-up limit's
        super().save_model(request, obj, form, change)

    @admin.display(description="recipient")
    def name_or_address(self, recipient: Recipient) -> str:
        return str(recipient)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Recipient]:
        rows = erasure.present(super().get_queryset(request)).prefetch_related("memberships")
        return rows.annotate(suppressed=suppressions.is_suppressed(timezone.now()))

    @admin.display(description="members")
    def members(self, recipient: Recipient) -> str:
        """Of a group that was synchronised: its size and who writes there, or since when no account is in it."""
        memberships = list(recipient.memberships.all())
        present = [membership for membership in memberships if membership.gone_at is None]
        if present or not memberships:
            size = str(max((membership.size or 0 for membership in present), default=0) or "–")
            return " · ".join(filter(None, [size, who_writes(present)]))
        return f"gone since {max(m.gone_at for m in memberships if m.gone_at):%d %b %Y}"

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


@admin.register(MediaFile)
class MediaFileAdmin(OwnedAdmin):
    list_display = ("filename", "mime", "size", "created_at", "view")
    search_fields = ("filename",)
    sortable_by = ()
    readonly_fields = ("filename", "mime", "size", "view")
    fields = ("filename", "mime", "size", "view", "owner", "team")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # uploaded with the part it belongs to

    @admin.display(description="file")
    def view(self, media: MediaFile) -> SafeString:
        return format_html('<a href="{}">open</a>', reverse("admin:media_file", args=[media.pk]))
