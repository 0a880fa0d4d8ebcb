"""Results over time: what was sent and what came back, per day, account and reminder; and two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts import access
from accounts.inputs import as_id
from accounts.models import Account
from fanout.admin.widgets import Chart, line_chart
from fanout.lanes import results
from fanout.lanes.results import Result, Span
from fanout.models import Run
from fanout.models.trail import note
from fanout.ops.exports import csv_download, csv_lines
from reminders.models import Reminder

WEEKS = (4, 8, 13, 26)
DAY = timedelta(days=1)
RUNS_OFFERED = 30
#: the numbers in their order, as tables name them
COLUMNS = (
    ("sent", "Sent"),
    ("received", "Received"),
    ("read", "Read"),
    ("replied", "Replied"),
    ("opted_out", "Opted out"),
    ("failed", "Failed"),
)
CSV_COLUMNS = ("day", *(name for name, _ in COLUMNS))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: a day, an account or a reminder, and the link to its own results."""

    label: str
    url: str
    result: Result

    @property
    def cells(self) -> list[tuple[str, int]]:
        return [(name, getattr(self.result, name)) for name, _ in COLUMNS]


@require_GET
def results_page(request: HttpRequest) -> HttpResponseBase:
    _require(request)
    wanted = span_in(request)
    days = results.by_day(wanted)
    if "csv" in request.GET:
        return _export(request, days)
    accounts, reminders = results.by_account(wanted), results.by_reminder(wanted)
    whole = results.whole(days)
    context = {
        "title": "Results over time",
        "days": [Line(f"{day:%a %d %b}", "", one) for day, one in reversed(days.items())],
        "whole": [(label, getattr(whole, name)) for name, label in COLUMNS],
        "columns": COLUMNS,
        "charts": charts(days),
        "accounts": _lines(request, "account", accounts, _labels(request.user, Account, accounts, "label")),
        "reminders": _lines(request, "reminder", reminders, _labels(request.user, Reminder, reminders, "title")),
        "weeks": [(n, _link(request, weeks=str(n)), n == weeks_in(request)) for n in WEEKS],
        "narrowed": narrowed(request, wanted),
        "export": _link(request, csv="1"),
    }
    return TemplateResponse(request, "crier/results.html", admin.site.each_context(request) | context)


def _require(request: HttpRequest) -> None:
    if not request.user.has_perm("fanout.view_run"):
        raise PermissionDenied


def weeks_in(request: HttpRequest) -> int:
    asked = as_id(request.GET.get("weeks", ""))
    return asked if asked in WEEKS else WEEKS[0]


def span_in(request: HttpRequest) -> Span:
    """Return the days and filters that the page's address asks for, of the runs that the person may see."""
    user = request.user
    return results.span(
        weeks_in(request),
        timezone.localdate(),
        runs=None if user.is_superuser else access.visible(user, Run.objects.all()),
        account=as_id(request.GET.get("account", "")),
        reminder=as_id(request.GET.get("reminder", "")),
    )


def charts(days: Mapping[date, Result]) -> list[Chart]:
    """Draw what went out and arrived, and, by a scale of its own, what came back."""
    moments = {day: datetime.combine(day, time(), UTC) for day in days}
    starts, ends = min(moments.values()), max(moments.values()) + DAY

    def chart(title: str, names: Sequence[str]) -> Chart:
        labels = dict(COLUMNS)
        counts = {labels[name]: {moments[day]: getattr(one, name) for day, one in days.items()} for name in names}
        return line_chart(title, counts, starts, ends, DAY, "UTC", "%d %b", totals=True)

    return [
        chart("Messages per day", ("sent", "received", "read")),
        chart("What came back per day", ("replied", "opted_out", "failed")),
    ]


def _labels(user: Any, model: Any, ids: Mapping[int, Result], name: str) -> dict[int, str]:
    """Return the names that the person may see; a run may be shared without its account."""
    rows = access.visible(user, model.objects.filter(pk__in=ids))
    return dict(rows.values_list("pk", name))


