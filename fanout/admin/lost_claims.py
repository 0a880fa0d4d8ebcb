"""Messages that a fail-over or a restore has lost, read-only, and the button with which sending goes on."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from fanout.admin.model_admin import OwnedAdmin, ShallowPaginator
from fanout.models import LostClaim
from fanout.runs import recovery
from fanout.templatetags.crier import when


@admin.register(LostClaim)
class LostClaimAdmin(OwnedAdmin):
    """Operators see the messages of their accounts. What they confirm is for all: it sends nothing twice."""

    owned_by = "account"
    list_display = ("claimed", "address", "part_number", "account", "answer_words", "state", "host")
    list_display_links = None
    list_select_related = ("account",)
    search_fields = ("address__exact",)
    search_help_text = "Search by the whole address"
    sortable_by = ()
    paginator = ShallowPaginator
    actions = None
    fields = ("claimed", "address", "part_number", "account", "answer_words", "state", "host", "run_id", "target_id")
    readonly_fields = fields
    change_list_template = "admin/fanout/lostclaim/change_list.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [path("confirm/", wrap(self.confirm_view), name="fanout_lostclaim_confirm"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        known = recovery.in_the_way()
        about = {
            "title": "Lost messages",
            "known": known,
            "words": recovery.in_words(known) if known else "",
            "may_confirm": bool(known and known.held) and self.has_change_permission(request),
        }
        return super().changelist_view(request, about | (extra_context or {}))

    def confirm_view(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST" or not self.has_change_permission(request):
            raise PermissionDenied
        send_again = "send_again" in request.POST
        if send_again and not request.user.is_superuser:
            raise PermissionDenied  # it concerns the runs of all operators
        result = recovery.confirm(request.user, timezone.now(), send_again)
        messages.add_message(request, messages.SUCCESS if result.ok else messages.WARNING, result.text)
        return HttpResponseRedirect(reverse("admin:fanout_lostclaim_changelist"))

    @admin.display(description="claimed")
    def claimed(self, claim: LostClaim) -> str:
        return when(claim.claimed_at, claim.account.timezone)

    @admin.display(description="message")
    def part_number(self, claim: LostClaim) -> str:
        return f"part {claim.part + 1}"

    @admin.display(description="provider's answer")
    def answer_words(self, claim: LostClaim) -> str:
        return claim.answer or "unknown"

    @admin.display(description="now")
    def state(self, claim: LostClaim) -> str:
        if not claim.target_found:
            return "its run is lost"
        return "stored again" if claim.answer else "unconfirmed"
