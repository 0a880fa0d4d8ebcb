"""Measure how a run is doing: its rate, expected end, the runs in front of it, when it was active, and its receipts.

Lists, pages and the shell ask here, so that they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from django.db import connection
from django.db.models import Count

from accounts.actions import Action
from accounts.channels.registry import channel
from fanout.models import Event, Run
from fanout.plans.forecast import Forecast, behind, forecast_runs
from fanout.plans.queue import Senders


@dataclass(frozen=True, slots=True)
class RunProgress:
    """State of a live run. `behind`: the runs that its lane sends first, in words."""

    per_minute: float | None = None
    forecast: Forecast | None = None
    behind: str = ""

    @property
    def rate(self) -> str:
        return "–" if self.behind else rate_in_words(self.per_minute)

    @property
    def ends_at(self) -> datetime | None:
        return self.forecast.ends_at if self.forecast else None


NO_PROGRESS = RunProgress()


def progress_of(
    runs: Sequence[Run],
    now: datetime,
    user: Any = None,
    zone: str = "",
    senders: Senders | None = None,
    team: int | None = None,
) -> dict[int, RunProgress]:
    """Return the progress of those runs that are going on, in a handful of queries. `user` and `zone`: the reader's,
    None being the shell; `senders`: where they have been read; `team`: only this team's runs are named."""
    live = [run for run in runs if run.status in Run.LIVE and run.pending]
    if not live:
        return {}
    forecasts = forecast_runs(live, now, zone, senders)
    words, rates = behind(forecasts, user, now, team), rates_of_runs(live, now)
    return {run.pk: RunProgress(rates.get(run.pk), forecasts[run.pk], words[run.pk]) for run in live}


# --- the rate of the last minutes ------------------------------------------------------------------------

RECENT = timedelta(minutes=5)
# For an account that sends less than ENOUGH messages in that time.
HOUR = timedelta(hours=1)
ENOUGH = 10
MOST_READ = 400  # messages of one account
LEAST_SECONDS = 10.0  # a shorter time cannot be measured
BURST = timedelta(seconds=1)  # what goes out in it comes from a full bucket, and says nothing about the pace

# Messages before the run's last pause say nothing about its rate now. Read through the accounts' activity, whose
# index ends with the time: a run's targets, perhaps a million, have no index by time.
LATELY = """
WITH lately AS (
  SELECT a.id AS account_id, t.run_id, t.id AS target_id, t.status, s.at
    FROM unnest(%(accounts)s::bigint[]) AS a(id)
   CROSS JOIN unnest(%(actions)s::varchar[]) AS k(action)
   CROSS JOIN LATERAL (SELECT v.run_target_id, v.at FROM fanout_activity v
                        WHERE v.account_id = a.id AND v.action = k.action AND v.outcome = 'sent'
                          AND v.at > %(longer)s AND v.at <= %(now)s
                        ORDER BY v.at DESC LIMIT %(most)s) AS s
    JOIN fanout_runtarget t ON t.id = s.run_target_id
), paused AS (
  SELECT e.run_id, max(e.at) AS at FROM fanout_event e
   WHERE e.run_id IN (SELECT run_id FROM lately) AND e.verb = 'paused' GROUP BY 1
), since AS (
  SELECT l.*, l.at > %(recent)s AS recent,
         min(l.at) OVER lane AS first, min(l.at) FILTER (WHERE l.at > %(recent)s) OVER lane AS first_recent
    FROM lately l LEFT JOIN paused p ON p.run_id = l.run_id
   WHERE p.at IS NULL OR l.at > p.at
  WINDOW lane AS (PARTITION BY l.account_id, l.run_id)
)
SELECT account_id, run_id,
       count(*), first, max(at), count(*) FILTER (WHERE at >= first + %(burst)s),
       count(DISTINCT target_id) FILTER (WHERE status = 'sent' AND at >= first + %(burst)s),
       count(*) FILTER (WHERE recent), first_recent, max(at) FILTER (WHERE recent),
       count(*) FILTER (WHERE recent AND at >= first_recent + %(burst)s),
       count(DISTINCT target_id) FILTER (WHERE recent AND status = 'sent' AND at >= first_recent + %(burst)s)
  FROM since GROUP BY account_id, run_id, first, first_recent
"""


class SentCount(NamedTuple):
    """All messages, when the first and the last went out, and the messages and targets after the first burst."""

    all: int
    first: datetime | None
    last: datetime | None
    messages: int
    targets: int


@dataclass(frozen=True, slots=True)
class Lately:
    """Messages of one account for one run in the last hour, and in the last minutes of it."""

    account_id: int
    run_id: int
    longer: SentCount
    recent: SentCount


