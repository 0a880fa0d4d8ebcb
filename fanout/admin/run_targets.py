"""Run targets, read-only. The table is large, so lists are filtered by a run or a recipient."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.inputs import as_id
from fanout.admin.list_actions import do_each
from fanout.admin.model_admin import CappedPaginator, OwnedAdmin, ShallowPaginator
from fanout.admin.widgets import badge
from fanout.models import Run, RunTarget
from fanout.plans.plan import delay_reason, planned_time
from fanout.runs import corrections, texts
from fanout.templatetags.crier import when
from reminders.models import Recipient

RUN_FILTER = "run__id__exact"


def settle_action(delivered: bool, name: str, description: str) -> Callable[..., None]:
    @admin.action(description=description, permissions=["change"])
    def action(model_admin: RunTargetAdmin, request: HttpRequest, queryset: QuerySet[RunTarget]) -> None:
        now, by_run = timezone.now(), defaultdict(list)
        for pk, run_id in queryset.values_list("pk", "run_id"):
            by_run[run_id].append(pk)
        runs = access.visible(request.user, Run.objects.filter(pk__in=by_run))
        do_each(
            request,
            runs,
            lambda run: corrections.settle(run, by_run[run.pk], delivered, request.user, now),
            "Runs settled",
        )

    action.__name__ = name
    return action


def _recipients(user: Any, term: str) -> list[int]:
    """Return the ids of the recipients with this address, in any spelling."""
    try:
        address = normalise(guess_kind(term), term)
    except AddressError:
        return []
    return list(access.visible(user, Recipient.objects.filter(address=address)).values_list("pk", flat=True)[:10])


@admin.register(RunTarget)
class RunTargetAdmin(OwnedAdmin):
    owned_by = "run"
    list_display = (
        "place",
        "name",
        "status_badge",
        "parts",
        "attempts",
        "planned",
        "settled",
        "latency",
        "reason",
        "of_run",
    )
    change_list_template = "admin/fanout/runtarget/change_list.html"
    list_display_links = None
    # Without choices a filter would run SELECT DISTINCT; the status has choices, the run comes by link.
    list_filter = ("status",)
    # Fetched for the page's rows only: joined, they would be sorted along with every target of the run.
    list_select_related = ()
    search_fields = ("address",)
    search_help_text = "Within a run: part of an address. Over all runs: the whole address"
    sortable_by = ()
    actions = (
        settle_action(True, "was_delivered", "Unconfirmed: it was delivered"),
        settle_action(False, "send_again", "Unconfirmed: send it again"),
    )

    def get_list_display(self, request: HttpRequest) -> Any:
        """Leave out the run's name in the list of one run."""
        return self.list_display[:-1] if request.GET.get(RUN_FILTER) else self.list_display

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [field.name for field in self.opts.fields]

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        return lookup == RUN_FILTER or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[RunTarget]:
        runs = Run.objects.defer("parts")
        rows = super().get_queryset(request).prefetch_related(Prefetch("run", runs), "recipient")
        looks_through = request.GET.get(RUN_FILTER) or request.GET.get("q")
        if (
            request.resolver_match is not None
            and request.resolver_match.url_name == "fanout_runtarget_changelist"
            and not looks_through
        ):
            # Over all runs only unconfirmed targets, which have a partial index.
            return rows.filter(status=RunTarget.Status.UNCONFIRMED).order_by("-claimed_at")
        return rows

    def get_ordering(self, request: HttpRequest) -> Any:
        return ["position", "id"] if request.GET.get(RUN_FILTER) else ["-run_id"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[RunTarget], search_term: str
    ) -> tuple[QuerySet[RunTarget], bool]:
        if not search_term or request.GET.get(RUN_FILTER):
            return super().get_search_results(request, queryset, search_term)
        # By the recipient's index, never through the whole table.
        return queryset.filter(recipient__in=_recipients(request.user, search_term)), False

    def get_paginator(self, request: HttpRequest, *args: Any, **kwargs: Any) -> CappedPaginator:
        paginator = CappedPaginator if request.GET.get(RUN_FILTER) else ShallowPaginator
        return paginator(*args, **kwargs)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        run = None
        if (pk := as_id(request.GET.get(RUN_FILTER, ""))) is not None:
            run = access.visible(request.user, Run.objects.filter(pk=pk)).first()
        title = f"Targets of {run.title}" if run else "Unconfirmed targets of all runs"
        return super().changelist_view(request, {"title": title, "of_run": run} | (extra_context or {}))

    @admin.display(description="no.")
    def place(self, target: RunTarget) -> int:
        return target.position

    @admin.display(description="recipient")
    def name(self, target: RunTarget) -> SafeString | str:
        """Return the name with the address at the time of sending, which the recipient may no longer have."""
        if not target.recipient.name:
            return target.address
        return format_html('{} <span class="quiet address">{}</span>', target.recipient.name, target.address)

    @admin.display(description="status")
    def status_badge(self, target: RunTarget) -> SafeString:
        return badge(target)

    @admin.display(description="parts sent")
    def parts(self, target: RunTarget) -> int:
        return target.parts_sent

    @admin.display(description="planned for")
    def planned(self, target: RunTarget) -> SafeString | str:
        at, reason = when(planned_time(target, target.run), target.run.timezone), delay_reason(target, target.run)
        return format_html('{} <span class="quiet">{}</span>', at, reason) if reason else at

    @admin.display(description="settled")
    def settled(self, target: RunTarget) -> str:
        return when(target.settled_at or target.next_attempt_at, target.run.timezone)

    @admin.display(description="answered in")
    def latency(self, target: RunTarget) -> str:
        return "–" if target.latency_ms is None else f"{target.latency_ms} ms"

    @admin.display(description="reason")
    def reason(self, target: RunTarget) -> str:
        if not target.error_kind:
            return target.error or "–"
        words = texts.error(target.error_kind)
        return f"{words}: {target.error}" if target.error else words

    @admin.display(description="run")
    def of_run(self, target: RunTarget) -> SafeString:
        return format_html(
            '<a href="{}">{}</a>', reverse("admin:fanout_run_change", args=[target.run_id]), target.run.title
        )
