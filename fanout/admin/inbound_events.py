"""Events that providers reported, read-only: their effect, and those that failed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts import access
from accounts.crypto import CredentialError
from fanout.admin.model_admin import OwnedAdmin, ShallowPaginator
from fanout.inbound import worker
from fanout.inbound.reply_inbox import UNREADABLE
from fanout.models import InboundEvent, Run
from fanout.models.trail import note_all
from fanout.templatetags.crier import when

TONES = {InboundEvent.State.NEW: "info", InboundEvent.State.DONE: "good", InboundEvent.State.FAILED: "bad"}
TEXT_SHOWN = 80


@admin.action(description="Work on the selected failed events again", permissions=["change"])
def work_on_again(model_admin: InboundEventAdmin, request: HttpRequest, queryset: QuerySet[InboundEvent]) -> None:
    chosen = list(queryset)
    with transaction.atomic():
        failed = [event for event in chosen if event.state == InboundEvent.State.FAILED]
        count = worker.try_again([event.pk for event in failed])
        note_all("worked on again", failed, request.user, timezone.now())
    left = f" {len(chosen) - count} had not failed." if count < len(chosen) else ""
    level = messages.SUCCESS if count else messages.WARNING
    model_admin.message_user(request, f"{count} events will be worked on again.{left}", level)


@admin.register(InboundEvent)
class InboundEventAdmin(OwnedAdmin):
    """A reply's text belongs to its account, and is visible to people who may see that account."""

    owned_by = "account"
    list_display = ("came", "kind", "state_badge", "account", "address", "said", "effect")
    list_display_links = ("came",)
    # Both have choices: a filter without them would run SELECT DISTINCT.
    list_filter = ("state", "kind")
    list_select_related = ("account",)
    search_fields = ("address__exact", "provider_id__exact")
    search_help_text = "Search by the whole address, or by the provider's id of the message"
    sortable_by = ()
    paginator = ShallowPaginator
    actions = (work_on_again,)
    fields = (
        "kind",
        "state_badge",
        "account",
        "address",
        "group",
        "whole_text",
        "detail",
        "effect",
        "run_target",
        "provider_id",
        "message_id",
        "key",
        "happened_at",
        "came_at",
        "attempts",
        "next_attempt_at",
    )
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return [(None, {"fields": self.fields})]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the event with its run, if the person may see it: several people may send through one account."""
        event: Any = super().get_object(request, object_id, from_field)
        if event is not None:
            runs = Run.objects.filter(targets=event.run_target_id or 0)
            event.visible_run = access.visible(request.user, runs).first()
        return event

    @admin.display(description="came")
    def came(self, event: InboundEvent) -> str:
        return when(event.came_at, event.account.timezone)

    @admin.display(description="state")
    def state_badge(self, event: InboundEvent) -> SafeString:
        tone = TONES[InboundEvent.State(event.state)]
        return format_html('<span class="badge {}">{}</span>', tone, event.get_state_display())

    @admin.display(description="text")
    def said(self, event: InboundEvent) -> str:
        text = readable(event)
        return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]} …"

    @admin.display(description="text")
    def whole_text(self, event: InboundEvent) -> str:
        return readable(event) or "–"

    @admin.display(description="run")
    def run_target(self, event: InboundEvent) -> SafeString | str:
        run: Run | None = getattr(event, "visible_run", None)
        if run is None:
            return "–"
        return format_html('<a href="{}">{}</a>', reverse("admin:fanout_run_change", args=[run.pk]), run.title)


def readable(event: InboundEvent) -> str:
    try:
        return event.text
    except CredentialError:
        return UNREADABLE
