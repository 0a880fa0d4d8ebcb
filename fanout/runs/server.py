"""The history of the database server, and whether reminders may be fired on it."""

from __future__ import annotations

from typing import NamedTuple

from fanout.database import Steps, carry_out
from fanout.models import KnownServer

NOT_ACCEPTED = (
    "Nothing can be fired now: the database may lack the last commits, perhaps also this run. Look at Lost messages in "
    "the admin or at `manage.py lost_commits`, and fire it when that is confirmed."
)


class History(NamedTuple):
    """A history of PostgreSQL. Every role may read it; where a provider of databases forbids it, the first is 0."""

    system_identifier: int
    timeline: int


MAY_IDENTIFY = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'execute') AS yes"
TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"
HISTORY = f"SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier, {TIMELINE} AS timeline"
TIMELINE_ONLY = f"SELECT 0 AS system_identifier, {TIMELINE} AS timeline"


def server_history() -> Steps[History]:
    """Return the history of the server that carries this out."""
    (may,) = yield MAY_IDENTIFY, {}
    (row,) = yield (HISTORY if may["yes"] else TIMELINE_ONLY), {}
    return History(row["system_identifier"], row["timeline"])


def may_fire() -> bool:
    """Return whether reminders may be fired: not on a server that the drivers have not accepted yet. What it lacks may
    be the run that has gone out."""
    known = KnownServer.objects.first()
    if known is None or known.timeline is None:
        return True
    return not known.held and History(known.system_identifier or 0, known.timeline) == carry_out(server_history())
