"""Emptying the database after a test that committed.

Django truncates every table, whether anything is in it or not, and makes permissions and roles anew. Most tests leave
rows in a few tables and never touch those two: here only what has rows is emptied.
"""

from __future__ import annotations

import shutil
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper
from django.test import TransactionTestCase

from fanout.ops import tasks

#: made with the tables, and left alone by nearly all tests
KEPT = ("django_content_type", "auth_permission", "auth_group", "auth_group_permissions")
MIGRATIONS = "django_migrations"
#: bytes above which a table is truncated: that takes as long for a million rows as for none
LARGE = 4_000_000

djangos_own = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]
#: by database: how many rows of each kept table there were after the first emptying, which was Django's
_kept: dict[str, list[int]] = {}


def empty(test_case: Any) -> None:
    """In place of `TransactionTestCase._fixture_teardown`."""
    for alias in test_case._databases_names(include_mirrors=False):
        connection = connections[alias]
        forget_claims(alias)
        with connection.cursor() as cursor:
            if _counts(cursor, KEPT) != _kept.get(connection.settings_dict["NAME"]):
                djangos_own(test_case)
                _kept[connection.settings_dict["NAME"]] = _counts(cursor, KEPT)
                continue
            tables = sorted({*connection.introspection.table_names(cursor)} - {*KEPT, MIGRATIONS})
            _empty(cursor, tables)


def forget_claims(alias: str = "default") -> None:
    """Remove the journal of a database that was emptied: it is about rows that are gone. This process opens another
    one: a test may have set `VAR_DIR` when it opened the first."""
    tasks.journal_of.cache_clear()
    name = quote(connections[alias].settings_dict["NAME"])
    shutil.rmtree(settings.VAR_DIR / "claims" / name, ignore_errors=True)


def _empty(cursor: CursorWrapper, tables: list[str]) -> None:
    filled = " UNION ALL ".join(f"(SELECT '{t}', pg_relation_size('{t}') FROM {t} LIMIT 1)" for t in tables)
    cursor.execute(filled)
    sizes = dict(cursor.fetchall())
    if any(size > LARGE for size in sizes.values()):
        cursor.execute(f"TRUNCATE {', '.join(tables)}")
    elif sizes:
        with transaction.atomic(cursor.db.alias):
            cursor.execute("SET LOCAL session_replication_role = replica")  # without triggers: everything goes
            cursor.execute("; ".join(f"DELETE FROM {table}" for table in sizes))


def _counts(cursor: CursorWrapper, tables: tuple[str, ...]) -> list[int]:
    cursor.execute("SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in tables))
    return list(cursor.fetchone())
