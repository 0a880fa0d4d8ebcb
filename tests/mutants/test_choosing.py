"""Which tests a mutant is shown to."""

from __future__ import annotations

from tests.mutants.changes import Mutant
from tests.mutants.choosing import ENOUGH, quickest, shown, users
from tests.mutants.reach import Reach, function_at, functions


def test_every_file_has_its_turn_and_then_come_the_quick_ones() -> None:
    seconds = {"a.py::1": 1.0, "a.py::2": 2.0, "a.py::3": ENOUGH, "b.py::1": ENOUGH / 4, "c.py::1": ENOUGH / 2}
    assert quickest(seconds, seconds) == ["a.py::1", "a.py::2", "b.py::1", "c.py::1"]
    slow = {f"a.py::{n}": ENOUGH / 10 for n in range(10)} | {"b.py::1": ENOUGH / 5}
    assert "b.py::1" in quickest(slow, slow)
    assert "b.py::1" not in quickest(slow, slow, variety=0.0)


def test_one_test_is_shown_however_slow_it_is() -> None:
    assert quickest({"a.py::slow"}, {"a.py::slow": 2 * ENOUGH}) == ["a.py::slow"]


def test_a_line_belongs_to_the_innermost_function() -> None:
    line = function_at.__code__.co_firstlineno
    assert function_at("tests/mutants/reach.py", line) == "function_at"
    assert function_at("tests/mutants/reach.py", 1) is None


def test_a_constant_is_followed_through_others_to_the_functions_that_use_it() -> None:
    """PENDING is a part of CLAIM, and the ledger's batch claims."""
    assert any(user.startswith("fanout/engine/") for user in users("fanout/engine/commit.py", "PENDING"))


def test_a_mutant_in_a_function_is_shown_to_the_tests_that_execute_it() -> None:
    file, function = "fanout/rules/pace.py", "earliest_send"
    line = next(node.lineno for name, node in functions(file) if name == function)
    kept = {"seconds": {"t.py::a": 2.0, "t.py::b": 1.0, "t.py::c": 0.1}, "tests": {f"{file}::{function}": [0, 1]}}
    assert list(shown(Mutant(file, 0, line, "", ""), Reach(kept))) == ["t.py::b", "t.py::a"]
