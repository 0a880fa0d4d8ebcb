"""Files of reminders: their list, and the address that serves one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts import access
from fanout.admin.model_admin import OwnedAdmin
from reminders.media import answer_with
from reminders.models import MediaFile


@admin.register(MediaFile)
class MediaFileAdmin(OwnedAdmin):
    list_display = ("filename", "kind", "readable_size", "created_at", "view")
    search_fields = ("filename",)
    sortable_by = ()
    readonly_fields = ("filename", "kind", "readable_size", "view")
    fields = ("filename", "kind", "readable_size", "view", "owner", "team")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # uploaded with the part it belongs to

    @admin.display(description="type")
    def kind(self, media: MediaFile) -> str:
        return media.mime

    @admin.display(description="size")
    def readable_size(self, media: MediaFile) -> str:
        return filesizeformat(media.size)

    @admin.display(description="file")
    def view(self, media: MediaFile) -> SafeString:
        return format_html('<a href="{}">open</a>', reverse("admin:media_file", args=[media.pk]))


#: types that a browser may show in place; everything else is a download
SHOWN_IN_PLACE = {"image/png", "image/jpeg", "image/gif", "image/webp"}


@require_GET
def media_file(request: HttpRequest, pk: int) -> HttpResponseBase:
    user: Any = request.user
    if not user.has_perm("reminders.view_mediafile"):
        raise PermissionDenied
    media = get_object_or_404(access.visible(user, MediaFile.objects.all()), pk=pk)
    shown = media.mime in SHOWN_IN_PLACE
    kind = media.mime if shown else "application/octet-stream"
    try:
        return answer_with(request, media, kind, download=not shown)
    except FileNotFoundError:
        raise Http404 from None