def _lines(request: HttpRequest, kind: str, counted: Mapping[int, Result], labels: Mapping[int, str]) -> list[Line]:
    return [
        Line(labels.get(pk, f"{kind} {pk}"), _link(request, **{kind: str(pk)}), result)
        for pk, result in counted.items()
    ]


def narrowed(request: HttpRequest, wanted: Span) -> list[tuple[str, str]]:
    """Return each chosen filter in words, with the link that takes it off."""
    chosen = []
    for kind, pk, model, name in (
        ("account", wanted.account, Account, "label"),
        ("reminder", wanted.reminder, Reminder, "title"),
    ):
        if pk is not None:
            words = _labels(request.user, model, {pk: Result()}, name).get(pk, f"{kind} {pk}")
            chosen.append((f"{kind.capitalize()}: {words}", _link(request, **{kind: ""})))
    return chosen


def _link(request: HttpRequest, **changes: str) -> str:
    asked = {name: request.GET.get(name, "") for name in ("weeks", "account", "reminder")}
    return f"?{urlencode({name: value for name, value in (asked | changes).items() if value})}"


def _export(request: HttpRequest, days: Mapping[date, Result]) -> HttpResponseBase:
    note("exported results", None, request.user, timezone.now())
    rows = ([day.isoformat(), *(getattr(one, name) for name, _ in COLUMNS)] for day, one in days.items())
    return csv_download(request, csv_lines(CSV_COLUMNS, rows), "results.csv")


# --- two runs side by side --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """A number of both runs, each with its part of what was sent, and the difference in percentage points."""

    label: str
    first: int
    first_share: float
    second: int
    second_share: float

    @property
    def difference(self) -> str:
        return f"{100 * (self.second_share - self.first_share):+.1f}"


@require_GET
def compare_page(request: HttpRequest) -> HttpResponse:
    """Show two runs side by side: their numbers, and how they went day by day after their first one."""
    _require(request)
    runs = access.visible(request.user, Run.objects.filter(answers=None, is_test=False)).defer("parts", "reply_parts")
    asked = [as_id(request.GET.get(name, "")) for name in ("a", "b")]
    found = {run.pk: run for run in runs.filter(pk__in=[pk for pk in asked if pk is not None])}
    pair = [found[pk] for pk in asked if pk in found]
    counted = results.of_runs([run.pk for run in pair]) if len(pair) == 2 else {}
    context = {
        "title": "Compare two runs",
        "asked": [pk or "" for pk in asked],
        "missing": [pk for pk in asked if pk is not None and pk not in found],
        "pair": pair if counted else [],
        "rows": compared(*(results.whole(counted[run.pk]) for run in pair)) if counted else [],
        "charts": [run_chart(run, counted[run.pk], _length(counted)) for run in pair] if counted else [],
        "offered": runs.order_by("-scheduled_for", "-pk")[:RUNS_OFFERED],
    }
    return TemplateResponse(request, "crier/compare.html", admin.site.each_context(request) | context)


def compared(first: Result, second: Result) -> list[Compared]:
    return [
        Compared(label, getattr(first, name), first.share(name), getattr(second, name), second.share(name))
        for name, label in COLUMNS
    ]


def _length(counted: Mapping[int, Mapping[date, Result]]) -> int:
    """Return the days of the longer run, at least a few: charts of both have the same scale of time."""
    spans = [(max(days) - min(days)).days + 1 for days in counted.values() if days]
    return min(max([*spans, 4]), max(WEEKS) * 7)


def run_chart(run: Run, days: Mapping[date, Result], length: int) -> Chart:
    first = min(days, default=run.scheduled_for.date())
    filled = {day: days.get(day, Result()) for day in (first + timedelta(days=n) for n in range(length))}
    starts = datetime.combine(first, time(), UTC)
    counts = {
        label: {datetime.combine(day, time(), UTC): getattr(one, name) for day, one in filled.items()}
        for name, label in COLUMNS[:4]
    }
    return line_chart(f"{run.title}, per day", counts, starts, starts + length * DAY, DAY, "UTC", "%d %b", totals=True)
