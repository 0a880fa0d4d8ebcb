"""The contents of the run page, read in a handful of queries."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.db.models import Case, Count, DateTimeField, Min, Q, When
from django.db.models.expressions import Func, Value
from django.urls import reverse

from fanout.admin.run_status import (
    buttons_for,
    eta,
    forecast_rest,
    forecast_sentence,
    going_on,
    my_zone,
    status_with_reason,
    why_run,
)
from fanout.admin.widgets import Chart, step_for, timeline_chart
from fanout.models import Run, RunTarget
from fanout.plans import queue
from fanout.plans.forecast import Forecast, forecast_run
from fanout.plans.offloads import can_offload, propose
from fanout.runs import controls, message_2, texts
from fanout.runs.progress import COUNTS, NO_PROGRESS, Period, Step, active_periods, active_seconds, funnel
from reminders.window import Window

EVENTS_SHOWN = 60
UNCONFIRMED_SHOWN = 20
GROUPS_SHOWN = 12
PERIODS_SHOWN = 8
LEAST_SHOWN = timedelta(minutes=10)


def live_part(run: Run, user: Any, now: datetime, may_act: bool) -> dict[str, Any]:
    """Return the part of the page that changes while the run goes on; the browser fetches it again."""
    events = list(run.events.select_related("actor").order_by("-at", "-id")[:EVENTS_SHOWN])
    periods = active_periods(run, events, now)
    chart, steps = throughput(run, periods, now)
    going = going_on([run], user, now).get(run.pk, NO_PROGRESS)
    forecast = going.forecast or forecast_rest(run, now)
    return {
        "run": run,
        "now": now,
        "live": run.status in Run.LIVE,
        "buttons": buttons_for(run, now) if may_act else [],
        "can_offload": may_act and can_offload(run),
        "proposal": propose(run, forecast, user, now, my_zone()) if may_act else None,
        "widening": widening(run, now) if may_act and not _fits_now(run, forecast, now) else None,
        "opens_at": opens_at(run, now),
        "may_act": may_act,
        "through": queue.shares_in_words(queue.run_shares(run)) if {*run.lanes} - {run.account_id} else "",
        "status": status_with_reason(run, going),
        "going": going,
        "eta": eta(run, going),
        "active_seconds": active_seconds(periods) if periods else None,
        "forecast": forecast,
        "sentence": forecast_sentence(forecast) if forecast else "",
        "why": why_run(run, going, now),
        "counts": counts(run),
        "message_2": reply_run(run, now),
        "funnel": [(step, targets_url(run, **_wanted(step))) for step in steps],
        "groups": error_groups(run) if run.failed or run.skipped else [],
        "unconfirmed": unconfirmed(run) if run.unconfirmed else [],
        "chart": chart,
        "events": events,
        "spent": time_spent(run),
    }


def _fits_now(run: Run, forecast: Forecast | None, now: datetime) -> bool:
    """Return whether resuming is enough, without a wider window."""
    return forecast is not None and forecast.fits and run.window.is_open(now) and run.resume_at is None


def opens_at(run: Run, now: datetime) -> datetime | None:
    """Return when a paused run's window opens again; None while it is open, and for other runs."""
    closed = run.status == Run.Status.PAUSED and not run.window.is_open(now)
    return run.window.next_opening(now) if closed else None


def reply_run(run: Run, now: datetime) -> dict[str, Any] | None:
    """Return the run of its Message 2 with a summary; None before the first reply."""
    child = run.message_2.defer("parts").first() if run.reply_parts else None
    return {"run": child, "summary": message_2.summary(child, now)} if child is not None else None


def targets_url(run: Run, **filters: str) -> str:
    """Return the list of the run's targets with these filters."""
    return f"{reverse('admin:fanout_runtarget_changelist')}?{urlencode({'run__id__exact': run.pk} | filters)}"


def _wanted(step: Step) -> dict[str, str]:
    """Return the filters of the list that a step of the funnel counts."""
    return {"status__exact": "sent"} | ({} if step.name == "sent" else {"result": step.name})


def counts(run: Run) -> list[dict[str, Any]]:
    """Return the counters, each with a link to its targets."""
    words = (
        ("sent", "sent", "good"),
        ("pending", "pending", "info"),
        ("sending", "in flight", "busy"),
        ("failed", "failed", "bad"),
        ("skipped", "skipped", "mute"),
        ("unconfirmed", "unconfirmed", "warn"),
    )
    return [
        {
            "status": status,
            "word": word,
            "tone": tone,
            "n": getattr(run, status),
            "url": targets_url(run, status__exact=status),
        }
        for status, word, tone in words
    ]


