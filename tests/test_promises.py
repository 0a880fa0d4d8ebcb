"""Check that docs/testing.md and docs/threat-model.md name tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
#: a document, the heading of its table, and how many rows that has at least
TABLES = {"testing.md": ("| README | promise | test |", 20), "threat-model.md": ("| who | may | wants |", 12)}


def named_tests() -> list[tuple[str, str]]:
    return sorted({test for name in TABLES for test in NAMED.findall((ROOT / "docs" / name).read_text())})


@pytest.mark.parametrize(("path", "name"), named_tests())
def test_a_test_that_a_promise_names_exists(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions_of(path)


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_names_a_test(name: str) -> None:
    heading, least = TABLES[name]
    rows = rows_below(heading, (ROOT / "docs" / name).read_text())
    assert len(rows) > least
    assert [row for row in rows if not NAMED.search(row)] == []


def rows_below(heading: str, text: str) -> list[str]:
    return text.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]


def first_cell(row: str) -> str:
    return row.split("|")[1].strip()


def test_every_step_protection_page_and_command_of_the_readme_has_a_row() -> None:
    readme = (ROOT / "README.md").read_text()
    steps = re.findall(r"^(\d+)\. ", readme.partition("## How it works")[2].partition("\n## ")[0], re.MULTILINE)
    promised = [f"How it works {number}" for number in steps]
    for section, heading in (
        ("## What keeps accounts alive", "| protection | what it does |"),
        ("## Pages", "| page | what it is for |"),
        ("## Commands", "| command | does |"),
    ):
        promised += map(first_cell, rows_below(heading, readme.partition(section)[2]))
    assert len(promised) > 25
    rows = rows_below(TABLES["testing.md"][0], (ROOT / "docs" / "testing.md").read_text())
    tested = {source for row in rows for source in first_cell(row).split("; ")}
    assert [promise for promise in promised if promise not in tested] == []
