"""Notify operators about a run, an account or a reminder, and add lines to timelines. A notification about an account
names the cause and the reminders that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fanout.database import Row, Statement, Steps
from fanout.models.run import Run, in_sql
from reminders.models import Reminder

NAMED = 3

# The owner, and members of the team who want its notifications. For operators without the bell they are created as
# read; mail and webhook are sent all the same.
AUDIENCE = """
SELECT u.id, CASE WHEN coalesce(s.bell, true) THEN NULL ELSE %(now)s::timestamptz END AS read_at
  FROM auth_user u LEFT JOIN fanout_subscription s ON s.user_id = u.id
 WHERE u.is_active
   AND u.id IN (SELECT %(owner)s::bigint
                 UNION SELECT g.user_id FROM auth_user_groups g WHERE g.group_id = %(team)s::bigint)
   AND (u.id = %(owner)s::bigint OR coalesce(s.team, true))
"""

NOTIFY = f"""
INSERT INTO fanout_notification (user_id, account_id, reminder_id, title, body, level, created_at, read_at)
SELECT a.id, %(account)s::bigint, %(reminder)s::bigint, %(title)s::varchar, %(body)s::text, %(level)s::varchar,
       %(now)s::timestamptz, a.read_at
  FROM ({AUDIENCE}) AS a WHERE a.id IS DISTINCT FROM %(but)s::bigint
"""

# The live runs of an account: all are counted, and those are named that its owner, or its team, may see.
HELD = f"""
SELECT count(*) OVER () AS runs, r.title,
       (r.owner_id = %(owner)s::bigint OR r.team_id = %(team)s::bigint
        OR r.team_id IN (SELECT g.group_id FROM auth_user_groups g WHERE g.user_id = %(owner)s::bigint)) IS TRUE
       AS visible
  FROM fanout_run r
 WHERE r.status IN {in_sql(Run.LIVE)} AND r.lanes @> ARRAY[%(account)s]::bigint[]
 ORDER BY visible DESC, r.scheduled_for, r.id LIMIT {NAMED}
"""


def tell(account: Row, title: str, cause: str, level: str, now: datetime) -> Steps[None]:
    """Notify the owner and the team of an account. They are told separately: each reads only the titles of runs that
    they may see. `account`: its `id`, `owner_id`, `team_id` and `label`."""
    words = {"account": account["id"], "reminder": None, "title": title, "level": level, "now": now}
    owner = {"owner": account["owner_id"], "team": None}
    held = yield HELD, {"account": account["id"]} | owner
    yield _notify(words | owner, _body(account, cause, held), but=None)
    if account["team_id"] is not None:
        team = {"owner": None, "team": account["team_id"]}
        held = yield HELD, {"account": account["id"]} | team
        yield _notify(words | team, _body(account, cause, held), but=account["owner_id"])


def tell_of_reminder(reminder: Reminder, title: str, body: str, now: datetime) -> Statement:
    """Return the statement that warns a reminder's owner and team."""
    about = {"account": None, "reminder": reminder.pk, "owner": reminder.owner_id, "team": reminder.team_id}
    return _notify(about | {"title": title, "level": "warning", "now": now}, body, but=None)


def _notify(words: Row, body: str, but: int | None) -> Statement:
    return NOTIFY, words | {"body": body, "but": but}


def _body(account: Row, cause: str, held: Sequence[Row]) -> str:
    body = f"{account['label']}: {cause}"
    return f"{body.rstrip('.')}. {_holds(held)}" if held else body


def _holds(held: Sequence[Row]) -> str:
    """Return the runs that wait for the account in words, such as: Holds: Rent, Water (2 runs)."""
    runs = held[0]["runs"]
    counted = "1 run" if runs == 1 else f"{runs:,} runs"
    titles = ", ".join(dict.fromkeys(run["title"] for run in held if run["visible"]))
    return f"Holds: {titles} ({counted})." if titles else f"Holds {counted}."


# --- timelines --------------------------------------------------------------------------------------------

ADD_EVENT = """
INSERT INTO fanout_event (run_id, account_id, actor_id, at, verb, detail)
VALUES (%(run)s, %(account)s, %(actor)s, %(at)s, %(verb)s, %(detail)s)
"""


def add_event(
    at: datetime,
    verb: str,
    detail: str = "",
    *,
    run: int | None = None,
    account: int | None = None,
    actor: int | None = None,
) -> Statement:
    """Return the statement for a line in the timeline of a run or an account. Without an actor it was Crier itself."""
    return ADD_EVENT, {"run": run, "account": account, "actor": actor, "at": at, "verb": verb, "detail": detail}
