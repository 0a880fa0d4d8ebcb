"""The audit trail, for administrators: read-only, and as a CSV file."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts.inputs import as_id, as_ids
from accounts.models import Account
from fanout.admin.model_admin import ReadOnlyAdmin
from fanout.models import Run, TrailEntry
from fanout.models.trail import note
from fanout.ops import exports
from reminders.models import Reminder

COLUMNS = ("at", "actor_name", "actor_id", "address", "verb", "kind", "subject_id", "subject", "detail")
KINDS = (
    *("account", "reminder", "run", "user", "group", "recipient", "suppression", "optoutphrase", "mediafile"),
    *("remindertarget", "singlemessage"),
)


class KindFilter(admin.SimpleListFilter):
    """Offers a fixed list: reading the kinds from the table would read all of it."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in KINDS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[TrailEntry]) -> QuerySet[TrailEntry]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


#: kinds of things that the list names as they are called now, with a link to their page
LINKED: dict[str, type[Model]] = {"run": Run, "reminder": Reminder, "account": Account}


@admin.register(TrailEntry)
class TrailEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_name", "address", "verb", "kind", "what", "detail")
    list_display_links = None
    fields = ("at", "actor_name", "address", "verb", "kind", "subject", "detail")
    list_filter = (KindFilter,)
    search_fields = ("actor_name__exact", "address__exact", "verb__exact", "subject__exact")
    search_help_text = "Search by the whole name, address, verb or subject"
    sortable_by = ()
    change_list_template = "admin/fanout/trailentry/change_list.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the things that the entries of the page are about, which may be gone. An entry itself does not keep the
        name of a run."""
        changes = super().get_changelist_instance(request)
        rows = changes.result_list = list(changes.result_list)
        for kind, model in LINKED.items():
            about = [row for row in rows if row.kind == kind]
            things = model._default_manager.in_bulk(as_ids(row.subject_id for row in about)) if about else {}
            for row in about:
                row.thing = things.get(as_id(row.subject_id))
        return changes

    @admin.display(description="subject")
    def what(self, entry: TrailEntry) -> SafeString | str:
        thing = getattr(entry, "thing", None)
        if thing is None:
            return entry.subject
        url = reverse(f"admin:{thing._meta.app_label}_{thing._meta.model_name}_change", args=[thing.pk])
        return format_html('<a href="{}">{}</a>', url, thing)

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(require_GET(self.export_view))
        return [path("export/", export, name="fanout_trailentry_export"), *super().get_urls()]

    def export_view(self, request: HttpRequest) -> StreamingHttpResponse:
        """Download all entries as CSV, newest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        note("exported the audit trail", None, request.user, timezone.now())
        rows = ([getattr(entry, name) for name in COLUMNS] for entry in exports.streamed(TrailEntry.objects.all()))
        return exports.csv_download(request, exports.csv_lines(COLUMNS, rows), "audit-trail.csv")