def sent_lately(accounts: Sequence[int], now: datetime) -> list[Lately]:
    """Read what the accounts sent lately, in one query."""
    if not accounts:
        return []
    parameters: dict[str, Any] = {
        "accounts": list(accounts),
        "actions": Action.values,
        "now": now,
        "most": MOST_READ,
        "recent": now - RECENT,
        "longer": now - HOUR,
        "burst": BURST,
    }
    with connection.cursor() as cursor:
        cursor.execute(LATELY, parameters)
        return [Lately(row[0], row[1], SentCount(*row[2:7]), SentCount(*row[7:12])) for row in cursor.fetchall()]


def per_minute(rows: Sequence[Lately], now: datetime, count: Literal["messages", "targets"]) -> float | None:
    """Return the rate; None before there is anything to measure."""
    slow = sum(row.longer.all for row in rows) < ENOUGH
    sent = [row.longer if slow else row.recent for row in rows]
    begun = min((part.first for part in sent if part.first is not None), default=None)
    last = max((part.last for part in sent if part.last is not None), default=now)
    if begun is None:
        return None if slow else 0.0  # it has been silent for minutes
    n: int = sum(getattr(part, count) for part in sent)
    seconds = (now - begun).total_seconds()
    if seconds < LEAST_SECONDS or not n:
        return None
    # A silence that is not much longer than usual does not count: the next message may be due only now.
    sending = (last - begun).total_seconds()
    return n / (sending if (now - last).total_seconds() <= 2 * sending / n else seconds) * 60


def rates_of_runs(runs: Sequence[Run], now: datetime) -> dict[int, float | None]:
    """Return deliveries per minute of the runs that are going on, over all their accounts."""
    going = {run.pk: run for run in runs if run.status in Run.LIVE}
    rows = sent_lately(sorted({pk for run in going.values() for pk in run.lanes}), now)
    return {pk: per_minute([row for row in rows if row.run_id == pk], now, "targets") for pk in going}


def rates_of_accounts(accounts: Sequence[int], now: datetime) -> dict[int, float | None]:
    """Return messages per minute, which is what the limit counts, of accounts that sent something in the last hour."""
    rows = sent_lately(accounts, now)
    ids = {row.account_id for row in rows}
    return {pk: per_minute([row for row in rows if row.account_id == pk], now, "messages") for pk in ids}


def rate_in_words(rate: float | None) -> str:
    """Return the rate in words; below one a minute it is counted by the hour."""
    if rate is None:
        return "–"
    if 0 < rate < 1:
        return f"{rate * 60:.0f} / h"
    return f"{rate:.0f} / min" if rate >= 9.95 else f"{rate:.1f} / min"


# --- when a run was active -------------------------------------------------------------------------------

STOPS = (Run.Status.PAUSED, Run.Status.SUCCESS, Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.CANCELED)
Period = tuple[datetime, datetime]


def active_periods(run: Run, events: Iterable[Event], now: datetime) -> list[Period]:
    """Return when a run was going on, without the times at which it was paused or finished. `events` is its timeline in
    any order. The last period of a run that is going on ends now."""
    if run.started_at is None:
        return []
    since: datetime | None = run.started_at
    periods: list[Period] = []
    for event in sorted(events, key=lambda event: (event.at, event.pk)):
        if event.verb in STOPS and since is not None:
            periods.append((since, max(since, event.at)))
            since = None
        elif event.verb == "resumed" or (event.verb == "retry failed" and since is None):
            # A retry may leave the run paused: then it goes on when it is resumed.
            since = max(event.at, run.started_at)
    end = now if run.status in Run.LIVE else run.finished_at
    if since is not None and end is not None:
        periods.append((since, max(since, end)))
    return periods


def active_seconds(periods: Iterable[Period]) -> float:
    return sum((end - begin).total_seconds() for begin, end in periods)


# --- receipts --------------------------------------------------------------------------------------------

#: Counted over a run's sent targets; a page that reads them anyway adds these to its query.
COUNTS = {
    "sent": Count("id"),
    # The provider's receipt. "Delivered" is what Crier has sent, on the same page.
    "received": Count("delivered_at"),
    "read": Count("read_at"),
    "replied": Count("replied_at"),
    "opted_out": Count("opted_out_at"),
}
#: steps that only a provider with receipts reports
BY_RECEIPT = ("received", "read")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    n: int
    percent: float

    @property
    def word(self) -> str:
        return self.name.replace("_", " ")


def funnel(run: Run, counted: Iterable[Mapping[str, int]]) -> list[Step]:
    """Return each step with its share of what was sent. Where the run's channel reports no receipts, there is none
    before the first reply or opt-out."""
    rows = list(counted)
    totals = {name: sum(row[name] for row in rows) for name in COUNTS}
    has_receipts = channel(run.account.channel).receipts
    if not totals["sent"] or not (has_receipts or totals["replied"] or totals["opted_out"]):
        return []
    shown = [name for name in COUNTS if has_receipts or name not in BY_RECEIPT]
    return [Step(name, totals[name], 100 * totals[name] / totals["sent"]) for name in shown]
