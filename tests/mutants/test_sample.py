"""Forty wrong changes, each with the one test that must notice it. `make mutants` tries many more."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import verdicts_of
from tests.mutants.changes import Mutant, mutants, sql_conditions
from tests.mutants.sample import sample


@pytest.mark.processes
def test_every_mutant_of_the_sample_is_noticed_by_its_test() -> None:
    wanted = sample()
    verdicts = verdicts_of(wanted)
    assert len(verdicts) == len(wanted) == 40
    assert {_named(verdict): verdict["verdict"] for verdict in verdicts} == {_named(m): "noticed" for m in wanted}


def _named(raw: dict[str, object]) -> str:
    return f"{raw['file']}: {raw['before']} → {raw['after']} ({raw['test']})"


def test_conditions_of_sql_are_found_whole() -> None:
    text = (
        '"""SELECT 1 FROM a WHERE x = 1 AND CASE WHEN y THEN NOT z ELSE true END AND (p IS NULL OR p > 2) ORDER BY x"""'
    )
    assert [text[start:end] for start, end, _ in sql_conditions(text)] == [
        "x = 1",
        "CASE WHEN y THEN NOT z ELSE true END",
        "y",
        "(p IS NULL OR p > 2)",
        "p IS NULL",
        "p > 2",
    ]


def test_a_triggers_condition_ends_before_what_it_executes() -> None:
    text = '"""CREATE TRIGGER t AFTER UPDATE ON a FOR EACH ROW WHEN (NEW.x <> OLD.x) EXECUTE FUNCTION f();"""'
    assert [text[start:end] for start, end, _ in sql_conditions(text)][:1] == ["(NEW.x <> OLD.x)"]


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        pytest.param("a = b < c", ["a = b <= c"], id="comparison"),
        pytest.param("f()", ["pass"], id="call left out"),
        pytest.param("a = not b", ["a = bool(b)"], id="not"),
        pytest.param("a = 3", ["a = (3 + 1)"], id="constant"),
        pytest.param("a = b and c", ["a = True and c", "a = b or c", "a = b and True"], id="and"),
        pytest.param("log.info('x')", [], id="words"),
        pytest.param("a: int | None = None", [], id="annotation"),
        pytest.param('"""Docstring with WHERE in it."""', [], id="docstring"),
    ],
)
def test_what_python_suffers(source: str, changed: list[str]) -> None:
    made = mutants("m.py", source.encode())
    assert [mutant.applied(source.encode()).decode() for mutant in made] == changed


def test_a_mutant_of_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="is not what it was"):
        Mutant("m.py", 0, 1, "a < b", "a > b").applied(b"c < d")
