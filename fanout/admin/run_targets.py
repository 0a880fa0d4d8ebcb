"""Run targets, read-only. The table is large, so lists are filtered by a run or a recipient."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import PermissionDenied
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.inputs import as_id
from fanout.admin.list_actions import do_each
from fanout.admin.model_admin import CappedPaginator, OwnedAdmin, ShallowPaginator
from fanout.admin.run_page import error_groups
from fanout.admin.widgets import badge
from fanout.inbound.person_timeline import came_back
from fanout.models import Run, RunTarget
from fanout.models.trail import note
from fanout.ops import exports
from fanout.plans.plan import delay_reason, planned_time
from fanout.runs import corrections, texts
from fanout.templatetags.crier import when
from reminders import erasure
from reminders.models import Recipient

RUN_FILTER = "run__id__exact"
MOST_CAUSE = 60  # characters of a chosen cause that the run does not have any more


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


def run_of(request: HttpRequest) -> Run | None:
    """Return the run whose targets are listed, if the person may see it."""
    pk = as_id(request.GET.get(RUN_FILTER, ""))
    return access.visible(request.user, Run.objects.filter(pk=pk)).first() if pk is not None else None


class ResultFilter(admin.SimpleListFilter):
    """What came back, in the steps of the run's funnel."""

    title = "result"
    parameter_name = "result"
    CAME_BACK = {
        "received": Q(delivered_at__isnull=False),
        "read": Q(read_at__isnull=False),
        "unread": Q(status=RunTarget.Status.SENT, read_at=None),
        "replied": Q(replied_at__isnull=False),
        "opted_out": Q(opted_out_at__isnull=False),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name.replace("_", " ").capitalize()) for name in self.CAME_BACK]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RunTarget]) -> QuerySet[RunTarget]:
        wanted = self.CAME_BACK.get(self.value() or "")
        return queryset.filter(wanted) if wanted is not None else queryset


class CauseFilter(admin.SimpleListFilter):
    """Why targets failed or were skipped; offered for the list of one run."""

    title = "cause"
    parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        run = run_of(request)
        groups = error_groups(run) if run is not None and (run.failed or run.skipped) else []
        causes = {group["cause"]: group["words"] for group in groups if group["cause"]}
        chosen = request.GET.get(self.parameter_name, "")
        return list(({chosen: chosen[:MOST_CAUSE]} | causes if chosen else causes).items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[RunTarget]) -> QuerySet[RunTarget]:
        cause = self.value()
        if not cause:
            return queryset
        failed, skipped = RunTarget.Status.FAILED, RunTarget.Status.SKIPPED
        return queryset.filter(Q(status=failed, error_kind=cause) | Q(status=skipped, error=cause))


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
        "came_back",
        "reason",
        "of_run",
    )
    fieldsets = (
        (None, {"fields": ("name", "of_run", "sender", "status_badge", "reason")}),
        ("Sending", {"fields": ("place", "parts", "attempts", "planned", "settled", "latency", "provider_id")}),
        ("What came back", {"fields": ("received", "read", "replied", "opted_out")}),
    )
    change_list_template = "admin/fanout/runtarget/change_list.html"
    list_display_links = None
    # Without choices a filter would run SELECT DISTINCT; the status has choices, the run comes by link.
    list_filter = ("status", ResultFilter, CauseFilter)
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
        """Leave out the run's name in the list of one run, and the place in a run over all of them."""
        return self.list_display[:-1] if request.GET.get(RUN_FILTER) else self.list_display[1:]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return flatten_fieldsets(self.fieldsets)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        target: Any = super().get_object(request, object_id, from_field)
        if target is not None:
            self._note_who_opens(request, [target])
        return target

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
        run = run_of(request)
        title = f"Targets of {run.title}" if run else "Unconfirmed targets of all runs"
        return super().changelist_view(request, {"title": title, "of_run": run} | (extra_context or {}))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read which of the page's recipients the person may open: a run may be shared without its list."""
        changes = super().get_changelist_instance(request)
        changes.result_list = list(changes.result_list)
        self._note_who_opens(request, changes.result_list)
        return changes

    def _note_who_opens(self, request: HttpRequest, rows: list[Any]) -> None:
        recipients = Recipient.objects.filter(pk__in={target.recipient_id for target in rows})
        seen = set(erasure.present(access.visible(request.user, recipients)).values_list("pk", flat=True))
        for target in rows:
            target.opens_person = target.recipient_id in seen

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(require_GET(self.export_view))
        return [path("export/", export, name="fanout_runtarget_export"), *super().get_urls()]

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """Download the filtered list of one run as CSV. As in the list, an invalid filter is ignored."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        run = run_of(request)
        if run is None:
            return HttpResponseRedirect(reverse("admin:fanout_runtarget_changelist"))
        try:
            chosen = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(f"{reverse('admin:fanout_runtarget_changelist')}?{ERROR_FLAG}=1")
        note("exported", run, request.user, timezone.now(), "a part of its targets")
        return exports.csv_download(request, exports.run_lines(run, chosen=chosen), f"run-{run.pk}-part.csv")

    @admin.display(description="no.")
    def place(self, target: RunTarget) -> int:
        return target.position

    @admin.display(description="recipient")
    def name(self, target: RunTarget) -> SafeString | str:
        """Return the name with the address at the time of sending, which the recipient may no longer have."""
        name, address = target.recipient.name or target.address, target.address if target.recipient.name else ""
        url = reverse("admin:reminders_recipient_change", args=[target.recipient_id])
        shown = (
            format_html('<a href="{}#timeline">{}</a>', url, name) if getattr(target, "opens_person", False) else name
        )
        return format_html('{} <span class="quiet address">{}</span>', shown, address) if address else shown

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

    @admin.display(description="came back")
    def came_back(self, target: RunTarget) -> SafeString | str:
        """Return the steps in words, with the time of the last; the person's timeline has the others."""
        steps = came_back(target)
        if not steps:
            return "–"
        return format_html("{} {}", ", ".join(word for word, _ in steps), when(steps[-1][1], target.run.timezone))

    @admin.display(description="account")
    def sender(self, target: RunTarget) -> str:
        return target.account.label

    @admin.display(description="received")
    def received(self, target: RunTarget) -> str:
        return when(target.delivered_at, target.run.timezone)

    @admin.display(description="read")
    def read(self, target: RunTarget) -> str:
        return when(target.read_at, target.run.timezone)

    @admin.display(description="replied")
    def replied(self, target: RunTarget) -> str:
        return when(target.replied_at, target.run.timezone)

    @admin.display(description="opted out")
    def opted_out(self, target: RunTarget) -> str:
        return when(target.opted_out_at, target.run.timezone)

    @admin.display(description="reason")
    def reason(self, target: RunTarget) -> str:
        if not target.error_kind:
            return texts.left_out(target.error) if target.error else "–"
        words = texts.error(target.error_kind)
        return f"{words}: {target.error}" if target.error else words

    @admin.display(description="run")
    def of_run(self, target: RunTarget) -> SafeString:
        return format_html(
            '<a href="{}">{}</a>', reverse("admin:fanout_run_change", args=[target.run_id]), target.run.title
        )
