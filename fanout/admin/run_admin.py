"""Activity: the run list, the run page, its buttons, and offloading to another account."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from accounts import access
from accounts.inputs import as_ids
from accounts.models import Account
from fanout.admin.list_actions import Question, ask_once, attempt, back, confirmed, do_each, tell
from fanout.admin.model_admin import ButtonsAdmin
from fanout.admin.run_list import (
    FORM_FILTERS,
    PillFilter,
    expected_end,
    filter_choices,
    pills,
    run_actions,
    search_runs,
    with_expected_end,
)
from fanout.admin.run_page import live_part
from fanout.admin.run_status import (
    BY_NAME,
    buttons_for,
    eta,
    my_zone,
    read_going,
    read_sender_accounts,
    sender_links,
    status_with_reason,
)
from fanout.models import Run
from fanout.models.trail import note
from fanout.ops import exports
from fanout.plans import queue
from fanout.plans.offloads import FORECASTS, accounts_for, can_offload, offload_forecasts
from fanout.runs import controls, corrections
from fanout.runs.controls import retry_failed
from fanout.runs.progress import RunProgress
from fanout.templatetags.crier import progress as progress_of
from fanout.templatetags.crier import when

MOST_OFFLOADED = 200
SEND_AGAIN = "Send again to the selected recipients? Those who did get it will get it twice."


@admin.action(description="Offload to another account …", permissions=["change"])
def offload_selected(model_admin: RunAdmin, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse:
    ids = ",".join(str(pk) for pk in queryset.values_list("pk", flat=True)[:MOST_OFFLOADED])
    return HttpResponseRedirect(f"{reverse('admin:fanout_run_offload')}?runs={ids}")


@admin.register(Run)
class RunAdmin(ButtonsAdmin):
    list_display = ("run", "status_badge", "going_out", "rate", "expected", "started", "sender", "buttons")
    list_display_links = None
    list_name = "Activity"
    list_filter = (PillFilter, *FORM_FILTERS)
    list_select_related = ("account",)
    search_fields = ("title",)
    sortable_by = ("run", "going_out", "started", "sender")
    actions = [*run_actions(), offload_selected]
    change_list_template = "admin/fanout/run/change_list.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    # --- the list ---------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        # The frozen parts may be long, and a list does not show them.
        rows: QuerySet[Run] = super().get_queryset(request)
        return rows.defer("parts", "reply_parts")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        rows = changes.result_list = list(changes.result_list)
        read_going(rows, request.user, timezone.now())
        accounts = read_sender_accounts(rows)
        for row in rows:
            row.sender_names = sender_links(row, accounts)
        return changes

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        runs = access.visible(request.user, Run.objects.all())
        context = {"title": "Activity", "pills": pills(request, runs), "filters": filter_choices(request)}
        context |= extra_context or {}
        return super().changelist_view(request, context)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        term = search_term.strip()
        return (search_runs(request.user, queryset, term) if term else queryset), False

    @admin.display(description="reminder", ordering="title")
    def run(self, run: Run) -> SafeString:
        url = reverse("admin:fanout_run_change", args=[run.pk])
        return format_html('<a class="row-title" href="{}">{}</a>', url, run.title)

    @admin.display(description="status")
    def status_badge(self, run: Any) -> SafeString:
        return status_with_reason(run, run.going)

    @admin.display(description="sent", ordering="sent")
    def going_out(self, run: Run) -> SafeString:
        return progress_of(run)

    @admin.display(description="rate")
    def rate(self, run: Any) -> str:
        going: RunProgress = run.going
        return going.rate

    @admin.display(description="done")
    def expected(self, run: Any) -> SafeString | str:
        return eta(run, run.going)

    @admin.display(description="started", ordering="scheduled_for")
    def started(self, run: Run) -> SafeString | str:
        if run.started_at is not None:
            return when(run.started_at, run.timezone)
        return format_html('– <span class="quiet">due</span> {}', when(run.scheduled_for, run.timezone))

    @admin.display(description="account", ordering="account")
    def sender(self, run: Any) -> SafeString:
        names: SafeString = run.sender_names
        return names

    @admin.display(description="", empty_value="")
    def buttons(self, run: Run) -> str:
        buttons = buttons_for(run, timezone.now(), rows_only=True)
        return render_to_string("admin/fanout/run/buttons.html", {"run": run, "buttons": buttons}) if buttons else ""

    # --- one run ----------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("offload/", wrap(self.offload_view), name="fanout_run_offload"),
            path("<int:pk>/live/", wrap(require_GET(self.live_view)), name="fanout_run_live"),
            path("<int:pk>/export/", wrap(require_GET(self.export_view)), name="fanout_run_export"),
            path("<int:pk>/do/<str:name>/", wrap(require_POST(self.do_view)), name="fanout_run_do"),
            path("<int:pk>/retry/", wrap(require_POST(self.retry_view)), name="fanout_run_retry"),
            path("<int:pk>/widen/", wrap(require_POST(self.widen_view)), name="fanout_run_widen"),
            path("<int:pk>/settle/", wrap(require_POST(self.settle_view)), name="fanout_run_settle"),
            *super().get_urls(),
        ]

    def seen_run(self, request: HttpRequest, pk: Any) -> Run:
        """Return the run, or 404 if the person may not see it, which does not reveal that it exists."""
        runs = Run.objects.select_related("account", "reminder", "owner", "answers", "offload__account")
        rows = access.visible(request.user, runs)
        run = rows.filter(pk__in=as_ids([str(pk)])).first()
        if run is None:
            raise Http404
        if not self.has_view_permission(request, run):
            raise PermissionDenied
        return run

    def own_run(self, request: HttpRequest, pk: int) -> Run:
        run = self.seen_run(request, pk)
        if not self.has_change_permission(request, run):
            raise PermissionDenied
        return run

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        run = self.seen_run(request, object_id)
        if request.method == "POST":  # a run is never edited, only acted on
            raise PermissionDenied
        return TemplateResponse(request, "admin/fanout/run/page.html", self._page(request, run) | {"title": run.title})

    def _others(self, request: HttpRequest, run: Run) -> list[Run]:
        runs = access.visible(request.user, Run.objects.filter(reminder_id=run.reminder_id, answers=None))
        return list(runs.exclude(pk=run.pk).defer("parts", "reply_parts")[:8])

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        run = self.seen_run(request, pk)
        return TemplateResponse(request, "admin/fanout/run/live.html", self._page(request, run))

    def _page(self, request: HttpRequest, run: Run) -> dict[str, Any]:
        acting = self.has_change_permission(request, run)
        return (
            self.admin_site.each_context(request)
            | live_part(run, request.user, timezone.now(), acting)
            | {
                "opts": self.opts,
                "others": self._others(request, run),
                "senders": sender_links(run, read_sender_accounts([run])),
            }
        )

    def do_view(self, request: HttpRequest, pk: int, name: str) -> HttpResponse:
        run, button = self.own_run(request, pk), BY_NAME.get(name)
        if button is None:
            raise Http404
        if button.confirm and not confirmed(request):
            question = Question(button.label, [run.title, button.confirm], button.yes, danger=button.tone == "danger")
            return ask_once(self, request, question, self._url(run))
        now = timezone.now()
        answer = attempt(lambda run: button.control(run, request.user, now), run)
        tell(request, with_expected_end(answer, now))
        if answer.run is not None and answer.run.pk != run.pk:
            return HttpResponseRedirect(self._url(answer.run))
        return back(request, self._url(run))

    def export_view(self, request: HttpRequest, pk: int) -> StreamingHttpResponse:
        """Download all targets of a run as CSV, or with ?only=failures those that were not delivered."""
        run, only_failures = self.seen_run(request, pk), request.GET.get("only") == "failures"
        note("exported", run, request.user, timezone.now(), "failures" if only_failures else "")
        filename = f"run-{run.pk}{'-failures' if only_failures else ''}.csv"
        return exports.csv_download(request, exports.run_lines(run, only_failures), filename)

    def retry_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Retry the failed targets with one kind of error."""
        run, kinds = self.own_run(request, pk), request.POST.getlist("kind")
        tell(request, attempt(lambda run: retry_failed(run, request.user, timezone.now(), kinds), run))
        return back(request, self._url(run))

    def widen_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Resume a paused run with a window that closes later today."""
        run, hour = self.own_run(request, pk), request.POST.get("until", "")
        until = int(hour) if hour.isdecimal() and len(hour) < 4 else 0
        tell(request, attempt(lambda run: controls.widen(run, until, request.user, timezone.now()), run))
        return back(request, self._url(run))

    def settle_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        run = self.own_run(request, pk)
        ids = as_ids(request.POST.getlist("target"))
        delivered = request.POST.get("verdict") == "delivered"
        if not delivered and not confirmed(request):
            question = Question("Send it again?", [run.title, SEND_AGAIN], "Send it again", danger=True)
            return ask_once(self, request, question, self._url(run))
        tell(
            request,
            attempt(lambda run: corrections.settle(run, ids, delivered, request.user, timezone.now()), run),
        )
        return back(request, self._url(run))

    def _url(self, run: Run) -> str:
        return reverse("admin:fanout_run_change", args=[run.pk])

    # --- offload ----------------------------------------------------------------------------------------

    def offload_view(self, request: HttpRequest) -> HttpResponse:
        """Offer accounts for the pending targets, with a forecast for each."""
        runs = self._chosen_runs(request)
        accounts = accounts_for(runs, request.user)
        if request.method == "POST":
            return self._offload(request, runs, accounts)
        shares = queue.run_shares(runs[0]) if len(runs) == 1 else queue.pending_shares(runs)
        context = self.admin_site.each_context(request) | {
            "title": "Offload to another account",
            "opts": self.opts,
            "runs": runs,
            "ids": request.GET.get("runs", ""),
            "pending": sum(run.pending for run in runs),
            "paused": any(run.status == Run.Status.PAUSED for run in runs),
            "now_via": queue.shares_in_words(shares),
            "choices": [
                (account, forecast, queue.shares_in_words(queue.shares_after_offload(shares, account)))
                for account, forecast in self._choices(request, runs, accounts)
            ],
        }
        return TemplateResponse(request, "admin/fanout/run/offload.html", context)

    def _choices(self, request: HttpRequest, runs: list[Run], accounts: list[Account]) -> list[tuple[Account, Any]]:
        """Forecast the most idle accounts; each takes a few queries, so the others are forecast on request."""
        asked = request.GET.get("account")
        accounts.sort(key=lambda account: str(account.pk) != asked)
        first, others = accounts[:FORECASTS], accounts[FORECASTS:]
        expected = offload_forecasts(runs, first, request.user, timezone.now(), my_zone())
        return [*expected, *((account, None) for account in others)]

    def _chosen_runs(self, request: HttpRequest) -> list[Run]:
        numbers = (request.POST if request.method == "POST" else request.GET).get("runs", "")
        ids = as_ids(numbers.split(","))[:MOST_OFFLOADED]
        runs = list(access.visible(request.user, Run.objects.filter(pk__in=ids)).select_related("account"))
        if not runs:
            raise Http404
        if not all(self.has_change_permission(request, run) for run in runs):
            raise PermissionDenied
        return [run for run in runs if can_offload(run)]

    def _offload(self, request: HttpRequest, runs: list[Run], accounts: list[Account]) -> HttpResponse:
        chosen = next((account for account in accounts if str(account.pk) == request.POST.get("account")), None)
        if chosen is None:
            raise PermissionDenied
        now, and_resume = timezone.now(), "stay_paused" not in request.POST

        def control(run: Run) -> controls.ControlResult:
            return corrections.offload(run, chosen, request.user, now, and_resume)

        if len(runs) == 1:
            answer = attempt(control, runs[0])
            tell(request, with_expected_end(answer, now))
            return HttpResponseRedirect(self._url(runs[0]))
        do_each(request, runs, control, f"Offloaded to {chosen}", more=lambda answers: self._left(runs, answers, now))
        return HttpResponseRedirect(reverse("admin:fanout_run_changelist"))

    def _left(self, runs: list[Run], answers: list[controls.ControlResult], now: datetime) -> str:
        """Return who sends the rest of these runs now, and the expected end, in words."""
        left = queue.shares_in_words(queue.pending_shares(runs))
        return f"Left to send: {left or 'nothing'}. {expected_end(answers, now)}"
