"""How a run ends or pauses, and how an account is stopped: one conditional update each, then the words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from fanout.engine import sql
from fanout.engine.connection import Row
from fanout.engine.ledger import Ledger, plain
from fanout.engine.loading import LaneAccount, LaneRun
from fanout.models.run import PauseReason
from fanout.rules.gates import Close
from fanout.rules.outcomes import AccountChange
from fanout.runs import texts
from reminders.window import next_opening

Write = Callable[..., Awaitable[list[Row]]]


async def close(ledger: Ledger, run: LaneRun, gate: Close, lane: LaneAccount, now: datetime) -> None:
    """The run stops here. Another lane that still has something in flight for it will do this instead."""
    async with ledger.together() as write:
        if gate.reason == PauseReason.WINDOW_CLOSED and not run.attempted:
            await _fail_unstarted(write, run.id, now)
        if gate.reason != PauseReason.WINDOW_CLOSED and await _step_aside(write, run.id, gate, lane, now):
            return
        if not await _pause(write, run.id, gate, lane, now):
            await _finish(write, run.id, now)


async def run_dry(ledger: Ledger, run_id: int, lane: LaneAccount, now: datetime) -> None:
    """This lane has nothing left to send for the run: it is finished, or others go on, or what is left belongs to
    accounts that cannot send."""
    async with ledger.together() as write:
        if await _finish(write, run_id, now):
            return
        for left in await write(sql.LEFT_BEHIND, {"run": run_id}):
            down = left["status"] != "active"
            reason = PauseReason.ACCOUNT_DOWN if down else PauseReason.ACCOUNT_CAPACITY
            await _pause(write, run_id, Close(reason, left["plan_note"]), lane, now)


async def rejudge(ledger: Ledger, run_id: int, now: datetime) -> None:
    """After a late result: the verdict may have changed."""
    async with ledger.together() as write:
        await _finish(write, run_id, now)


async def _step_aside(write: Write, run_id: int, gate: Close, lane: LaneAccount, now: datetime) -> bool:
    """One lane's limit is not the run's while other lanes still send for it."""
    me = lane.config.id
    aside = await write(sql.STEP_ASIDE, {"run": run_id, "me": me})
    if aside:
        slipped = {"run": run_id, "accounts": [me], "until": None, "why": plain(gate.why, 200)}
        await write(sql.REPLAN, slipped)
        await write(sql.ADD_EVENT, (run_id, None, now, "stepped aside", f"{lane.config.label}: {gate.why}"))
    return bool(aside)


async def _pause(write: Write, run_id: int, gate: Close, lane: LaneAccount, now: datetime) -> bool:
    rows = await write(sql.PAUSE_RUN, {"run": run_id, "reason": gate.reason.value, "now": now})
    for row in rows:
        goes_on = row["auto_resume"] and gate.reason in (PauseReason.WINDOW_CLOSED, PauseReason.ACCOUNT_CAPACITY)
        resume_at = next_resume(row, lane, now) if goes_on else None
        slipped = {"run": run_id, "accounts": row["lanes"], "until": resume_at, "why": plain(gate.why, 200)}
        await write(sql.REPLAN, slipped)
        await _describe(write, row, texts.paused(row, gate.why), resume_at, now)
    return bool(rows)


def next_resume(row: Row, lane: LaneAccount, now: datetime) -> datetime:
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


async def _fail_unstarted(write: Write, run_id: int, now: datetime) -> None:
    """Fired too late to do any work: all skipped, nothing to resume."""
    await write(sql.SKIP_ALL, {"run": run_id, "why": texts.WINDOW_CLOSED_UNSTARTED, "now": now})
    for row in await write(sql.FINISH_RUN, {"run": run_id, "now": now}):
        await _describe(write, row, texts.closed_before_start(row), None, now)


async def _finish(write: Write, run_id: int, now: datetime) -> bool:
    """Finished when nothing is pending or in flight anywhere; otherwise this does nothing."""
    rows = await write(sql.FINISH_RUN, {"run": run_id, "now": now})
    for row in rows:
        await _describe(write, row, texts.finished(row), None, now)
    return bool(rows)


async def _describe(write: Write, row: Row, summary: str, resume_at: datetime | None, now: datetime) -> None:
    """The summary, the line in the timeline and the notification, in one statement."""
    title, body = texts.notification(row | {"error_summary": summary}) or ("", "")
    level = "warning" if row["status"] in ("paused", "failed", "partial") else "info"
    given = {"run": row["id"], "status": row["status"], "owner": row["owner_id"], "summary": summary, "now": now}
    await write(sql.TELL, given | {"resume_at": resume_at, "title": title, "body": body, "level": level})


async def abandon(ledger: Ledger, account_id: int, why: str, now: datetime) -> None:
    """An account that nobody can read any more: its runs go on without it, or pause and say so."""
    async with ledger.together() as write:
        for run in await write(sql.RUNS, ([account_id],)):
            if await write(sql.STEP_ASIDE, {"run": run["id"], "me": account_id}):
                continue
            given = {"run": run["id"], "reason": PauseReason.ACCOUNT_DOWN.value, "now": now}
            for row in await write(sql.PAUSE_RUN, given):
                await _describe(write, row, texts.paused(row, why), None, now)


async def describe_again(ledger: Ledger, run_id: int) -> None:
    """An operator paused the run while something was in flight; now that it has landed, the counts are final."""
    for row in await ledger.write(sql.PAUSED_BY_OPERATOR, (run_id,)):
        await ledger.write(sql.DESCRIBE_RUN, (texts.paused(row), row["resume_at"], run_id, "paused"))


async def change_account(ledger: Ledger, account_id: int, change: AccountChange, now: datetime) -> None:
    reason = plain(change.reason)
    given = {"account": account_id, "status": change.status, "reason": reason, "until": change.until, "now": now}
    async with ledger.together() as write:
        for row in await write(sql.CHANGE_ACCOUNT, given):
            await write(sql.ADD_EVENT, (None, account_id, now, change.status, reason))
            title, body = f"Account {change.status}", f"{row['label']}: {reason}"
            await write(sql.NOTIFY, (row["owner_id"], None, account_id, title, body, "error", now))


async def pause_account(ledger: Ledger, account_id: int, reason: str, now: datetime) -> None:
    await change_account(ledger, account_id, AccountChange("paused", reason), now)


async def end_suspension(ledger: Ledger, account_id: int, now: datetime) -> None:
    """A temporary ban is over: active again, beginning with a probe."""
    async with ledger.together() as write:
        if await write(sql.END_SUSPENSION, {"account": account_id, "now": now}):
            await write(sql.PROBE, (account_id,))
            await write(sql.ADD_EVENT, (None, account_id, now, "reactivated", "the suspension has ended; probing"))
