"""Which tests execute which functions, and how long each of them takes.

`learn` runs the suite once with coverage.py watching, and keeps what it saw in var/mutants-reach.json. As a pytest
plugin (`-p tests.mutants.reach`) this module is what watches: each process of the run leaves a file of its own.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutants.swapping import OURS, ROOT

REACH = ROOT / "var" / "mutants-reach.json"
QUICK = "not processes and not browser"  # what runs in other processes is seen neither here nor there
AT_IMPORT = ""  # what runs before the first test


class Reach:
    def __init__(self, kept: dict[str, Any]) -> None:
        self.files: dict[str, str] = kept.get("files", {})
        self.seconds: dict[str, float] = kept.get("seconds", {})
        names = list(self.seconds)
        self.tests = {function: {names[n] for n in those} for function, those in kept.get("tests", {}).items()}
        self.at_import: set[str] = set(kept.get("at_import", ()))

    def save(self) -> None:
        number = {name: n for n, name in enumerate(self.seconds)}
        tests = {function: sorted(number[test] for test in those) for function, those in sorted(self.tests.items())}
        kept = {"files": self.files, "seconds": self.seconds, "at_import": sorted(self.at_import), "tests": tests}
        REACH.parent.mkdir(exist_ok=True)
        REACH.write_text(json.dumps(kept, separators=(",", ":")))

    def forget(self, files: set[str]) -> None:
        gone = {test for test in self.seconds if test.partition("::")[0] in files}
        self.files = {file: digest for file, digest in self.files.items() if file not in files}
        self.seconds = {test: seconds for test, seconds in self.seconds.items() if test not in gone}
        self.tests = {function: those - gone for function, those in self.tests.items()}

    def add(self, seen: dict[str, Any]) -> None:
        self.seconds.update(seen["seconds"])
        for function, those in seen["tests"].items():
            self.tests.setdefault(function, set()).update(self.seconds.keys() & set(those))
            if AT_IMPORT in those:
                self.at_import.add(function)


def learn(workers: int, *, everything: bool = False) -> Reach:
    """What is known, after test files that are new or were changed since were run again."""
    reach = Reach(json.loads(REACH.read_text()) if REACH.exists() and not everything else {})
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.glob("tests/**/test_*.py"))}
    digests = {file: blake2b(path.read_bytes(), digest_size=8).hexdigest() for file, path in files.items()}
    old = sorted(file for file in digests if reach.files.get(file) != digests[file])
    reach.forget({*old, *(reach.files.keys() - digests.keys())})
    if old:
        sys.stdout.write(f"Learning what the tests of {len(old)} files reach …\n")
        sys.stdout.flush()
        for seen in _watched(old if reach.files else [], workers):
            reach.add(seen)
        reach.files.update({file: digests[file] for file in old})
        reach.save()
    return reach


def _watched(files: list[str], workers: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reach", "-p", "no:cacheprovider"]
        command += ["-m", QUICK, f"--reach={folder}"]
        command += ["-n", f"{workers}", "--dist", "worksteal"] if not files or len(files) > workers else ["-n", "0"]
        run = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True)
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        sys.stdout.write("".join(f"left out: {line}\n" for line in failed))
        if run.returncode not in (0, 1, 5):
            raise SystemExit(f"The tests could not be watched:\n{run.stdout[-3000:]}{run.stderr[-2000:]}")
        for path in sorted(Path(folder).glob("*.json")):
            yield json.loads(path.read_text())


# --- functions of a module ------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def functions(file: str) -> list[tuple[str, Function]]:
    """With their qualified names, outer before inner."""
    return list(_functions(ast.parse((ROOT / file).read_bytes()), ""))


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            name = f"{inside}{child.name}"
            if isinstance(child, Function):
                yield name, child
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, inside)


def function_at(file: str, line: int) -> str | None:
    """The innermost, its defaults included."""
    found = [name for name, node in functions(file) if node.lineno <= line <= (node.end_lineno or 0)]
    return found[-1] if found else None


@cache
def _of_lines(file: str) -> dict[int, str]:
    """The function that a line belongs to when it runs: a `def` belongs to the one around it."""
    return {
        line: name
        for name, node in functions(file)
        for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    }


# --- the plugin -----------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach", help="the folder for what was seen")


def pytest_configure(config: pytest.Config) -> None:
    watches = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if watches and config.getoption("reach", None):
        config.pluginmanager.register(_Watcher(Path(config.getoption("reach"))))


class _Watcher:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{ROOT / package}/*" for package in OURS]
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = round(self.seconds.get(report.nodeid, 0.0) + report.duration, 3)
        if not report.passed:  # what is skipped notices nothing either
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        tests: dict[str, set[str]] = {}
        for measured in data.measured_files():
            file = Path(measured).relative_to(ROOT).as_posix()
            names = _of_lines(file)
            for line, contexts in data.contexts_by_lineno(measured).items():
                if line in names:
                    tests.setdefault(f"{file}::{names[line]}", set()).update(contexts)
        seen = {
            "seconds": {test: seconds for test, seconds in self.seconds.items() if test not in self.failed},
            "tests": {function: sorted(those) for function, those in tests.items()},
        }
        name = getattr(session.config, "workerinput", {}).get("workerid", "alone")
        (self.folder / f"{name}.json").write_text(json.dumps(seen))