def error_groups(run: Run) -> list[dict[str, Any]]:
    """Group failed targets by kind of error and skipped ones by reason, most frequent first."""
    failed = RunTarget.Status.FAILED
    settled = run.targets.filter(status__in=[failed, RunTarget.Status.SKIPPED]).order_by()
    cause = Case(When(status=failed, then="error_kind"), default="error")
    counted: Any = settled.annotate(cause=cause).values("status", "cause").annotate(n=Count("id"), sample=Min("error"))
    groups = [_group(run, row) for row in counted.order_by("-n")[: 2 * GROUPS_SHOWN]]
    return sorted(groups, key=lambda group: group["status"] != failed)


def _group(run: Run, row: dict[str, Any]) -> dict[str, Any]:
    row |= {"url": targets_url(run, status__exact=row["status"], cause=row["cause"])}
    if row["status"] == RunTarget.Status.FAILED:
        return row | {"kind": row["cause"], "words": texts.error(row["cause"])}
    return row | {"words": texts.left_out(row["cause"]), "sample": ""}


def unconfirmed(run: Run) -> list[RunTarget]:
    rows = run.targets.filter(status=RunTarget.Status.UNCONFIRMED).select_related("recipient")
    return list(rows.order_by("position")[:UNCONFIRMED_SHOWN])


def throughput(run: Run, active: list[Period], now: datetime) -> tuple[Chart | None, list[Step]]:
    """Draw the deliveries per minute (or a longer step) while the run was active, and return the steps of the funnel.

    Both are counted by one query.
    """
    if run.first_attempt_at is None:
        return None, []
    starts = run.first_attempt_at.replace(second=0, microsecond=0)
    periods = shown_periods(active, starts, run.finished_at or now)
    step = step_for(sum((end - begin for begin, end in periods), timedelta()))
    minutes = int(step.total_seconds() // 60)
    title = "Sent per minute" if minutes == 1 else f"Sent per {minutes} minutes"
    rows = sends(run, starts, step)
    counts = {row["bin"]: row["sent"] for row in rows}
    return timeline_chart(title, counts, periods, step, my_zone()), funnel(run, rows)


def shown_periods(active: list[Period], starts: datetime, ends: datetime) -> list[Period]:
    """Return the latest active periods in whole minutes, from the first delivery on.

    The last one is at least ten minutes long.
    """
    whole = [(begin.replace(second=0, microsecond=0), end) for begin, end in active]
    periods = [(max(begin, starts), end) for begin, end in whole if end > starts] or [(starts, ends)]
    begin, end = periods[-1]
    periods[-1] = begin, max(end, begin + LEAST_SHOWN)
    return periods[-PERIODS_SHOWN:]


class Bin(Func):
    function = "date_bin"
    output_field = DateTimeField()


def sends(run: Run, starts: datetime, step: timedelta) -> list[dict[str, Any]]:
    rows = run.targets.filter(Q(status=RunTarget.Status.SENT), settled_at__isnull=False).order_by()
    binned: Any = rows.annotate(bin=Bin(Value(step), "settled_at", Value(starts))).values("bin").annotate(**COUNTS)
    return list(binned)


def time_spent(run: Run) -> list[tuple[str, float]]:
    words = (
        ("pacing", "keeping the pace"),
        ("provider", "provider's answers"),
        ("media", "media uploads"),
        ("retries", "retries"),
        ("waiting", "held by limits"),
    )
    spent = [(word, getattr(run, f"seconds_{name}")) for name, word in words]
    return sorted((pair for pair in spent if pair[1] >= 1), key=lambda pair: -pair[1])


# --- widening the window of a paused run ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Widening:
    """The hours to which the window can be widened today.

    `first` is the earliest hour that helps, `proposed` the one by which all would be sent, at `done_at`. `fits` is
    False if not all can be sent today, None if unknown.
    """

    first: int
    proposed: int
    fits: bool | None = None
    done_at: datetime | None = None


def widening(run: Run, now: datetime) -> Widening | None:
    """Return the hours to offer; None if the window cannot be widened, for example because it ends at midnight."""
    hours = range(run.window_end_hour + 1, 25)
    first = next((hour for hour in hours if not controls.widening_problem(run, hour, now)), None)
    if first is None:
        return None
    if len(run.lanes) > 1:
        return Widening(first, first)  # a forecast over many accounts takes more queries than the page has left
    done_at = _done_at(run, now)
    if done_at is None:
        return Widening(first, 24, fits=False)
    return Widening(first, max(first, done_at.astimezone(ZoneInfo(run.timezone)).hour + 1), True, done_at)


def _done_at(run: Run, now: datetime) -> datetime | None:
    """Return when all would be sent if the window stayed open until midnight; None if not today."""
    widened = copy(run)
    # It goes on at once then, even if a later resume was planned.
    widened.resume_at = None
    widened.window_closes_at = Window(run.timezone, run.window_start_hour, 24).closes_on(now)
    ends_at = forecast_run(widened, now).ends_at
    return ends_at if ends_at is not None and ends_at < widened.window_closes_at else None
