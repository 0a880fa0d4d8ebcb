"""The targets of a reminder in a list of their own, and the tags to choose them by."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from accounts import access
from accounts.inputs import as_ids
from fanout.admin.model_admin import OwnedAdmin
from fanout.admin.widgets import recipient_badges
from reminders import suppressions
from reminders.models import Recipient, Reminder, ReminderTarget

REMINDER_FILTER = "reminder__id__exact"
TAGS_FROM = 5_000

TAGS = """
SELECT tag, count(*) FROM (SELECT unnest(tags) AS tag FROM ({recipients}) AS newest) AS used
 GROUP BY tag ORDER BY count(*) DESC, tag LIMIT 100
"""


def proposed_tags(user: Any) -> dict[str, int]:
    """Return tags with their counts, from the newest recipients only: reading all of them would be slow."""
    rows = access.visible(user, Recipient.objects.all()).order_by("-id").values("tags")[:TAGS_FROM]
    sql, params = rows.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(TAGS.format(recipients=sql), params)
        return dict(cursor.fetchall())


@admin.register(ReminderTarget)
class ReminderTargetAdmin(OwnedAdmin):
    """The targets of one reminder; deleting a row removes the target."""

    owned_by = "reminder"
    list_display = ("position", "recipient", "address", "recipient_status")
    list_display_links = None
    list_select_related = ("recipient", "reminder")
    search_fields = ("recipient__name", "recipient__address")
    sortable_by = ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False  # reached from its reminder

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        return lookup == REMINDER_FILTER or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ReminderTarget]:
        held = suppressions.is_suppressed(timezone.now(), "recipient__address")
        rows: QuerySet[ReminderTarget] = super().get_queryset(request).annotate(suppressed=held)
        match = request.resolver_match
        listing = match is not None and match.url_name == "reminders_remindertarget_changelist"
        return rows.none() if listing and not request.GET.get(REMINDER_FILTER) else rows

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ReminderTarget]) -> None:
        may = [target.pk for target in queryset if self.has_delete_permission(request, target)]
        super().delete_queryset(request, ReminderTarget.objects.filter(pk__in=may))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        pk = request.GET.get(REMINDER_FILTER, "")
        reminder = access.visible(request.user, Reminder.objects.filter(pk__in=as_ids([pk]))).first()
        title = f"Targets of {reminder}" if reminder else "Targets"
        return super().changelist_view(request, {"title": title} | (extra_context or {}))

    @admin.display(description="address")
    def address(self, target: ReminderTarget) -> str:
        return target.recipient.address

    @admin.display(description="status")
    def recipient_status(self, target: ReminderTarget) -> SafeString:
        return recipient_badges(target.recipient, getattr(target, "suppressed", False))
