"""Check that docs/testing.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def named_tests() -> list[tuple[str, str]]:
    return sorted(set(NAMED.findall((ROOT / "docs" / "testing.md").read_text())))


@pytest.mark.parametrize(("path", "name"), named_tests())
def test_a_test_that_a_promise_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


def test_every_row_names_a_test() -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = text.partition("| promise | test |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row)] == []
