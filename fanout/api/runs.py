"""Runs: their counts, expected end and reason to wait, their targets, and all controls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from accounts import tokens
from accounts.models import Account, ApiToken
from fanout.api.conventions import (
    Answer,
    Caller,
    Done,
    Id,
    Line,
    Needs,
    PageQuery,
    Paging,
    Scope,
    caller_of,
    cut,
    page_of,
    read_cursor,
    require,
)
from fanout.models import Event, Run, RunTarget
from fanout.ops import exports
from fanout.plans.forecast import forecast_run
from fanout.plans.plan import delay_reason, planned_time
from fanout.runs import controls, corrections
from fanout.runs.controls import ControlResult
from fanout.runs.message_2 import listed
from fanout.runs.progress import NO_PROGRESS, RunProgress, progress_of
from fanout.runs.why import short_why, why_run

router = Router()
READS = Needs(Scope.READ, "fanout.view_run")
CONTROLS = Needs(Scope.SEND, "fanout.change_run")
#: runs on a page: each has numbers and words of its own, and 500 would take longer than a read may
MOST_RUNS = 200
#: targets that one call settles
MOST_SETTLED = 10_000

RunStatus = Literal[
    "preparing", "queued", "running", "waiting", "paused", "success", "partial", "failed", "skipped", "canceled"
]
TargetStatus = Literal["pending", "sending", "sent", "failed", "skipped", "unconfirmed"]


class Counts(Answer):
    total: int
    pending: int
    sending: int
    sent: int
    failed: int
    skipped: int
    unconfirmed: int


class RunOut(Answer):
    id: int
    title: str
    reminder: int
    account: int = Field(description="Its first sender")
    answers: int | None = Field(description="Of a Message 2: the run that people replied to")
    status: RunStatus
    pause_reason: str
    summary: str = Field(description="How it ended, or why it is paused, in a sentence")
    counts: Counts
    per_minute: float | None = Field(description="Deliveries per minute of the last minutes")
    expected_end: datetime | None
    waits_for: str = Field(description="What it waits for, in words; the operation `why` says more")
    scheduled_for: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waiting_until: datetime | None
    resume_at: datetime | None
    window_closes_at: datetime
    timezone: str
    archived: bool


class RunPage(Answer):
    items: list[RunOut]
    next: str | None


class RunDone(Done):
    run: RunOut


def run_out(run: Run, going: RunProgress = NO_PROGRESS) -> dict[str, Any]:
    """Return the run with the same numbers and words as the list of runs and `manage.py runs`."""
    same = ("title", "status", "pause_reason", "scheduled_for", "started_at", "finished_at", "waiting_until")
    return {
        "id": run.pk,
        **{name: getattr(run, name) for name in (*same, "resume_at", "window_closes_at", "timezone", "archived")},
        "reminder": run.reminder_id,
        "account": run.account_id,
        "answers": run.answers_id,
        "summary": run.error_summary,
        "counts": {name: getattr(run, name) for name in Counts.model_fields},
        "per_minute": going.per_minute,
        "expected_end": going.ends_at,
        "waits_for": short_why(run, going.behind),
    }


def runs_out(runs: Sequence[Run], caller: Caller) -> list[dict[str, Any]]:
    going = progress_of(runs, timezone.now(), caller.user, team=caller.token.team_id)
    return [run_out(run, going.get(run.pk, NO_PROGRESS)) for run in runs]


def find_run(request: HttpRequest, pk: int) -> Run:
    return caller_of(request).find(Run.objects.select_related("account", "reminder"), pk, "run")


def _done(request: HttpRequest, answer: ControlResult, run: Run) -> dict[str, Any]:
    """Return what a control did, with the run as it is now."""
    require(answer)
    fresh = find_run(request, (answer.run or run).pk)
    return {"text": answer.text, "run": runs_out([fresh], caller_of(request))[0]}


# --- reading ----------------------------------------------------------------------------------------------------


class RunQuery(PageQuery):
    limit: int = Field(100, ge=1, le=MOST_RUNS, description="Items on a page")
    status: list[RunStatus] = []
    account: Id | None = None
    reminder: Id | None = None
    archived: bool = False
    live: bool = Field(False, description="Only runs that send by themselves, now or at a planned resume")


@router.get("", response=RunPage, auth=READS)
def list_runs(request: HttpRequest, query: Query[RunQuery]) -> Any:
    """List runs, newest first. Message 2 is listed where it waits for an operator."""
    caller = caller_of(request)
    runs: QuerySet[Run] = caller.visible(Run.objects.defer("parts", "reply_parts"))
    if query.live:
        runs = runs.filter(controls.by_itself())
    else:
        runs = listed(runs.filter(archived=query.archived))
    if query.status:
        runs = runs.filter(status__in=query.status)
    if query.account:
        runs = runs.filter(lanes__contains=[query.account])
    if query.reminder:
        runs = runs.filter(reminder=query.reminder)
    items, following = page_of(runs, query)
    return {"items": runs_out(items, caller), "next": following}


@router.get("/{int:run_id}", response=RunOut, auth=READS)
def get_run(request: HttpRequest, run_id: int) -> Any:
    """Return one run with its counts and expected end."""
    return runs_out([find_run(request, run_id)], caller_of(request))[0]


class WhyOut(Answer):
    why: str
    next_send_at: datetime | None


@router.get("/{int:run_id}/why", response=WhyOut, auth=READS)
def why(request: HttpRequest, run_id: int) -> Any:
    """Say which limit holds the run back, and when the next message goes out."""
    caller = caller_of(request)
    line = why_run(find_run(request, run_id), timezone.now(), user=caller.user, team=caller.token.team_id)
    return {"why": line.text, "next_send_at": line.next_send_at}


class DayOut(Answer):
    date: str
    targets: int
    messages: int
    ends_at: datetime


class ForecastOut(Answer):
    sentence: str
    starts_at: datetime | None
    ends_at: datetime | None
    fits: bool = Field(description="True if it ends before today's window closes")
    fits_count: int
    bound_by: str = Field(description="The limit that is decisive")
    days: list[DayOut]


def forecast_out(forecast: Any) -> dict[str, Any]:
    names = ("sentence", "starts_at", "ends_at", "fits", "fits_count", "bound_by")
    days = [
        {"date": day.date.isoformat(), "targets": day.targets, "messages": day.messages, "ends_at": day.ends_at}
        for day in forecast.days
    ]
    return {**{name: getattr(forecast, name) for name in names}, "days": days}


@router.get("/{int:run_id}/forecast", response=ForecastOut, auth=READS)
def forecast(request: HttpRequest, run_id: int) -> Any:
    """Forecast the rest of a run."""
    return forecast_out(forecast_run(find_run(request, run_id), timezone.now()))


class TargetOut(Answer):
    id: int
    position: int
    recipient: int
    address: str
    name: str
    account: int
    status: TargetStatus
    parts_sent: int
    attempts: int
    planned_for: datetime | None
    delayed_because_of: str
    claimed_at: datetime | None
    settled_at: datetime | None
    received_at: datetime | None = Field(description="The provider's receipt")
    read_at: datetime | None
    replied_at: datetime | None
    provider_id: str
    error_kind: str
    error: str


class TargetPage(Answer):
    items: list[TargetOut]
    next: str | None


def target_out(target: RunTarget, run: Run) -> dict[str, Any]:
    same = ("position", "address", "status", "parts_sent", "attempts", "claimed_at", "settled_at", "read_at")
    return {
        "id": target.pk,
        **{name: getattr(target, name) for name in (*same, "replied_at", "provider_id", "error_kind", "error")},
        "recipient": target.recipient_id,
        "name": target.recipient.name,
        "account": target.account_id,
        "planned_for": planned_time(target, run),
        "delayed_because_of": delay_reason(target, run),
        "received_at": target.delivered_at,
    }


class TargetQuery(PageQuery):
    status: list[TargetStatus] = []


@router.get("/{int:run_id}/targets", response=TargetPage, auth=READS)
def list_targets(request: HttpRequest, run_id: int, query: Query[TargetQuery]) -> Any:
    """List the targets of a run in their order, with outcome, receipts and replies."""
    run = find_run(request, run_id)
    after = read_cursor(query.cursor, 2)
    found = _targets(run, query.status or list(RunTarget.Status.values), after, query.limit + 1)
    items, following = cut(found, query.limit, lambda target: [target.position, target.pk])
    return {"items": [target_out(target, run) for target in items], "next": following}


def _targets(run: Run, statuses: Sequence[str], after: Sequence[int], most: int) -> list[RunTarget]:
    """Read the next targets: a few of each status, by the index `target_run_status`, and the first of all these."""
    each = []
    for status in dict.fromkeys(statuses):
        rows = RunTarget.objects.filter(run=run, status=status)
        if after:
            rows = rows.filter(position__gte=after[0]).exclude(position=after[0], pk__lte=after[1])
        each.append(rows.order_by("position", "pk").values_list("position", "pk")[:most])
    pairs = sorted(pair for rows in each for pair in rows)[:most]
    found = RunTarget.objects.select_related("recipient").in_bulk([pk for _, pk in pairs])
    return [found[pk] for _, pk in pairs if pk in found]


class EventOut(Answer):
    at: datetime
    verb: str
    detail: str
    actor: str | None


class EventPage(Answer):
    items: list[EventOut]
    next: str | None


def events_out(rows: QuerySet[Event], paging: PageQuery) -> dict[str, Any]:
    items, following = page_of(rows.select_related("actor"), paging, newest_first=False)
    lines = [
        {"at": one.at, "verb": one.verb, "detail": one.detail, "actor": one.actor.get_username() if one.actor else None}
        for one in items
    ]
    return {"items": lines, "next": following}


@router.get("/{int:run_id}/timeline", response=EventPage, auth=READS)
def timeline(request: HttpRequest, run_id: int, paging: Paging) -> Any:
    """List what happened to a run, and who did it."""
    return events_out(Event.objects.filter(run=find_run(request, run_id)), paging)


CSV: dict[str, Any] = {"responses": {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}}


@router.get("/{int:run_id}/targets.csv", response=None, auth=READS, openapi_extra=CSV)
def export(request: HttpRequest, run_id: int, only_failures: bool = False) -> HttpResponseBase:
    """Stream all targets as CSV, as the run's page exports them. The connection is closed in the middle if the token is
    revoked meanwhile, or its person loses role or team."""
    run = find_run(request, run_id)
    lines = _while_in_force(exports.run_lines(run, only_failures), caller_of(request).token)
    return exports.csv_download(request, lines, f"run-{run.pk}.csv")


def _while_in_force(lines: Iterator[str], token: ApiToken) -> Iterator[str]:
    """Yield the lines; raise PermissionError once the token may not read on, so that no client takes a part for all."""
    for number, line in enumerate(lines):
        if number % exports.LINES_AT_ONCE == 0 and not tokens.still_in_force(token, READS.permission, timezone.now()):
            raise PermissionError("the token of a download may not read on")
        yield line


# --- controls ---------------------------------------------------------------------------------------------------


@router.post("/{int:run_id}/pause", response=RunDone, auth=CONTROLS)
def pause(request: HttpRequest, run_id: int) -> Any:
    """Pause a run: nothing more is sent after this."""
    run = find_run(request, run_id)
    return _done(request, controls.pause(run, caller_of(request).user, timezone.now()), run)


class ResumeIn(Schema):
    at_opening: bool = Field(False, description="Resume once, when the window next opens")
    until_hour: Annotated[int, Field(ge=1, le=24)] | None = Field(
        None, description="Widen the run's window to this hour, for today only"
    )


@router.post("/{int:run_id}/resume", response=RunDone, auth=CONTROLS)
def resume(request: HttpRequest, run_id: int, wish: ResumeIn) -> Any:
    """Resume a paused run: only pending targets are sent."""
    run, user, now = find_run(request, run_id), caller_of(request).user, timezone.now()
    if wish.until_hour is not None:
        return _done(request, controls.widen(run, wish.until_hour, user, now), run)
    control = controls.resume_at_opening if wish.at_opening else controls.resume
    return _done(request, control(run, user, now), run)


@router.post("/{int:run_id}/cancel", response=RunDone, auth=CONTROLS)
def cancel(request: HttpRequest, run_id: int) -> Any:
    """Cancel a run for good: what is pending is skipped."""
    run = find_run(request, run_id)
    return _done(request, controls.cancel(run, caller_of(request).user, timezone.now()), run)


class RetryIn(Schema):
    kinds: list[Line] | None = Field(None, description="Only these kinds of errors; default: all", max_length=50)


@router.post("/{int:run_id}/retry-failed", response=RunDone, auth=CONTROLS)
def retry_failed(request: HttpRequest, run_id: int, wish: RetryIn) -> Any:
    """Send failed targets again."""
    run = find_run(request, run_id)
    return _done(request, controls.retry_failed(run, caller_of(request).user, timezone.now(), wish.kinds), run)


class SettleIn(Schema):
    targets: Annotated[list[Id], Field(min_length=1, max_length=MOST_SETTLED)]
    delivered: bool = Field(description="True: they were delivered. False: send them again")


@router.post("/{int:run_id}/settle", response=RunDone, auth=CONTROLS)
def settle(request: HttpRequest, run_id: int, wish: SettleIn) -> Any:
    """Settle unconfirmed targets by your word: they were delivered, or are sent again."""
    run, user = find_run(request, run_id), caller_of(request).user
    return _done(request, corrections.settle(run, wish.targets, wish.delivered, user, timezone.now()), run)


class OffloadIn(Schema):
    account: Id
    keep_paused: bool = Field(False, description="Leave a paused run paused")


@router.post("/{int:run_id}/offload", response=RunDone, auth=CONTROLS)
def offload(request: HttpRequest, run_id: int, wish: OffloadIn) -> Any:
    """Move pending targets to another account of the same channel."""
    run, caller = find_run(request, run_id), caller_of(request)
    account = caller.find(Account.objects.all(), wish.account, "account")
    answer = corrections.offload(run, account, caller.user, timezone.now(), and_resume=not wish.keep_paused)
    return _done(request, answer, run)
