"""Sentences for failures that are not bugs, which manage.py and all commands print instead of a traceback."""

from __future__ import annotations

import errno
import sys
from typing import Any

import psycopg
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, OperationalError, ProgrammingError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.views import defaults
from psycopg import errors

# Django wraps what its own connection raises; the engine has psycopg's own.
UNAVAILABLE = (OperationalError, psycopg.OperationalError)
OUTDATED = (ProgrammingError, psycopg.ProgrammingError)
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
OUR_APPS = ("accounts", "reminders", "fanout")
MIGRATE = "run `manage.py migrate`, or `manage.py up`, which does it too"
ANOTHER_VERSION = (
    "This database was made by another version of Crier, whose tables differ. Use the version it was made by, or begin "
    "with a new database: without DATABASE_URL, move `postgres` out of the data directory (`var`, or CRIER_VAR)."
)
TOO_OLD = (
    "This database was made by a version before 0.10. Upgrade to Crier 0.10.0 first and run its `manage.py migrate`, "
    "then upgrade to this version. Nothing was changed."
)
AWAY = "The database cannot be reached at the moment. Try again in a few seconds.\n"
LOCKED = (
    "Another session has locked what this would change, and has not let go of it in time. Nothing was changed: try "
    "again in a minute. If it stays like this, `manage.py doctor` names the session."
)
BEHIND_A_PROXY = (
    "A pooling proxy stands between Crier and PostgreSQL: session advisory locks are not safe there. "
    "Point DATABASE_URL at PostgreSQL itself."
)
#: seconds, in answers with the status 503
RETRY_AFTER = "5"
#: PostgreSQL's classes of errors: connection exceptions, operator intervention such as a restart, too many connections
AWAY_CODES = ("08", "57P", "53300")


def sentence(error: BaseException) -> str:
    """Return a sentence about this error; empty if it is a bug and needs its traceback."""
    if isinstance(error, ImproperlyConfigured):
        return str(error)
    if is_full(error):
        return f"The disk is full: free some space, then try again ({first_line(error)})."
    if isinstance(error, OSError) and error.errno in NOT_ALLOWED and error.filename:
        return f"{error.filename} cannot be used: {error.strerror}. Give Crier's user the right to it."
    if is_locked(error):
        return LOCKED
    if is_proxy(error):
        return BEHIND_A_PROXY
    if isinstance(error, UNAVAILABLE):
        return f"The database is not available: {first_line(error)}."
    return set_up_problem() if isinstance(error, OUTDATED) else ""


def first_line(error: BaseException) -> str:
    """Return the first line of the error: PostgreSQL adds advice on further lines."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def set_up_problem() -> str:
    """Return why the database cannot be used yet; empty if every migration is applied."""
    try:
        wrong, left, empty = version_problem(), migrations_left(), is_empty()
    except DatabaseError:
        # The question itself failed, inside a broken transaction for example: the first error says more.
        return ""
    if wrong or not left:
        return wrong
    state = "not set up" if empty else f"not up to date, {left} migrations are not applied"
    return f"The database is {state}: {MIGRATE}."


def migrations_left() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def version_problem() -> str:
    """Return why this version cannot use the database, whose tables another version made; empty if it can."""
    migrations = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    applied = {key for key in MigrationRecorder(connection).applied_migrations() if key[0] in OUR_APPS}
    squashed = [set(m.replaces) for key, m in migrations.items() if m.replaces and key not in applied]
    # Django leaves a squashed migration out when only some of those that it replaces were applied, without a word.
    if any(old & applied and not old <= applied for old in squashed):
        return TOO_OLD
    known = {*migrations, *(old for m in migrations.values() for old in m.replaces)}
    return ANOTHER_VERSION if applied - known else ""


@register(Tags.database)
def fitting_tables(app_configs: Any = None, databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Keep `manage.py migrate` from a database that this version cannot upgrade. Other commands name no databases."""
    problem = version_problem() if databases else ""
    return [Error(problem, id="crier.E003")] if problem else []


def is_empty() -> bool:
    """Return whether no migration has ever been applied."""
    return not MigrationRecorder(connection).applied_migrations()


def is_full(error: BaseException) -> bool:
    cause = error.__cause__ if isinstance(error, DatabaseError) else error
    return isinstance(cause, errors.DiskFull) or getattr(cause, "errno", None) == errno.ENOSPC


def is_away(error: BaseException | None) -> bool:
    """Return whether the database could not be reached, or ended the connection. Other errors of the same class, such
    as a deadlock, do not count."""
    if not isinstance(error, UNAVAILABLE):
        return False
    cause = error.__cause__ if isinstance(error, OperationalError) else error
    code = getattr(cause, "sqlstate", None)
    return code is None or code.startswith(AWAY_CODES)


def is_locked(error: BaseException | None) -> bool:
    """Return whether the database refused because another session has locked a row for longer than we wait."""
    cause = error.__cause__ if isinstance(error, OperationalError) else error
    return isinstance(cause, errors.LockNotAvailable)


def is_proxy(error: BaseException) -> bool:
    """Return whether a pooling proxy refused the connection: unlike PostgreSQL it takes no options of a session."""
    return isinstance(error, UNAVAILABLE) and "unsupported startup parameter" in str(error)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the error page: 503 while the database is away or another session has locked what it needs, else 500."""
    error = sys.exc_info()[1]
    locked = is_locked(error)
    if not locked and not is_away(error):
        return defaults.server_error(request)
    page = loader.get_template("503.html").render({"locked": LOCKED if locked else ""})
    return HttpResponse(page, status=503, headers={"Retry-After": RETRY_AFTER, "Cache-Control": "no-store"})
