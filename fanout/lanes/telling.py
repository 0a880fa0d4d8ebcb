"""What an account's owner is told when it cannot send: the cause, and the reminders that are held by it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fanout.lanes.statements import Row, Steps, notify
from fanout.models.run import Run, in_sql

NAMED = 3

# The live runs of an account: counted all, named those that its owner may see.
HELD = f"""
SELECT count(*) OVER () AS runs, r.title,
       r.owner_id = %(owner)s
       OR r.team_id IN (SELECT g.group_id FROM auth_user_groups g WHERE g.user_id = %(owner)s) IS TRUE AS visible
  FROM fanout_run r
 WHERE r.status IN {in_sql(Run.LIVE)} AND r.lanes @> ARRAY[%(account)s]::bigint[]
 ORDER BY visible DESC, r.scheduled_for, r.id LIMIT {NAMED}
"""


def tell_owner(account: Row, title: str, cause: str, level: str, now: datetime) -> Steps[None]:
    """`account`: its `id`, `owner_id` and `label`."""
    held = yield HELD, {"account": account["id"], "owner": account["owner_id"]}
    body = f"{account['label']}: {cause}"
    if held:
        body = f"{body.rstrip('.')}. {_holds(held)}"
    yield notify(account["owner_id"], now, title, body, level, account=account["id"])


def _holds(held: Sequence[Row]) -> str:
    """Which runs wait for the account, as in: Holds: Rent, Water (2 runs)."""
    runs = held[0]["runs"]
    counted = "1 run" if runs == 1 else f"{runs:,} runs"
    titles = ", ".join(dict.fromkeys(run["title"] for run in held if run["visible"]))
    return f"Holds: {titles} ({counted})." if titles else f"Holds {counted}."
