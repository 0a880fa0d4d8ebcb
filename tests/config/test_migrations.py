"""Check the migrations: they describe the models, and from 1.0 on they only add.

“Upgrade without stopping” in docs/operations.md says why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently, RemoveIndexConcurrently
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

ROOT = Path(__file__).resolve().parents[2]
OURS = ("accounts", "reminders", "fanout")
#: what the code that is running beside an upgrade does not notice
ADDS = (
    migrations.CreateModel,
    migrations.AddIndex,
    AddIndexConcurrently,
    migrations.RemoveIndex,
    RemoveIndexConcurrently,
    migrations.AddConstraint,
    AddConstraintNotValid,
    migrations.AlterModelOptions,
    migrations.AlterModelManagers,
    migrations.RunSQL,
    migrations.RunPython,
)


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


# --- the tables are what the models say ------------------------------------------------------------------

COLUMNS = """
SELECT table_name, column_name, data_type, udt_name, character_maximum_length, is_nullable, column_default, is_identity
  FROM information_schema.columns WHERE table_schema = %s AND table_name = ANY(%s)
"""
CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint
 WHERE connamespace = %s::regnamespace AND contype <> 'n' AND conrelid::regclass::text = ANY(%s)
"""
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = ANY(%s)"


@pytest.mark.django_db
def test_the_tables_are_what_the_models_say() -> None:
    """Operations in SQL tell Django what they did: it does not look. So all models are made anew, in a schema of their
    own, and compared with what the migrations have made."""
    ours = [model for app in OURS for model in apps.get_app_config(app).get_models()]
    tables = [model._meta.db_table for model in ours]
    with connection.cursor() as cursor:
        migrated = described("public", tables)
        cursor.execute("CREATE SCHEMA anew")
        cursor.execute("SET LOCAL search_path = anew, public")
        with connection.schema_editor(atomic=False) as editor:
            for model in ours:
                editor.create_model(model)
        anew = described("anew", tables)
        cursor.execute("SET LOCAL search_path = public")
    for kind, rows in anew.items():
        assert migrated[kind] == rows, kind


def described(schema: str, tables: list[str]) -> dict[str, list[tuple[str, ...]]]:
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL search_path = {schema}, public")
        for kind, query in (("columns", COLUMNS), ("constraints", CONSTRAINTS), ("indexes", INDEXES)):
            cursor.execute(query, [schema, tables])
            plain = [tuple(str(cell).replace(f"{schema}.", "") for cell in row) for row in cursor.fetchall()]
            found[kind] = sorted(plain)
    return found


# --- they only add ---------------------------------------------------------------------------------------


def test_migrations_only_add() -> None:
    loader = MigrationLoader(None)
    for key, migration in loader.disk_migrations.items():
        if key[0] in OURS and not migration.replaces:
            before = loader.project_state(key, at_end=False)
            assert list(not_additive(migration.operations, key[0], before)) == [], key


@pytest.mark.parametrize(
    ("operation", "adds"),
    [
        pytest.param(migrations.AddField("run", "note", models.TextField(null=True)), True, id="nullable"),
        pytest.param(migrations.AddField("run", "note", models.TextField(db_default="")), True, id="database default"),
        pytest.param(migrations.AddField("run", "note", models.TextField(default="")), False, id="Django's default"),
        pytest.param(
            migrations.AlterField("run", "title", models.CharField(max_length=200, help_text="Its reminder's.")),
            True,
            id="other words",
        ),
        pytest.param(migrations.AlterField("run", "title", models.CharField(max_length=20)), False, id="another type"),
        pytest.param(migrations.RenameField("run", "title", "name"), False, id="renamed"),
        pytest.param(migrations.RemoveField("run", "title"), False, id="removed"),
        pytest.param(migrations.DeleteModel("run"), False, id="deleted"),
        pytest.param(migrations.RemoveConstraint("run", "run_window_in_one_day"), True, id="less is checked"),
        pytest.param(migrations.RemoveConstraint("run", "run_one_message_2"), False, id="no longer unique"),
        pytest.param(migrations.RunSQL("SELECT 1"), True, id="SQL"),
        pytest.param(
            migrations.SeparateDatabaseAndState([], [migrations.RemoveField("run", "title")]),
            True,
            id="only Django forgets it",
        ),
    ],
)
def test_what_adds(operation: Operation, adds: bool) -> None:
    assert (list(not_additive([operation], "fanout", MigrationLoader(None).project_state())) == []) is adds


def not_additive(operations: Sequence[Operation], app: str, state: ProjectState) -> Iterator[str]:
    """Yield what the code of the version before would notice."""
    for operation in operations:
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from not_additive(operation.database_operations, app, state.clone())
        elif isinstance(operation, migrations.AddField):
            if not operation.field.null and not operation.field.has_db_default():
                yield f"{operation.describe()}: old code cannot write rows"
        elif isinstance(operation, migrations.AlterField):
            old = state.models[app, operation.model_name_lower].get_field(operation.name)
            if stored(old) != stored(operation.field):
                yield f"{operation.describe()}: write its SQL, and say why old code gets along with it"
        elif isinstance(operation, migrations.RemoveConstraint):
            old = state.models[app, operation.model_name_lower].get_constraint_by_name(operation.name)
            if not isinstance(old, models.CheckConstraint):  # a statement may name it in ON CONFLICT
                yield operation.describe()
        elif not isinstance(operation, ADDS):
            yield operation.describe()
        operation.state_forwards(app, state)


def stored(field: models.Field) -> tuple[object, ...]:
    """Return what the database knows of a field: choices and texts are Django's alone."""
    _, path, args, options = field.deconstruct()
    return path, args, {name: value for name, value in options.items() if name not in field.non_db_attrs}


# --- they are frozen -------------------------------------------------------------------------------------


def test_migrations_do_not_change_with_the_code() -> None:
    """They import Django, their own pieces of SQL, and fields of ours by which columns are stored."""
    for path in (path for app in OURS for path in (ROOT / app / "migrations").rglob("*.py")):
        for name in imported(path):
            allowed = name.startswith(("django.", "accounts.fields", f"{path.relative_to(ROOT).parts[0]}.migrations."))
            assert allowed or name in ("datetime", "__future__"), f"{path.relative_to(ROOT)} imports {name}"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
