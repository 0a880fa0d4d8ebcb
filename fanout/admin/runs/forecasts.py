"""Rate, expected end and waiting reason of runs and accounts, as the pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from accounts.models import Account
from fanout.models import Run
from fanout.runs import forecast, why
from fanout.runs.forecast import Forecast


def per_minute(run: Run, now: datetime) -> float | None:
    """Deliveries per minute since the first attempt. None before there is anything to measure."""
    if run.first_attempt_at is None or not run.sent:
        return None
    seconds = ((run.finished_at or now) - run.first_attempt_at).total_seconds()
    return run.sent / max(seconds, 60.0) * 60


def etas(runs: Sequence[Run], now: datetime) -> dict[int, datetime]:
    """The expected ends of those runs that are going on, for lists."""
    live = [run for run in runs if run.status in Run.LIVE and run.pending]
    return {pk: f.ends_at for pk, f in forecast.forecast_runs(live, now).items()} if live else {}


def forecast_run(run: Run, now: datetime) -> Forecast | None:
    """The forecast for the rest of a run; None when nothing is pending."""
    if run.status in Run.FINISHED or not run.pending:
        return None
    return forecast.forecast_run(run, now)


def why_run(run: Run, now: datetime) -> str:
    """What the run waits for, and when the next message is sent; empty for a finished run."""
    return "" if run.status in Run.FINISHED else why.why_run(run, now).text


def why_account(account: Account, now: datetime) -> str:
    return why.why_account(account, now).text
