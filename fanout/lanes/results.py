"""Results over time, from maintained day counters: what was sent and what came back, per day, account and reminder.

Triggers keep the counters (fanout/migrations/version_1_0/days.py); a day is one of the run's own calendar. Pages,
commands and an account's reputation read them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from accounts.models import Account
from fanout.database import Row, execute
from fanout.models import Run

DAY = timedelta(days=1)
MOST_ROWS = 200  # accounts or reminders of one table


@dataclass(frozen=True, slots=True)
class Result:
    sent: int = 0
    failed: int = 0
    received: int = 0
    read: int = 0
    replied: int = 0
    opted_out: int = 0

    def per_thousand(self, name: str) -> float:
        """Return how many of this kind there were per 1,000 messages."""
        count: int = getattr(self, name)
        return 1000 * count / self.sent if self.sent else 0.0

    def share(self, name: str) -> float:
        """Return the part of what was sent; of failures, the part of what was tried."""
        count: int = getattr(self, name)
        whole = self.sent + self.failed if name == "failed" else self.sent
        return count / whole if whole else 0.0

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in NAMES}

    def __add__(self, other: Result) -> Result:
        return Result(*(getattr(self, name) + getattr(other, name) for name in NAMES))


NAMES = tuple(field.name for field in fields(Result))
SUMS = ", ".join(f"coalesce(sum(d.{name}), 0)::bigint AS {name}" for name in NAMES)


@dataclass(frozen=True, slots=True)
class Span:
    """The days that are asked for, both included, of the runs that the reader may see; None: of all."""

    first: date
    last: date
    runs: QuerySet[Run] | None = None
    account: int | None = None
    reminder: int | None = None

    def where(self) -> tuple[str, list[Any]]:
        conditions = ["d.day BETWEEN %s AND %s", "NOT r.is_test"]
        values: list[Any] = [self.first, self.last]
        if self.account is not None:
            conditions.append("d.account_id = %s")
            values.append(self.account)
        if self.reminder is not None:
            conditions.append("r.reminder_id = %s")
            values.append(self.reminder)
        if self.runs is not None:
            sql, parameters = self.runs.order_by().values("pk").query.sql_with_params()
            conditions.append(f"d.run_id IN ({sql})")
            values.extend(parameters)
        return " AND ".join(conditions), values


def span(weeks: int, today: date, **narrowed: Any) -> Span:
    """Return so many weeks until today. Elsewhere it may be tomorrow already."""
    return Span(today - timedelta(days=7 * weeks - 1), today + timedelta(days=1), **narrowed)


def total(wanted: Span) -> Result:
    rows = _sums("true", wanted)
    return _result(rows[0]) if rows else Result()


def by_day(wanted: Span) -> dict[date, Result]:
    """Return each day, oldest first, also those without results; the day after the reader's only if it has some."""
    counted = {row["key"]: _result(row) for row in _sums("d.day", wanted)}
    days = [wanted.first + timedelta(days=n) for n in range((wanted.last - wanted.first).days + 1)]
    return {day: counted.get(day, Result()) for day in days if day != wanted.last or day in counted}


def by_account(wanted: Span) -> dict[int, Result]:
    """Return the accounts that sent the most."""
    return {row["key"]: _result(row) for row in _sums("d.account_id", wanted, MOST_ROWS)}


def by_reminder(wanted: Span) -> dict[int, Result]:
    """Return the reminders of which the most was sent."""
    return {row["key"]: _result(row) for row in _sums("r.reminder_id", wanted, MOST_ROWS)}


def _sums(key: str, wanted: Span, most: int | None = None) -> list[Row]:
    where, values = wanted.where()
    statement = f"""
SELECT {key} AS key, {SUMS} FROM fanout_day d JOIN fanout_run r ON r.id = d.run_id
 WHERE {where} GROUP BY 1 ORDER BY sum(d.sent) DESC, 1 LIMIT %s
"""
    return [row for row in execute(statement, [*values, most]) if any(row[name] for name in NAMES)]


def _result(row: Row) -> Result:
    return Result(*(row[name] for name in NAMES))


# --- runs side by side ------------------------------------------------------------------------------------

OF_RUNS = f"""
SELECT d.run_id, d.day, {SUMS} FROM fanout_day d WHERE d.run_id = ANY(%(runs)s::bigint[]) GROUP BY 1, 2 ORDER BY 1, 2
"""


def of_runs(runs: Iterable[int]) -> dict[int, dict[date, Result]]:
    """Return the results of each run by day."""
    found: dict[int, dict[date, Result]] = {run: {} for run in runs}
    for row in execute(OF_RUNS, {"runs": list(found)}):
        found[row["run_id"]][row["day"]] = _result(row)
    return found


def whole(days: dict[date, Result]) -> Result:
    return sum(days.values(), Result())


# --- an account's weeks -----------------------------------------------------------------------------------

# The last seven days of each account's own calendar, and the seven before.
WEEKS_OF = f"""
SELECT a.id, d.day > a.today - 7 AS recent, {SUMS}
  FROM unnest(%(accounts)s::bigint[], %(today)s::date[]) AS a(id, today)
  JOIN fanout_day d ON d.account_id = a.id AND d.day > a.today - 14
  JOIN fanout_run r ON r.id = d.run_id AND NOT r.is_test
 GROUP BY 1, 2
"""
# Accounts after whose messages so many people have opted out lately.
OPTED_OUT = "SELECT account_id FROM fanout_day WHERE day > %s GROUP BY 1 HAVING sum(opted_out) >= %s"


def two_weeks(today: Mapping[int, date]) -> dict[int, tuple[Result, Result]]:
    """Return this week and the one before of each account, by its own date of today."""
    return weeks_in(execute(WEEKS_OF, of_accounts(today)) if today else [], today)


def of_accounts(today: Mapping[int, date]) -> Row:
    """Return the parameters of WEEKS_OF."""
    return {"accounts": list(today), "today": list(today.values())}


def weeks_in(rows: Iterable[Row], today: Mapping[int, date]) -> dict[int, tuple[Result, Result]]:
    """Return this week and the one before of each account, from the rows of WEEKS_OF."""
    found = {(row["id"], row["recent"]): _result(row) for row in rows}
    return {pk: (found.get((pk, True), Result()), found.get((pk, False), Result())) for pk in today}


def with_opt_outs(accounts: QuerySet[Account], least: int, now: datetime) -> QuerySet[Account]:
    """Return those of the accounts with at least so many opt-outs in the last week or so."""
    return accounts.filter(pk__in=RawSQL(OPTED_OUT, [(now - 8 * DAY).date(), least]))  # noqa: S611 a constant


# --- keeping the counters -----------------------------------------------------------------------------------


def fold(now: datetime) -> None:
    """Add the appended differences to the counters of their days; nothing while another session does."""
    execute("SELECT fanout_fold_days()", {})


def recount(runs: list[int]) -> None:
    """Count the days of these runs from their targets, in the caller's transaction."""
    execute("SELECT fanout_recount_days(%(runs)s::bigint[])", {"runs": runs})
