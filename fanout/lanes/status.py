"""How an account is stopped and started again, by the engine or by an operator: one statement and its timeline line."""

from __future__ import annotations

from datetime import datetime

from accounts.models import Account
from fanout.lanes.poke import poking, probing
from fanout.lanes.statements import Row, Steps, add_event
from fanout.lanes.telling import tell
from fanout.rules.outcomes import AccountChange

Status = Account.Status

CHANGE = """
UPDATE accounts_account
   SET status = %(status)s::varchar, status_reason = %(reason)s, status_until = %(until)s::timestamptz,
       status_changed_at = %(now)s, updated_at = %(now)s
 WHERE id = %(account)s AND status = ANY(%(before)s::varchar[])
   AND (NOT %(ended)s::boolean OR status_until <= %(now)s)
   AND (NOT archived OR %(status)s::varchar <> 'active')
RETURNING id, owner_id, team_id, label
"""

REMEMBER_ERROR = "UPDATE accounts_account SET last_error = %(error)s, last_error_at = %(now)s WHERE id = %(account)s"


def stop(account: int, change: AccountChange, now: datetime) -> Steps[bool]:
    """The engine stops an active account because of trouble, and tells its owner and team."""
    rows = yield from _change(account, change, now, [Status.ACTIVE])
    for row in rows:
        yield REMEMBER_ERROR, {"account": account, "error": change.reason, "now": now}
        yield add_event(now, change.status, change.reason, account=account)
        yield from tell(row, f"Account {change.status}", change.reason, "error", now)
    return bool(rows)


def pause(account: int, reason: str, actor: int | None, now: datetime) -> Steps[bool]:
    """An operator's pause, whatever the account was before."""
    rows = yield from _change(account, AccountChange(Status.PAUSED, reason), now, _all_but(Status.PAUSED))
    if rows:
        yield poking([account], now)
        yield add_event(now, "paused", reason, account=account, actor=actor)
    return bool(rows)


def reactivate(account: int, actor: int | None, now: datetime) -> Steps[bool]:
    """An operator's decision: the account may send again, beginning with a single trial message."""
    rows = yield from _change(account, AccountChange(Status.ACTIVE, ""), now, _all_but(Status.ACTIVE))
    if rows:
        yield probing([account], now)
        yield add_event(now, "reactivated", account=account, actor=actor)
    return bool(rows)


def end_suspension(account: int, now: datetime) -> Steps[bool]:
    """A temporary ban is over: active again, beginning with a single trial message."""
    rows = yield from _change(account, AccountChange(Status.ACTIVE, ""), now, [Status.SUSPENDED], ended=True)
    if rows:
        yield probing([account], now)
        yield add_event(now, "reactivated", "the suspension has ended; probing", account=account)
    return bool(rows)


def pair_again(account: int, now: datetime) -> Steps[bool]:
    """An unpaired account is connected, says its provider: active again, beginning with a single trial message."""
    rows = yield from _change(account, AccountChange(Status.ACTIVE, ""), now, [Status.UNPAIRED])
    if rows:
        yield probing([account], now)
        yield add_event(now, "reactivated", "the provider reports that it is connected again; probing", account=account)
    return bool(rows)


def _change(
    account: int, change: AccountChange, now: datetime, before: list[str], ended: bool = False
) -> Steps[list[Row]]:
    rows = yield (
        CHANGE,
        {
            "account": account,
            "status": change.status,
            "reason": change.reason,
            "until": change.until,
            "now": now,
            "before": before,
            "ended": ended,
        },
    )
    return rows


def _all_but(status: str) -> list[str]:
    return [other for other in Status.values if other != status]
