"""Which tests a mutant is shown to: those that reach what was changed, the quickest first.

Inside a function they are the tests that execute it. What stands outside of functions (a constant, the text of a
statement) is followed by its name, through other constants and imports, to the functions that use it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from tests.mutants.areas import AREAS, area_of
from tests.mutants.changes import Mutant
from tests.mutants.reach import Function, Reach, function_at, functions
from tests.mutants.swapping import OURS, ROOT

ENOUGH = 60.0  # seconds that a survivor's tests take


def shown(mutant: Mutant, reach: Reach) -> dict[str, float]:
    """With the seconds that each of them takes."""
    area = area_of(mutant.file)
    named = AREAS[area].tests if area else ()
    first = {test for test in reach.seconds if test.startswith(named)} if named else set()
    others = {test for function in _changed(mutant, reach) for test in reach.tests.get(function, ())} - first
    chosen = [*quickest(first, reach.seconds, variety=0.0), *quickest(others, reach.seconds)]
    return {test: reach.seconds[test] for test in chosen}


def quickest(tests: Iterable[str], seconds: dict[str, float], variety: float = ENOUGH / 3) -> list[str]:
    """Enough of them: first one of every test file, as far as a part of the time goes, then whatever is quick."""
    ordered = sorted(tests, key=lambda test: (seconds[test], test))
    files = {file_of(test): test for test in reversed(ordered)}  # the quickest of each
    chosen: dict[str, float] = {}
    for limit, those in ((variety, sorted(files.values(), key=seconds.__getitem__)), (ENOUGH, ordered)):
        for test in those:
            if sum(chosen.values()) + seconds[test] <= limit:
                chosen[test] = seconds[test]
    return sorted(chosen, key=seconds.__getitem__) or ordered[:1]


def file_of(test: str) -> str:
    return test.partition("::")[0]


def _changed(mutant: Mutant, reach: Reach) -> set[str]:
    """The functions that do something else now."""
    function = function_at(mutant.file, mutant.line)
    if function is None:
        return set(chain.from_iterable(users(mutant.file, name) for name in _names_at(mutant.file, mutant.line)))
    key = f"{mutant.file}::{function}"
    # One that keeps its answer, or was called by an import, ran for whoever asked first; the others use it as well.
    if key in reach.at_import or not reach.tests.get(key) or _keeps_its_answer(mutant.file, function):
        return {key, *users(mutant.file, function.partition(".")[0])}
    return {key}


def _keeps_its_answer(file: str, function: str) -> bool:
    decorators = chain.from_iterable(node.decorator_list for name, node in functions(file) if name == function)
    return any("cache" in ast.unparse(decorator) for decorator in decorators)


def _names_at(file: str, line: int) -> list[str]:
    around = (node for node in _tree(file).body if node.lineno <= line <= (node.end_lineno or 0))
    # What names nothing, as a call does, may be about any of them.
    return [name for node in around for name in _names(node)] or [name for name, _ in functions(file)]


def _names(statement: ast.AST) -> Iterator[str]:
    """What a statement outside of functions gives a value to."""
    if isinstance(statement, ast.ClassDef | Function):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    else:
        for child in ast.iter_child_nodes(statement):
            yield from _names(child)


# --- from a name to the functions that use it -----------------------------------------------------------


@cache
def users(file: str, name: str) -> frozenset[str]:
    """Functions in which a name of this module is used, by whatever way it comes there; a class is its methods too."""
    found: set[str] = set()
    known = [(file, name)]
    for file, name in known:  # it grows
        found |= {f"{file}::{function}" for function, _ in functions(file) if function.startswith(f"{name}.")}
        for other in _modules_with(name):
            aliases = _aliases(other, file, name)
            if other == file:
                aliases.add((name,))
            known += [(other, alias[0]) for alias in aliases if len(alias) == 1 and (other, alias[0]) not in known]
            for function, owners, node in _pieces(other) if aliases else ():
                if any(_named(part) in aliases for part in ast.walk(node)):
                    found |= {f"{other}::{function}"} if function else set()
                    known += [(other, owner) for owner in owners if (other, owner) not in known]
    return frozenset(found)


def _named(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return (node.id,)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return (node.value.id, node.attr)
    return ()


def _pieces(file: str) -> Iterator[tuple[str, tuple[str, ...], ast.AST]]:
    """What uses names: a function's statements, or a statement outside of functions with what it gives a value to."""
    for function, node in functions(file):
        for piece in [*node.body, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            yield function, (), piece
    for statement in _tree(file).body:
        if isinstance(statement, ast.ClassDef):
            for piece in [*statement.bases, *(s for s in statement.body if not isinstance(s, Function))]:
                yield "", (statement.name,), piece
        elif not isinstance(statement, Function):
            yield "", tuple(_names(statement)), statement


def _aliases(file: str, origin: str, name: str) -> set[tuple[str, ...]]:
    """What a module calls a name of another one: alone, or behind the name of its module."""
    module = origin.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    aliases: set[tuple[str, ...]] = set()
    imports = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.ImportFrom))
    for node in imports:
        for alias in node.names:
            if node.module == module and alias.name == name:
                aliases.add((alias.asname or alias.name,))
            elif f"{node.module}.{alias.name}" == module:
                aliases.add((alias.asname or alias.name, name))
    return aliases


@cache
def _modules_with(name: str) -> list[str]:
    return [file for file, text in _sources().items() if name in text]


@cache
def _sources() -> dict[str, str]:
    paths: Iterator[Path] = chain.from_iterable(sorted(ROOT.glob(f"{package}/**/*.py")) for package in OURS)
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_bytes())
