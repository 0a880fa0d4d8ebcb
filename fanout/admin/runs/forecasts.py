"""Rate, expected end and waiting reason of runs and accounts, as the pages show them."""

from __future__ import annotations

from datetime import datetime, timedelta

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models import Run
from fanout.runs import forecast, why
from fanout.runs.forecast import Forecast
from reminders.window import Window


def per_minute(run: Run, now: datetime) -> float | None:
    """Deliveries per minute since the first attempt. None before there is anything to measure."""
    if run.first_attempt_at is None or not run.sent:
        return None
    seconds = ((run.finished_at or now) - run.first_attempt_at).total_seconds()
    return run.sent / max(seconds, 60.0) * 60


def eta(run: Run, now: datetime) -> datetime | None:
    """The expected end for lists, by the run's rate so far, or else by the account's pace."""
    if run.status not in Run.LIVE or not run.pending:
        return None
    rate = per_minute(run, now) or _pace(run)
    if not rate:
        return None
    begins = max(filter(None, (now, run.scheduled_for, run.waiting_until)))
    return begins + timedelta(minutes=run.pending / rate)


def _pace(run: Run) -> float:
    messages = run.account.settings()["max_send_per_minute"].value
    return messages / max(1, run.__dict__.get("part_count") or 1)


def forecast_run(run: Run, now: datetime) -> Forecast | None:
    """The forecast for the rest of a run; None when nothing is pending."""
    if run.status in Run.FINISHED or not run.pending:
        return None
    return forecast.forecast_run(run, now)


def forecast_offload(runs: list[Run], account: Account, now: datetime) -> Forecast | None:
    """The forecast for an account taking over the pending targets of these runs."""
    if not runs:
        return None
    first = runs[0]
    work = forecast.Work.of(sum(run.pending for run in runs), max(len(first.parts), 1))
    return _at_the_end_of(account, first.action, work, first.window, now)


def forecast_draft(account: Account, action: str, targets: int, parts: int, window: Window, at: datetime) -> Forecast:
    """The forecast for a reminder as the form shows it, saved or not."""
    return _at_the_end_of(account, action, forecast.Work.of(targets, max(parts, 1)), window, at)


def _at_the_end_of(account: Account, action: str, work: forecast.Work, window: Window, at: datetime) -> Forecast:
    return forecast.of_lane(forecast.account_plan(account, action, at), work, window, at, channel(account.channel).noun)


def why_run(run: Run, now: datetime) -> str:
    """What the run waits for, and when the next message is sent; empty for a finished run."""
    return "" if run.status in Run.FINISHED else why.why_run(run, now).text


def why_account(account: Account, now: datetime) -> str:
    return why.why_account(account, now).text
