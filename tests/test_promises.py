"""Check that docs/testing.md and docs/threat-model.md name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
#: a document, the heading of its table, and how many rows that has at least
TABLES = {"testing.md": ("| promise | test |", 20), "threat-model.md": ("| who | may | wants |", 12)}


def named_tests() -> list[tuple[str, str]]:
    return sorted({test for name in TABLES for test in NAMED.findall((ROOT / "docs" / name).read_text())})


@pytest.mark.parametrize(("path", "name"), named_tests())
def test_a_test_that_a_promise_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


@pytest.mark.parametrize("name", TABLES)
def test_every_row_names_a_test(name: str) -> None:
    heading, least = TABLES[name]
    text = (ROOT / "docs" / name).read_text()
    rows = text.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > least
    assert [row for row in rows if not NAMED.search(row)] == []
