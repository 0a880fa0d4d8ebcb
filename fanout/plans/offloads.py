"""Compare the accounts that could take over the rest of a run, and propose one where that helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from accounts import access
from accounts.models import Account
from fanout.models import Run, RunTarget
from fanout.plans.forecast import Forecast, Reader, forecast_offload, would_wait
from fanout.plans.queue import account_snapshots

MOST_ACCOUNTS = 200
#: Accounts that are forecast at once: each takes a few queries.
FORECASTS = 3
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
# Moving targets for less than this is not worth an operator's attention.
WORTH_MOVING = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Proposal:
    """An account that would be done sooner with the rest of a run, in a sentence that is the label of a button."""

    account: Account
    forecast: Forecast
    sentence: str
    waits: str  # the account's own runs that would end later; empty where there are none


def propose(run: Run, present: Forecast | None, user: Any, now: datetime, zone: str = "") -> Proposal | None:
    """Return the account that would be done first with what is left; None where the run gets through today without
    help, or no account that the user may use would be done clearly sooner. `present`: the run's own forecast.
    `user`: None is the shell."""
    if present is None or not can_offload(run):
        return None
    stuck = _is_stuck(run)
    if present.fits and not stuck:
        return None
    ends_at = None if stuck else present.ends_at
    expected = offload_forecasts([run], accounts_for([run], user)[:FORECASTS], user, now, zone)
    sooner = [(account, forecast) for account, forecast in expected if _is_sooner(forecast, ends_at)]
    if not sooner:
        return None
    account, forecast = min(sooner, key=lambda pair: (pair[1].ends_at, pair[0].pk))
    sentence = _sentence(run, account, forecast, ends_at, Reader(now, zone))
    return Proposal(account, forecast, sentence, would_wait(forecast, user))


def _is_stuck(run: Run) -> bool:
    """Return whether none of its accounts may send at all."""
    if run.account_id in run.lanes and run.account.status == Account.Status.ACTIVE:  # a page has read it already
        return False
    return not Account.objects.filter(pk__in=run.lanes, status=Account.Status.ACTIVE).exists()


def can_offload(run: Run) -> bool:
    return run.status in Run.UNFINISHED and run.pending > 0 and run.answers_id is None


def _is_sooner(forecast: Forecast, ends_at: datetime | None) -> bool:
    if not forecast.left or forecast.ends_at is None:
        return False
    return ends_at is None or forecast.ends_at + WORTH_MOVING <= ends_at


def _sentence(run: Run, account: Account, forecast: Forecast, ends_at: datetime | None, reader: Reader) -> str:
    """Return “Offload 189 to Events line: done 01:15 instead of Thu 00:09”."""
    assert forecast.ends_at is not None
    resume = " and resume" if run.status == Run.Status.PAUSED else ""
    before = reader.time(ends_at, run.timezone) if ends_at is not None else "never"
    done = reader.time(forecast.ends_at, run.timezone)
    return f"Offload {forecast.left:,} to {account.label}{resume}: done {done} instead of {before}"


# --- the accounts to choose from --------------------------------------------------------------------------


def accounts_for(runs: Sequence[Run], user: Any) -> list[Account]:
    """Return the active accounts of the runs' channels that the user may use, those that last sent longest ago
    first."""
    senders = _senders(runs)
    fitting = Account.objects.filter(status=Account.Status.ACTIVE, channel__in={channel for _, channel in senders})
    mine = fitting if user is None else access.visible(user, fitting)
    # The only sender of everything left is not offered.
    taken = {pk for pk, _ in senders} if len(senders) == 1 else set()
    choices = mine.select_related("lane").order_by("label")[:MOST_ACCOUNTS]
    return sorted((account for account in choices if account.pk not in taken), key=_idle_since)


def _senders(runs: Sequence[Run]) -> set[tuple[int, str]]:
    """Return the accounts that still have something to send for the runs, each with its channel."""
    # A lane that has stepped aside is no longer one of the run's, but has left a slip.
    if all({*run.lanes, *map(int, run.delays)} == {run.account_id} for run in runs):
        return {(run.account_id, run.account.channel) for run in runs}
    pending = RunTarget.objects.filter(run__in=runs, status=RunTarget.Status.PENDING).order_by()
    return set(pending.values_list("account", "account__channel").distinct())


def _idle_since(account: Account) -> tuple[datetime, str]:
    """Return when the account last sent; an account that never did is the most idle."""
    lane = getattr(account, "lane", None)
    return (lane and lane.last_claim_at) or LONG_AGO, account.label


def offload_forecasts(
    runs: Sequence[Run], accounts: Sequence[Account], user: Any, now: datetime, zone: str = ""
) -> list[tuple[Account, Forecast]]:
    """Forecast the rest of these runs through each account; the sentence also names the runs that would wait."""
    if not runs:
        return []
    snapshots = account_snapshots(accounts, now, runs[-1].action)
    expected = [(account, forecast_offload(runs, account, now, zone, snapshots[account.pk])) for account in accounts]
    return [
        (account, replace(forecast, sentence=f"{forecast.sentence} {would_wait(forecast, user)}".rstrip()))
        for account, forecast in expected
    ]
