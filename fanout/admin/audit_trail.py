"""The audit trail, for administrators: read-only, and as a CSV file."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_GET

from fanout.admin.model_admin import ReadOnlyAdmin
from fanout.models import TrailEntry
from fanout.models.trail import note
from fanout.ops import exports

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


@admin.register(TrailEntry)
class TrailEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_name", "address", "verb", "kind", "subject", "detail")
    list_display_links = None
    fields = list_display
    list_filter = (KindFilter,)
    search_fields = ("actor_name__exact", "address__exact", "verb__exact", "subject__exact")
    search_help_text = "Search by the whole name, address, verb or subject"
    sortable_by = ()
    change_list_template = "admin/fanout/trailentry/change_list.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

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
