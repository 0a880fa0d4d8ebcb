"""Rate, expected end and waiting reason of runs and accounts, as the pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.models import Account
from fanout.admin.badges import badge
from fanout.models import Run
from fanout.plans import forecast
from fanout.plans.forecast import Forecast, forecast_offload
from fanout.plans.queue import Senders, account_snapshots
from fanout.runs import progress, why
from fanout.runs.progress import NO_PROGRESS, RunProgress
from fanout.runs.why import Why
from fanout.templatetags.crier import when


def going_on(runs: Sequence[Run], user: Any, now: datetime, senders: Senders | None = None) -> dict[int, RunProgress]:
    """For the person who asks, by their clock."""
    return progress.progress_of(runs, now, user, my_zone(), senders)


def read_going(runs: Sequence[Run], user: Any, now: datetime) -> None:
    """Gives each its `going`, by which its badge knows whether it waits behind another."""
    going = going_on(runs, user, now)
    for run in runs:
        run.__dict__["going"] = going.get(run.pk, NO_PROGRESS)


def my_zone() -> str:
    """Of the person who asks."""
    return timezone.get_current_timezone_name()


def status(run: Run, stands: RunProgress) -> SafeString:
    """The badge with the reason beside it."""
    run.__dict__["going"] = stands
    reason = run.get_pause_reason_display() or why.reason(run, stands.behind).removeprefix("waiting ")
    label = format_html('{} <span class="quiet">{}</span>', badge(run), reason) if reason else badge(run)
    if run.status != Run.Status.PAUSED or run.resume_at is None:
        return label
    return format_html('{} <span class="quiet">resumes</span> {}', label, when(run.resume_at, run.timezone))


def eta(run: Run, stands: RunProgress) -> SafeString | str:
    """When it is done, and how much of it fits today where not all does."""
    expected = stands.forecast
    if expected is None:
        return "–"
    if expected.ends_at is None:
        return f"never: {expected.bound_by}"
    done = when(expected.ends_at, run.timezone)
    if expected.fits:
        return done
    fit = f"{expected.fits_count:,} more fit today" if expected.fits_count else "no more fit today"
    return format_html('{} <span class="quiet fits">{}</span>', done, expected.wait or fit)


def sentence(expected: Forecast) -> SafeString:
    """The forecast's, with the number that is left marked for the page's script to keep up to date."""
    left = f"{expected.left:,}"
    if not expected.sentence.startswith(f"{left} "):
        return format_html("{}", expected.sentence)
    return format_html('<span data-count="left">{}</span>{}', left, expected.sentence.removeprefix(left))


def forecast_run(run: Run, now: datetime) -> Forecast | None:
    """The forecast for the rest of a run; None when nothing is pending."""
    if run.status in Run.FINISHED or not run.pending:
        return None
    return forecast.forecast_run(run, now, my_zone())


def offloads(runs: Sequence[Run], accounts: Sequence[Account], user: Any, now: datetime) -> dict[int, Forecast]:
    """What is left of these runs through each of these accounts; the sentence also names the runs that would wait."""
    plans = account_snapshots(accounts, now, runs[-1].action) if runs else {}
    forecasts = {a.pk: forecast_offload(runs, a, now, my_zone(), plans[a.pk]) for a in accounts if runs}
    return {
        pk: replace(expected, sentence=f"{expected.sentence} {forecast.would_wait(expected, user)}".rstrip())
        for pk, expected in forecasts.items()
    }


def why_run(run: Run, stands: RunProgress, now: datetime) -> Why | None:
    """What the run waits for, and when the next message is sent; None for a finished run."""
    turn = stands.behind, stands.forecast.starts_at if stands.forecast else None
    return None if run.status in Run.FINISHED else why.why_run(run, now, my_zone(), turn)


def why_account(account: Account, now: datetime) -> Why:
    return why.why_account(account, now, my_zone())
