"""When a target is planned to go out, after all that has moved the plan since it was made.

The plan is stored with the targets once, when the run is made. What moves it later is stored with the run, one entry
per account (`Run.slips`): writing it to every target of a large run would stop the lanes for that long.
"""

from __future__ import annotations

from datetime import datetime

from fanout.models import Run, RunTarget

#: the same as `planned_time` for SQL that joins fanout_runtarget t and fanout_run r
PLANNED_AT = """
CASE WHEN r.slips -> t.account_id::text IS NULL THEN t.planned_at
     ELSE t.planned_at + ((r.slips -> t.account_id::text ->> 'to')::timestamptz
                          - coalesce((r.slips -> t.account_id::text ->> 'from')::timestamptz, t.planned_at)) END
"""


def planned_time(target: RunTarget, run: Run) -> datetime | None:
    """None: nobody knows, because the run waits for something without a known end."""
    slip = run.slips.get(str(target.account_id))
    if slip is None or target.planned_at is None or target.status != RunTarget.Status.PENDING:
        return target.planned_at
    if slip["to"] is None:
        return None
    begins = datetime.fromisoformat(slip["to"])
    return begins + (target.planned_at - datetime.fromisoformat(slip["from"])) if slip["from"] else begins


def slip_reason(target: RunTarget, run: Run) -> str:
    """Why the plan moved; empty while it holds."""
    slip = run.slips.get(str(target.account_id))
    return str(slip["why"]) if slip and target.status == RunTarget.Status.PENDING else ""
