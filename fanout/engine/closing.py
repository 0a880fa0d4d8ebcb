"""How a run ends or pauses, and how an account is stopped: one conditional update each, then the words."""

from __future__ import annotations

from datetime import datetime, timedelta

from fanout import texts
from fanout.engine import sql
from fanout.engine.connection import Row
from fanout.engine.facts import LaneView, RunView
from fanout.engine.gates import Close
from fanout.engine.ledger import Ledger, plain
from fanout.engine.outcomes import AccountChange
from fanout.models.run import PauseReason
from reminders.window import next_opening


async def close(ledger: Ledger, run: RunView, gate: Close, lane: LaneView, now: datetime) -> None:
    """The run stops here. Another lane that still has something in flight for it will do this instead."""
    if gate.reason == PauseReason.WINDOW_CLOSED and not run.attempted:
        await fail_unstarted(ledger, run.id, now)
        return
    rows = await ledger.write(sql.PAUSE_RUN, {"run": run.id, "reason": gate.reason.value, "now": now})
    if not rows:
        await finish(ledger, run.id, now)
        return
    (row,) = rows
    goes_on = row["auto_resume"] and gate.reason in (PauseReason.WINDOW_CLOSED, PauseReason.ACCOUNT_CAPACITY)
    resume_at = next_resume(row, lane, now) if goes_on else None
    await _describe(ledger, row, texts.paused(row, gate.why), resume_at, now)


def next_resume(row: Row, lane: LaneView, now: datetime) -> datetime:
    """When a run with auto-resume goes on: the next opening that window, hours and cap allow."""
    at = next_opening(row["timezone"], row["window_start_hour"], row["window_end_hour"], now + timedelta(seconds=1))
    account = lane.facts[row["action"]]
    if account.cap is not None and account.used >= account.cap and account.day_ends_at is not None:
        at = max(at, account.day_ends_at)
    for _ in range(20):  # window and hours meet within days, or never do
        both = next_opening(row["timezone"], row["window_start_hour"], row["window_end_hour"], at)
        both = account.hours.next_open(both)
        if both == at:
            break
        at = both
    return at


async def fail_unstarted(ledger: Ledger, run_id: int, now: datetime) -> None:
    """Fired too late to do any work: all skipped, nothing to resume."""
    await ledger.write(sql.SKIP_ALL, {"run": run_id, "why": texts.WINDOW_CLOSED_UNSTARTED, "now": now})
    rows = await ledger.write(sql.FINISH_RUN, {"run": run_id, "now": now})
    for row in rows:
        await _describe(ledger, row, texts.closed_before_start(row), None, now)


async def finish(ledger: Ledger, run_id: int, now: datetime) -> None:
    """Finished when nothing is pending or in flight anywhere; otherwise this does nothing."""
    for row in await ledger.write(sql.FINISH_RUN, {"run": run_id, "now": now}):
        await _describe(ledger, row, texts.finished(row), None, now)


async def _describe(ledger: Ledger, row: Row, summary: str, resume_at: datetime | None, now: datetime) -> None:
    await ledger.write(sql.DESCRIBE_RUN, (summary, resume_at, row["id"], row["status"]))
    await ledger.write(sql.ADD_EVENT, (row["id"], None, now, row["status"], summary))
    told = texts.notification(row | {"error_summary": summary})
    if told is not None:
        level = "warning" if row["status"] in ("paused", "failed", "partial") else "info"
        await ledger.write(sql.NOTIFY, (row["owner_id"], row["id"], None, *told, level, now))


async def change_account(ledger: Ledger, account_id: int, change: AccountChange, now: datetime) -> None:
    given = {
        "account": account_id, "status": change.status, "reason": plain(change.reason), "until": change.until, "now": now,
    }  # fmt: skip
    for row in await ledger.write(sql.CHANGE_ACCOUNT, given):
        await ledger.write(sql.ADD_EVENT, (None, account_id, now, change.status, plain(change.reason)))
        title = f"Account {change.status}"
        body = f"{row['label']}: {plain(change.reason)}"
        await ledger.write(sql.NOTIFY, (row["owner_id"], None, account_id, title, body, "error", now))


async def pause_account(ledger: Ledger, account_id: int, reason: str, now: datetime) -> None:
    await change_account(ledger, account_id, AccountChange("paused", reason), now)
